"""Upcasters: old payloads become new ones step by step, over plain data."""

from __future__ import annotations

import dataclasses
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aftercommit import EventEnvelope
from aftercommit.errors import InvalidPayloadType, UndecodablePayload
from aftercommit.events.classes import outbox_event
from aftercommit.events.codec import MsgpackSerializer
from aftercommit.events.payloads import PayloadTypes


@outbox_event(version=3)
@dataclasses.dataclass
class Paid:
    number: int
    amount: int
    currency: str


class PaidModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    number: int
    amount: int
    currency: str


outbox_event(version=3)(PaidModel)


def to_cents(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "amount": data["amount"] * 100}


def with_currency(data: dict[str, Any]) -> dict[str, Any]:
    data["currency"] = "EUR"
    return data


def row(version: int, text: str = '{"number":7,"amount":42}', kind: str = "Paid") -> EventEnvelope:
    return EventEnvelope(kind, payload_json=text, payload_version=version)


def both(types: PayloadTypes, kind: Any = Paid) -> PayloadTypes:
    types.upcaster(kind, 1, to_cents)
    types.upcaster(kind, 2, with_currency)
    return types


@pytest.mark.parametrize("kind", [Paid, PaidModel])
def test_each_version_takes_the_steps_that_it_lacks(kind: Any) -> None:
    types, name = both(PayloadTypes(), kind), kind.__name__
    now = row(3, '{"number":7,"amount":42,"currency":"USD"}', kind=name)
    for _ in range(2):  # what is kept of one decoding must not be taken for another
        assert types.decode(now, kind) == kind(number=7, amount=42, currency="USD")
        assert types.decode(row(2, kind=name), kind) == kind(number=7, amount=42, currency="EUR")
        assert types.decode(row(1, kind=name), kind) == kind(number=7, amount=4200, currency="EUR")


@pytest.mark.parametrize("kind", [Paid, PaidModel])
def test_rows_of_another_format_are_upcast_too(kind: Any) -> None:
    payload = MsgpackSerializer().encode({"number": 7, "amount": 42})
    old = EventEnvelope(kind.__name__, payload_bytes=payload, content_type="application/msgpack", payload_version=1)
    assert both(PayloadTypes(), kind).decode(old, kind) == kind(number=7, amount=4200, currency="EUR")


@given(st.integers(1, 6), st.integers(-(10**40), 10**40))
def test_a_chain_is_the_composition_of_its_steps(version: int, number: int) -> None:
    @outbox_event(version=6)
    @dataclasses.dataclass
    class Step:
        trail: list[int]
        number: int

    types = PayloadTypes()
    for each in range(5, 0, -1):
        types.upcaster(Step, each, lambda data, each=each: {**data, "trail": [*data["trail"], each]})
    old = row(version, f'{{"trail":[],"number":{number}}}', kind="Step")
    assert types.decode(old, Step) == Step(list(range(version, 6)), number)


def test_a_missing_step_says_which_one() -> None:
    types = PayloadTypes()
    types.upcaster(Paid, 1, to_cents)
    with pytest.raises(
        UndecodablePayload,
        match=r"(?s)Paid is at version 3, and no upcaster leads on from version 2.*upcast\(Paid, from_version=2\)",
    ):
        types.decode(row(1), Paid)


def broken(data: Any) -> Any:
    raise KeyError("amount")


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (broken, "the upcaster broken of Paid from version 2 failed: KeyError: 'amount'"),
        (lambda data: None, "of Paid from version 2 returned None"),
        (lambda data: {"number": "x"}, r"Expected `int`, got `str` - at `\$\.number`"),
        (lambda data: {"number": object()}, r"payload\['number'\] is a object"),
        (lambda data: [], "Expected `object`, got `array`"),
    ],
)
def test_a_step_that_fails_or_does_not_fit_says_so(step: Any, said: str) -> None:
    types = PayloadTypes()
    types.upcaster(Paid, 2, step)
    with pytest.raises(UndecodablePayload, match=rf"(?s)\(version 2, application/json\) is no Paid: .*{said}.*Fix: "):
        types.decode(row(2), Paid)


def test_a_step_belongs_to_one_class_and_one_outbox() -> None:
    @outbox_event(version=2)
    class Heir(Paid):
        pass

    one, other = both(PayloadTypes()), PayloadTypes()
    with pytest.raises(UndecodablePayload, match="no upcaster leads on from version 1"):
        other.decode(row(1), Paid)
    with pytest.raises(UndecodablePayload, match="Heir is at version 2, and no upcaster"):
        one.decode(row(1, kind="Heir"), Heir)


# ---------------------------------------------------------------- bad input


async def later(data: Any) -> Any:
    return data


def yielding(data: Any) -> Any:
    yield data


@pytest.mark.parametrize(
    ("version", "step", "said"),
    [
        (0, to_cents, "is from version 0"),
        (True, to_cents, "is from version True"),
        ("1", to_cents, "is from version '1'"),
        (3, to_cents, "Paid is at version 3, so an upcaster from version 3 would never run"),
        (9, to_cents, "would never run"),
        (2, None, "the upcaster None of Paid is no plain function"),
        (2, later, "the upcaster later of Paid is no plain function"),
        (2, yielding, "the upcaster yielding of Paid is no plain function"),
        (1, with_currency, "Paid has an upcaster from version 1 already: to_cents"),
    ],
)
def test_a_wrong_upcaster_is_refused_when_added(version: Any, step: Any, said: str) -> None:
    types = PayloadTypes()
    types.upcaster(Paid, 1, to_cents)
    with pytest.raises(InvalidPayloadType, match=rf"(?s){said}.*Fix: "):
        types.upcaster(Paid, version, step)


def test_a_class_that_says_no_version_is_at_version_1() -> None:
    @dataclasses.dataclass
    class Unmarked:
        number: int

    with pytest.raises(InvalidPayloadType, match=r"(?s)Unmarked is at version 1.*Fix: @outbox_event\(version=2\)"):
        PayloadTypes().upcaster(Unmarked, 1, to_cents)
