"""A group of events is composed as each event alone would be."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from aftercommit import EventEnvelope, InvalidPayload
from aftercommit.events.classes import outbox_event
from aftercommit.events.codec import MsgpackSerializer
from aftercommit.events.payloads import PayloadTypes
from aftercommit.writing.compose import Composer


@dataclasses.dataclass
class Placed:
    number: int
    note: str | None = None
    share: float | None = None


@outbox_event(key="number", version=3)
@dataclasses.dataclass
class Keyed:
    number: Any


class Sent(msgspec.Struct):
    part: Any


@outbox_event(serializer=MsgpackSerializer(), key="number")
@dataclasses.dataclass
class Packed:
    number: int


class Model(BaseModel):
    number: int


TEXTS = st.text(st.characters(codec=None), max_size=3) | st.sampled_from(["null", "a\nb", "\u2028", "\x1f", "'"])
NUMBERS = st.integers(0, 9)
PARTS = st.sampled_from([b'"a"', b"1\n", b"[1,\n2]", b"1}\n{", b"1}{", b"{", b'"a\n', b"null", b""]).map(msgspec.Raw)
EVENTS = st.one_of(
    st.builds(Placed, NUMBERS | TEXTS, st.none() | TEXTS, st.none() | st.floats()),
    st.builds(Keyed, NUMBERS | TEXTS | st.none() | st.just("k" * 256)),
    st.builds(Sent, PARTS | TEXTS | NUMBERS | st.builds(Model, number=NUMBERS)),
    st.builds(Packed, NUMBERS | TEXTS),
    st.builds(Model, number=NUMBERS),
    st.builds(lambda key: EventEnvelope("Ready", payload_json="{}", key=key), st.none() | st.just("k")),
)
#: Most of a group are of one class, and nearly all are right.
GROUPS = st.lists(st.lists(EVENTS, min_size=1, max_size=3) | st.lists(st.builds(Placed, NUMBERS, TEXTS)), max_size=6)


def said(event: EventEnvelope) -> tuple[object, ...]:
    """All but what no two events share."""
    what = (event.event_type, event.payload, event.content_type, event.payload_version, event.key, event.explicit_key)
    more = (event.aggregate_type, event.aggregate_id, event.tenant_id, event.available_at, event.deliver_after)
    return type(event), *what, *more, event.unique_key, dict(event.headers)


def outcome(compose: Any) -> object:
    try:
        return list(map(said, compose()))
    except Exception as error:
        return type(error), str(error)


@given(GROUPS, st.booleans())
def test_a_group_is_composed_or_refused_as_each_event_alone(groups: list[list[Any]], is_known: bool) -> None:
    events = [event for group in groups for event in group]
    together, alone = Composer(PayloadTypes()), Composer(PayloadTypes())
    if is_known:
        for each in (together, alone):
            each.compose_all([Placed(1), Keyed(1), Sent(1), Packed(1), Model(number=1)])
    found = outcome(lambda: together.compose_all(events))
    assert found == outcome(lambda: [alone.compose(event) for event in events])
    assert found == outcome(lambda: together.compose_all(iter(events)))


def test_ids_are_in_the_order_of_writing_and_a_group_has_one_time() -> None:
    events = Composer().compose_all([Placed(number) for number in range(1200)])
    ids = [event.event_id for event in events]
    assert ids == sorted(set(ids))
    assert [event.payload for event in events[:2]] == [f'{{"number":{n},"note":null,"share":null}}' for n in (0, 1)]
    assert len({event.occurred_at for event in events[1:]}) == 1


def test_what_is_too_large_is_refused_in_a_group() -> None:
    events = [Keyed(1), Keyed(2), Sent("x" * 1_048_576), Sent("y")]
    known = Composer()
    known.compose_all([Sent(1), Keyed(1)])
    with pytest.raises(Exception, match="limit"):
        known.compose_all(events)


def test_what_is_no_number_is_refused_in_a_group() -> None:
    known = Composer()
    known.compose_all([Placed(1), Placed(2)])
    with pytest.raises(InvalidPayload, match="nan"):
        known.compose_all([Placed(1, share=0.5), Placed(2, share=float("nan"))])


def test_an_object_that_is_used_again_is_composed_as_it_was_when_it_was_given() -> None:
    """A generator may fill in one and the same object again and again."""
    one = Placed(0, "", 0.0)

    def given() -> Any:
        for one.number in range(3):
            yield one

    payloads = [str(event.payload)[:11] for event in Composer().compose_all(given())]
    assert payloads == ['{"number":0', '{"number":1', '{"number":2']


def test_an_event_of_a_group_is_as_immutable_as_any() -> None:
    event = Composer().compose_all([Placed(1), Placed(2)])[1]
    with pytest.raises(AttributeError):
        event.key = "other"
    assert event.replace(key="other").key == "other"
