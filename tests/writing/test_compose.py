"""From what is passed to write() to an envelope."""

from __future__ import annotations

import dataclasses
import json
import types
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aftercommit import EventEnvelope, EventType, InvalidEvent, InvalidName, InvalidPayload
from aftercommit.writing.compose import Composer
from tests.support import World


@dataclasses.dataclass(frozen=True)
class OrderPlaced:
    number: int
    items: tuple[str, ...] = ()


class OrderShipped(msgspec.Struct):
    number: int


class Kinds(Enum):
    ORDER_PLACED = 1


class Names(StrEnum):
    ORDER_PLACED = "order.placed"


def compose(*arguments: Any, **keywords: Any) -> EventEnvelope:
    return Composer().compose(*arguments, **keywords)


# ---------------------------------------------------------------- a type and a payload


@pytest.mark.parametrize(
    ("event_type", "stored"),
    [
        ("OrderPlaced", "OrderPlaced"),
        (EventType("OrderPlaced"), "OrderPlaced"),
        (Kinds.ORDER_PLACED, "ORDER_PLACED"),
        (Names.ORDER_PLACED, "order.placed"),
    ],
)
def test_a_type_is_a_string_or_an_enum_member(event_type: Any, stored: str) -> None:
    """TC-027, TC-028, TC-052."""
    event = compose(event_type, {})
    assert event.event_type == stored
    assert type(event.event_type) is str


@pytest.mark.parametrize(
    ("payload", "stored"),
    [
        ('{"a":  1}', '{"a":  1}'),
        ("null", "null"),
        (b"\x00\xff", b"\x00\xff"),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        ({"a": 1}, '{"a":1}'),
        ([1, "ä"], '[1,"ä"]'),
        (7, "7"),
        (False, "false"),
        ({"a": None}, '{"a":null}'),
        (OrderPlaced(7, ("pen",)), '{"number":7,"items":["pen"]}'),
        (OrderShipped(7), '{"number":7}'),
        (datetime(2030, 1, 1, tzinfo=UTC), '"2030-01-01T00:00:00Z"'),
        (Kinds.ORDER_PLACED, "1"),
    ],
)
def test_text_is_kept_bytes_are_binary_and_the_rest_is_encoded(payload: Any, stored: str | bytes) -> None:
    """TC-001, TC-003, TC-004."""
    event = compose("T", payload)
    assert event.payload == stored
    assert type(event.payload) is type(stored)


def test_a_buffer_that_changes_afterwards_changes_nothing() -> None:
    """TC-008, TC-473."""
    buffer, mapping = bytearray(b"before"), {"number": 1}
    binary, text = compose("T", buffer), compose("T", mapping)
    buffer[:] = b"behind"
    mapping["number"] = 2
    assert (binary.payload, text.payload) == (b"before", '{"number":1}')


def test_every_keyword_reaches_the_envelope() -> None:
    """TC-002."""
    due = datetime.now(UTC) + timedelta(hours=1)
    event = compose(
        "T",
        {},
        key=7,
        aggregate_type=Kinds.ORDER_PLACED,
        aggregate_id=UUID(int=1),
        tenant_id="acme",
        headers={"h": "v"},
        available_at=due,
        deliver_after=None,
    )
    assert (event.key, event.aggregate_type, event.aggregate_id) == ("7", "ORDER_PLACED", str(UUID(int=1)))
    assert (event.tenant_id, dict(event.headers), event.available_at) == ("acme", {"h": "v"}, due)
    assert compose("T", {}, deliver_after="30s").deliver_after == timedelta(seconds=30)


@pytest.mark.parametrize("event_type", ["T", Kinds.ORDER_PLACED])
def test_a_type_without_a_payload_is_refused(event_type: Any) -> None:
    """TC-010: and None is no payload."""
    with pytest.raises(InvalidPayload, match=r"(?s)no payload.*Fix: .*JSON null is 'null'"):
        compose(event_type)
    with pytest.raises(InvalidPayload, match=r"(?s)None.*Fix: .*JSON null is the text 'null'"):
        compose(event_type, None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(), parts, max_size=3),
    max_leaves=5,
)
SPACED_JSON = st.builds(lambda value, indent: f" {json.dumps(value, indent=indent)}\n", JSON, st.none() | st.just(2))


@given(st.text() | SPACED_JSON)
def test_text_is_stored_as_it_is_or_refused(text: str) -> None:
    try:
        event = compose("T", text)
    except InvalidPayload:
        with pytest.raises((msgspec.DecodeError, UnicodeEncodeError)):
            msgspec.json.decode(text.encode())
    else:
        assert event.payload == text


# ---------------------------------------------------------------- an object


@pytest.mark.parametrize(
    ("event", "event_type", "payload"),
    [
        (OrderPlaced(7), "OrderPlaced", '{"number":7,"items":[]}'),
        (OrderShipped(7), "OrderShipped", '{"number":7}'),
    ],
)
def test_an_object_is_named_after_its_class_and_is_its_payload(event: Any, event_type: str, payload: str) -> None:
    composed = compose(event, key="k", headers={"h": "v"})
    assert (composed.event_type, composed.payload) == (event_type, payload)
    assert (composed.key, dict(composed.headers)) == ("k", {"h": "v"})


def test_an_object_with_a_payload_is_refused() -> None:
    for payload in ({}, None):
        with pytest.raises(InvalidPayload, match=r"(?s)OrderPlaced.*payload as well.*Fix: the object is the payload"):
            compose(OrderPlaced(7), payload)


@pytest.mark.parametrize(
    "event",
    [
        *(None, {}, [], (), set(), 7, 1.5, True, b"T", bytearray(), object(), range(3), Ellipsis, NotImplemented, len),
        *(lambda: None, types, iter(()), ValueError("x"), slice(1), OrderPlaced, int, Kinds, EventEnvelope),
    ],
)
def test_what_is_no_object_of_a_class_of_ones_own_names_no_event(event: Any) -> None:
    for payload in ((), ({},)):
        with pytest.raises(InvalidName, match=r'(?s)names no event type.*Fix: name the type: write\("OrderPlaced"'):
            compose(event, *payload)


def test_two_classes_of_one_name_are_refused_in_one_outbox() -> None:
    """In the table they would be one type. The first one goes on, and another outbox has names of its own."""

    @dataclasses.dataclass
    class OrderShipped:
        street: str

    composer = Composer()
    composer.compose(globals()["OrderShipped"](7))
    with pytest.raises(InvalidName, match=r"(?s)two classes are named OrderShipped.*<locals>.*Fix: rename one"):
        composer.compose(OrderShipped("x"))
    assert composer.compose(globals()["OrderShipped"](8)).payload == '{"number":8}'
    assert composer.compose("OtherName", OrderShipped("x")).payload == '{"street":"x"}'
    assert compose(OrderShipped("x")).event_type == "OrderShipped"


@pytest.mark.parametrize("name", ["", "N" * 129])
def test_a_class_whose_name_cannot_be_stored_is_refused(name: str) -> None:
    kind = dataclasses.make_dataclass("Temporary", [("number", int)])
    kind.__name__ = name
    with pytest.raises(InvalidName, match="event_type"):
        compose(kind(1))


def test_an_object_that_cannot_be_encoded_says_where() -> None:
    with pytest.raises(InvalidPayload, match=r"payload\.items\[1\] is a object"):
        compose(OrderPlaced(7, ("a", object())))  # type: ignore[arg-type]


# ---------------------------------------------------------------- an envelope


def test_an_envelope_is_taken_as_it_is() -> None:
    event = EventEnvelope.of_json("T", "{}")
    assert compose(event) is event
    assert compose(event, key=None, headers=None) is event


@pytest.mark.parametrize(
    ("payload", "keywords", "named"),
    [
        (({},), {}, "payload"),
        ((None,), {}, "payload"),
        ((), {"key": "k"}, "key"),
        ((), {"headers": {}}, "headers"),
        ((), {"aggregate_id": 0}, "aggregate_id"),
        (({},), {"tenant_id": "acme", "deliver_after": 5}, "payload, tenant_id, deliver_after"),
    ],
)
def test_an_envelope_with_anything_else_is_refused(payload: Any, keywords: Any, named: str) -> None:
    with pytest.raises(InvalidEvent, match=rf"(?s)was given {named} as well.*Fix: .*envelope\.replace"):
        compose(EventEnvelope.of_json("T", "{}"), *payload, **keywords)


# ---------------------------------------------------------------- through an outbox


def test_all_forms_arrive_as_they_were_composed(world: World) -> None:
    """TC-052: an envelope, a type and a payload, an object; alone and in a batch."""

    async def scenario() -> None:
        outbox = world.outbox()
        ready = EventEnvelope("Ready", payload_bytes=b"\x00")
        async with outbox.transaction():
            await outbox.write(ready)
            await outbox.write(Kinds.ORDER_PLACED, {"number": 1})
            await outbox.write(OrderPlaced(2))
            await outbox.write_all([OrderShipped(3), EventEnvelope.of_json("Last", "[]")])
        assert [(row["event_type"], row["payload"] or row["payload_bytes"]) for row in world.rows()] == [
            ("Ready", b"\x00"),
            ("ORDER_PLACED", '{"number":1}'),
            ("OrderPlaced", '{"number":2,"items":[]}'),
            ("OrderShipped", '{"number":3}'),
            ("Last", "[]"),
        ]

    world.run(scenario)
