"""Names, ids and keys: what is taken, as which text, and what is refused with the value and a fix."""

from __future__ import annotations

import copy
from enum import Enum, IntEnum, StrEnum
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aftercommit import (
    AggregateType,
    DuplicateListener,
    EventEnvelope,
    EventType,
    InvalidName,
    StringAggregateType,
    StringEventType,
)
from aftercommit.events.names import GLOBAL, name_of, plain, shown, text_of
from aftercommit.handlers.listeners import DefaultListenerRegistry


class Plain(Enum):
    ORDER_PLACED = 1


class Text(StrEnum):
    ORDER_PLACED = "order.placed"


class Mixed(str, Enum):  # noqa: UP042 - users have such classes
    ORDER_PLACED = "order.placed"


class Number(IntEnum):
    ORDER_PLACED = 7


class MixedNumber(int, Enum):
    ORDER_PLACED = 7


class Odd(str):
    """A string that prints as another one."""

    def __str__(self) -> str:
        return "something else"

    __repr__ = __format__ = lambda self, *_: "something else"


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


NAMES = {"event_type": 128, "aggregate_type": 64, "tenant_id": 64, "event_id": 36}
KEYS = {"aggregate_id": 128, "key": 255}


def event(**fields):
    return EventEnvelope(fields.pop("event_type", "A"), payload_json="1", **fields)


def refused(build) -> InvalidName:
    with pytest.raises(InvalidName) as caught:
        build()
    assert caught.value.code == "AC014"
    assert caught.value.fix
    return caught.value


# --- names


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("OrderPlaced", "OrderPlaced"),
        (Plain.ORDER_PLACED, "ORDER_PLACED"),
        (Number.ORDER_PLACED, "ORDER_PLACED"),
        (MixedNumber.ORDER_PLACED, "ORDER_PLACED"),
        (Text.ORDER_PLACED, "order.placed"),
        (Mixed.ORDER_PLACED, "order.placed"),
        (EventType("OrderPlaced"), "OrderPlaced"),
        (AggregateType("OrderPlaced"), "OrderPlaced"),
        (Odd("OrderPlaced"), "OrderPlaced"),
        ("Ünï/cödé 🚀\n", "Ünï/cödé 🚀\n"),
    ],
    ids=repr,
)
def test_a_name_is_a_string_or_an_enum_member(given, stored):
    """TC-027, TC-032: a member means its name; a member that is a string means its value."""
    for name in (event(event_type=given).event_type, event(aggregate_type=given).aggregate_type):
        assert name == stored
        assert type(name) is str, "a subclass would not come back from the table"


@pytest.mark.parametrize("field", NAMES)
@pytest.mark.parametrize("value", [7, True, 1.5, b"A", ["A"], object, Unshowable()], ids=lambda v: type(v).__name__)
def test_anything_else_is_no_name(field, value):
    error = refused(lambda: event(**{field: value}))

    assert f"{field} is {shown(value)} of type {type(value).__name__}" in error.message
    assert field in error.fix


@pytest.mark.parametrize("field", ["event_type", "aggregate_type"])
def test_a_type_cannot_be_none(field):  # TC-012, TC-032
    assert f"{field} is None" in refused(lambda: event(**{field: None})).message


@pytest.mark.parametrize(("field", "limit"), [*NAMES.items(), *KEYS.items()])
def test_names_and_keys_have_one_character_to_their_limit(field, limit):  # TC-026, TC-032
    longest = "é" * limit

    assert getattr(event(**{field: longest}), field) == longest
    assert getattr(event(**{field: "x"}), field) == "x"
    assert f"{field} is ''" in refused(lambda: event(**{field: ""})).message
    too_long = refused(lambda: event(**{field: longest + "x"})).message
    assert f"{field} has {limit + 1} characters, the limit is {limit}" in too_long
    assert "'ééé" in too_long


@pytest.mark.parametrize("field", [*NAMES, *KEYS])
@pytest.mark.parametrize("value", ["a\x00b", "a\ud800", "\udfffb"], ids=repr)
def test_what_a_database_refuses_is_refused_before_it(field, value):  # F73
    assert repr(value) in refused(lambda: event(**{field: value})).message


@settings(deadline=None)
@given(st.text(st.characters(), max_size=40), st.sampled_from([name_of, text_of]))
def test_a_name_is_stored_as_it_is_or_refused(text, taken):
    is_sound = 0 < len(text) <= 36 and "\x00" not in text and not any("\ud800" <= each <= "\udfff" for each in text)

    if is_sound:
        assert taken(text, "event_id", 36) == text
    else:
        refused(lambda: taken(text, "event_id", 36))


# --- keys and ids


@pytest.mark.parametrize("field", KEYS)
@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("order-7", "order-7"),
        (7, "7"),
        (0, "0"),
        (-7, "-7"),
        (2**63, "9223372036854775808"),
        (10**39, "1" + "0" * 39),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (Text.ORDER_PLACED, "order.placed"),
        (Mixed.ORDER_PLACED, "order.placed"),
        (Number.ORDER_PLACED, "7"),
        (MixedNumber.ORDER_PLACED, "7"),
        (Odd("order-7"), "order-7"),
    ],
    ids=repr,
)
def test_a_key_is_a_string_an_int_or_a_uuid(field, given, stored):
    text = getattr(event(**{field: given}), field)

    assert text == stored
    assert type(text) is str


@pytest.mark.parametrize("field", KEYS)
@pytest.mark.parametrize(
    "value", [True, False, 1.0, b"7", ("a", 1), Plain.ORDER_PLACED, Unshowable()], ids=lambda value: repr(type(value))
)
def test_anything_else_is_no_key(field, value):
    error = refused(lambda: event(**{field: value}))

    assert f"{field} is {shown(value)} of type {type(value).__name__}" in error.message
    assert "an int or a UUID" in error.fix


@pytest.mark.parametrize(("field", "limit"), KEYS.items())
@pytest.mark.parametrize("digits", [1, 10, 4000, 100_000])
def test_an_int_that_is_too_long_is_refused_like_a_text(field, limit, digits):
    """Python refuses to print more than 4,300 digits with an error of its own."""
    number = 10 ** (limit + digits - 1)

    error = refused(lambda: event(**{field: number}))

    assert field in error.message
    assert f"the limit is {limit}" in error.message
    assert getattr(event(**{field: 10 ** (limit - 1)}), field) == "1" + "0" * (limit - 1)


# --- EventType and AggregateType


@pytest.mark.parametrize(
    "kind", [EventType, AggregateType, StringEventType, StringAggregateType, StringEventType.of, StringAggregateType.of]
)
def test_a_type_is_a_string_with_a_name(kind):
    """TC-028, TC-029, TC-032."""
    one, same, other = kind("OrderPlaced"), kind("OrderPlaced"), kind("OrderPaid")

    assert (str(one), one.name, f"{one}") == ("OrderPlaced",) * 3
    assert type(one.name) is str
    assert one == same == "OrderPlaced"
    assert hash(one) == hash(same) == hash("OrderPlaced")
    assert one != other
    assert kind(Plain.ORDER_PLACED) == "ORDER_PLACED"
    assert kind(Mixed.ORDER_PLACED) == kind(one.__class__("order.placed"))


@pytest.mark.parametrize(
    ("kind", "limit"),
    [(EventType, 128), (AggregateType, 64), (StringEventType.of, 128), (StringAggregateType.of, 64)],
)
@pytest.mark.parametrize("name", [None, "", 7, "a\x00"], ids=repr)
def test_a_type_is_checked_like_any_name(kind, limit, name):
    """TC-030, TC-032."""
    assert repr(name) in refused(lambda: kind(name)).message
    assert f"the limit is {limit}" in refused(lambda: kind("x" * (limit + 1))).message


def test_the_aggregate_type_of_an_event_that_names_none():
    assert AggregateType.GLOBAL == GLOBAL == "__GLOBAL__" == event().aggregate_type
    assert isinstance(AggregateType.GLOBAL, AggregateType)
    assert (AggregateType.GLOBAL.name, str(AggregateType.GLOBAL)) == ("__GLOBAL__", "__GLOBAL__")
    assert type(event(aggregate_type=AggregateType.GLOBAL).aggregate_type) is str


@pytest.mark.parametrize(
    ("dynamic", "kind"), [(StringEventType.of("Placed"), EventType), (StringAggregateType.of("Placed"), AggregateType)]
)
def test_a_dynamic_type_is_a_type_and_the_same_as_its_name(dynamic, kind):
    """TC-028, TC-029: whichever way the name was said."""
    assert isinstance(dynamic, kind)
    assert dynamic == kind("Placed") == "Placed"
    assert {dynamic, kind("Placed"), "Placed"} == {"Placed"}
    assert copy.deepcopy(dynamic) == dynamic
    assert type(event(event_type=dynamic).event_type) is str
    assert type(event(aggregate_type=dynamic).aggregate_type) is str


class Kinds(EventType, Enum):
    PLACED = "order.placed"


class Aggregates(AggregateType, Enum):
    ORDER = "Order"


def test_an_enum_may_be_made_of_types():
    assert (Kinds.PLACED.name, Aggregates.ORDER.name) == ("order.placed", "Order")
    made = event(event_type=Kinds.PLACED, aggregate_type=Aggregates.ORDER)
    assert (made.event_type, made.aggregate_type) == ("order.placed", "Order")


def test_all_ways_to_name_a_route_are_one():
    registry = DefaultListenerRegistry().register(StringAggregateType.of("Order"), StringEventType.of("Placed"), print)
    registry.register(AggregateType.GLOBAL, "Placed", repr)

    assert registry.listener_for("Order", "Placed") is print
    assert registry.listener_for(AggregateType.GLOBAL.name, StringEventType.of("Placed").name) is repr
    with pytest.raises(DuplicateListener):
        registry.register("Placed", print)


def test_an_enum_and_its_name_are_one_route():
    """TC-031."""
    registry = DefaultListenerRegistry().register(Plain.ORDER_PLACED, print)

    assert registry.listener_for(GLOBAL, "ORDER_PLACED") is print
    with pytest.raises(DuplicateListener, match=r"\] ORDER_PLACED has the listener") as caught:
        registry.register("ORDER_PLACED", repr)
    assert caught.value.fix


# --- helpers


@settings(deadline=None)
@given(st.text(st.characters()))
def test_plain_text_has_the_same_characters_and_no_subclass(text):
    assert plain(Odd(text)) == text
    assert type(plain(Odd(text))) is str


def test_a_refused_value_is_shown_in_short_whatever_it_is():
    assert shown({"a": 1}) == "{'a': 1}"
    assert len(shown("x" * 5_000_000)) == 80
    assert shown(Unshowable()) == "a Unshowable that cannot be shown"
