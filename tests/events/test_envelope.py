"""The envelope: what it takes, what it refuses and how, that nobody can change it, and how a stored one comes back."""

from __future__ import annotations

import copy
import json
import pickle
import re
from array import array
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from enum import Enum

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aftercommit import (
    EventEnvelope,
    EventStatus,
    InvalidEvent,
    InvalidHeaders,
    InvalidPayload,
    InvalidSchedule,
    PayloadNotText,
    PayloadTooLarge,
)
from aftercommit.events.fields import MAX_PAYLOAD_BYTES

NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)
ULID = re.compile("[0-7][0-9A-HJKMNP-TV-Z]{25}")


def event(**fields):
    return EventEnvelope("UserCreated", **({"payload_json": '{"id":1}'} | fields))


def binary(value, **fields):
    return EventEnvelope("UserCreated", payload_bytes=value, **fields)


def delayed():
    return event(occurred_at=NOON, deliver_after="30s")


def refused(kind, build):
    """The error of exactly this class, with a fix."""
    with pytest.raises(InvalidEvent) as caught:
        build()
    assert type(caught.value) is kind, caught.value
    assert caught.value.fix
    return caught.value


def full(**fields):
    return EventEnvelope(
        "UserCreated",
        **(
            {
                "payload_json": '{"id": 1}',
                "event_id": "my-own-id",
                "occurred_at": NOON,
                "aggregate_type": "User",
                "aggregate_id": "7",
                "tenant_id": "acme",
                "key": "k",
                "headers": {"a": "1", "b": ""},
                "available_at": NOON + timedelta(hours=1),
            }
            | fields
        ),
    )


# --- what it takes


def test_a_type_and_a_payload_are_enough():
    """TC-001, TC-018."""
    before = datetime.now(UTC)
    made = event()

    assert ULID.fullmatch(made.event_id)
    assert before <= made.occurred_at <= datetime.now(UTC)
    assert made.occurred_at.tzinfo is UTC
    assert made.event_type == "UserCreated"
    assert (made.aggregate_type, made.aggregate_id, made.tenant_id, made.key) == ("__GLOBAL__", None, None, None)
    assert dict(made.headers) == {}
    assert (made.available_at, made.deliver_after, made.is_delayed) == (None, None, False)
    assert made.payload_json == made.payload == '{"id":1}'
    assert event().event_id > made.event_id


def test_every_field_is_kept_as_it_was_given():
    """TC-002."""
    made = full()

    assert made.event_id == "my-own-id"
    assert made.event_type == "UserCreated"
    assert made.payload_json == '{"id": 1}'
    assert made.occurred_at == NOON
    assert made.aggregate_type == "User"
    assert made.aggregate_id == "7"
    assert made.tenant_id == "acme"
    assert made.key == "k"
    assert list(made.headers.items()) == [("a", "1"), ("b", "")]
    assert made.available_at == NOON + timedelta(hours=1)


def test_the_short_form_takes_a_type_and_json():
    """TC-003."""
    made = EventEnvelope.of_json("UserCreated", '{"id":1}')

    assert (made.event_type, made.payload_json) == ("UserCreated", '{"id":1}')


def test_the_default_key_is_the_aggregate():
    assert event(aggregate_type="User", aggregate_id=7).key == "User/7"
    assert event(aggregate_id=7).key == "__GLOBAL__/7"
    assert event(aggregate_type="User").key is None
    assert event(aggregate_type="User", aggregate_id=7, key="mine").key == "mine"
    assert len(event(aggregate_type="x" * 64, aggregate_id="y" * 128).key) <= 255


def test_the_statuses_are_those_of_the_table():
    assert {each.name: each.value for each in EventStatus} == {"NEW": 0, "DONE": 1, "RETRY": 2, "DEAD": 3}


# --- payload


def test_text_and_bytes_can_be_read_as_each_other():
    """TC-004, TC-005, TC-009."""
    texts, blob = event(payload_json='{"n":"é🚀"}'), binary('{"n":"é🚀"}'.encode())

    assert texts.payload_bytes == blob.payload_bytes == '{"n":"é🚀"}'.encode()
    assert texts.payload_json == blob.payload_json == '{"n":"é🚀"}'
    assert type(texts.payload_bytes) is type(blob.payload_bytes) is bytes
    assert (type(texts.payload), type(blob.payload)) == (str, bytes)


def test_bytes_that_are_not_text_say_so():
    made = binary(b"\xff\x00\xfe")

    assert made.payload_bytes == b"\xff\x00\xfe"
    with pytest.raises(PayloadNotText) as caught:
        _ = made.payload_json
    assert "UserCreated" in caught.value.message
    assert made.event_id in caught.value.message
    assert "payload_bytes" in caught.value.fix


@pytest.mark.parametrize("buffer", [bytearray, memoryview], ids=lambda kind: kind.__name__)
def test_a_buffer_is_copied(buffer):
    """TC-008."""
    source = bytearray(b"before")
    made = binary(buffer(source))

    source[:] = b"after!"

    assert made.payload_bytes == b"before"
    assert type(made.payload) is bytes


def test_any_view_is_copied_byte_by_byte():
    assert binary(memoryview(b"abcdef")[::2]).payload == b"ace"
    assert binary(memoryview(array("H", [1, 2]))).payload == array("H", [1, 2]).tobytes()
    assert binary(b"").payload == b""


def test_a_payload_is_given_once():
    """TC-010, TC-011."""
    none = refused(InvalidPayload, lambda: EventEnvelope("UserCreated"))
    both = refused(InvalidPayload, lambda: event(payload_bytes=b"1"))

    assert "no payload was given" in none.message
    assert "both payload_json and payload_bytes were given" in both.message
    assert "exactly one" in none.fix
    assert none.fix == both.fix


@pytest.mark.parametrize("value", [None, 1, {"id": 1}, b"1", bytearray(b"1")], ids=repr)
def test_payload_json_is_text(value):
    error = refused(InvalidPayload, lambda: event(payload_json=value))

    assert "payload_json is None" in error.message or f"of type {type(value).__name__}" in error.message


@pytest.mark.parametrize("value", [None, 1, "text", [1, 2]], ids=repr)
def test_payload_bytes_are_bytes(value):
    error = refused(InvalidPayload, lambda: binary(value))

    assert "payload_bytes is None" in error.message or f"of type {type(value).__name__}" in error.message


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda size: binary(bytes(size)), id="bytes"),
        pytest.param(lambda size: binary(bytearray(size)), id="bytearray"),
        pytest.param(lambda size: binary(memoryview(bytes(size))), id="view"),
        pytest.param(lambda size: event(payload_json='"' + "a" * (size - 2) + '"'), id="ascii"),
        pytest.param(lambda size: event(payload_json='"' + "é" * (size // 2 - 1) + '"' + " " * (size % 2)), id="é"),
        pytest.param(lambda size: event(payload_json='"' + "🚀" * (size // 4 - 1) + '"  ' + " " * (size % 4)), id="🚀"),
    ],
)
def test_the_limit_of_a_payload_is_in_bytes(build):
    """TC-013, TC-014, TC-015, F76."""
    assert len(build(MAX_PAYLOAD_BYTES).payload_bytes) == MAX_PAYLOAD_BYTES == 1_048_576
    for size in (MAX_PAYLOAD_BYTES + 1, MAX_PAYLOAD_BYTES + 100):
        error = refused(PayloadTooLarge, lambda size=size: build(size))
        assert f"{size:,} bytes" in error.message
        assert "1,048,576" in error.message


def test_a_view_of_wide_items_is_measured_in_bytes():
    wide = memoryview(array("Q", [0]) * (MAX_PAYLOAD_BYTES // 8 + 1))

    assert len(wide) < MAX_PAYLOAD_BYTES
    refused(PayloadTooLarge, lambda: binary(wide))


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(values, st.none() | st.integers(0, 3), st.booleans())
def test_json_text_is_kept_byte_for_byte(value, indent, ensure_ascii):
    """Promise 12, F74: spacing, order and spelling are the writer's own."""
    text = json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)

    made = event(payload_json=text)

    assert made.payload_json == text
    assert made.payload_bytes == text.encode()


# --- headers


def test_headers_cannot_be_changed_from_either_side():
    """TC-006."""
    source = {"a": "1"}
    made = event(headers=source)

    source["a"] = "2"
    source["b"] = "3"

    assert dict(made.headers) == {"a": "1"}
    with pytest.raises(TypeError):
        made.headers["a"] = "2"
    with pytest.raises(AttributeError):
        made.headers.clear()
    with pytest.raises(TypeError):
        event().headers["a"] = "2"


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({None: "x"}, "headers cannot contain null keys"),  # TC-007
        ({"a": None}, "the header 'a' is None"),  # TC-026
        ({"a": 1}, "the header 'a' is 1 of type int"),
        ({"a": b"x"}, "the header 'a' is b'x' of type bytes"),
        ({"ok": "x", "a": ["x"]}, "the header 'a' is ['x'] of type list"),
        ({1: "x"}, "the header name 1 "),
        ({b"a": "x"}, "the header name b'a' "),
        ({"": "x"}, "the header name '' "),
        ({"a": "\ud800"}, "the header 'a' has a lone surrogate"),
        ({"\udfff": "a"}, "the header '\\udfff' has a lone surrogate"),
        ([("a", "b")], "headers is of type list"),
        ([], "headers is of type list"),
        ("", "headers is of type str"),
        (0, "headers is of type int"),
        ({"a": object}, "the header 'a' is <class 'object'> of type type"),
        ({"a": ["x"] * 1_000_000}, "the header 'a' is ['x', 'x'"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_headers_map_strings_to_strings(headers, said):
    error = refused(InvalidHeaders, lambda: event(headers=headers))

    assert said in error.message
    assert len(error.message) < 250


def test_headers_are_plain_strings():
    """A subclass would not come back from the table: the hot and the cold path would differ."""

    class Name(str, Enum):  # noqa: UP042 - users have such classes
        TRACE = "trace"

    made = event(headers={Name.TRACE: Name.TRACE})

    assert {str(name): str(value) for name, value in made.headers.items()} == {"trace": "trace"}
    assert {type(part) for pair in made.headers.items() for part in pair} == {str}


def test_odd_but_sound_headers_are_kept():
    odd = {"a": "", "\x00": "\x00", 'quote"s': "line\nbreak", " ": "🚀"}

    assert dict(event(headers=odd).headers) == odd
    assert dict(event(headers={}).headers) == dict(event(headers=None).headers) == {}


# --- schedule


def test_an_event_can_be_delivered_at_a_time():
    """TC-016, TC-022."""
    later = datetime.now(UTC) + timedelta(seconds=3600)

    assert event(available_at=later).available_at == later
    assert event(available_at=later).is_delayed
    assert event(available_at=later).deliver_after is None
    now = event(occurred_at=NOON, available_at=NOON)
    assert now.available_at == NOON
    assert not now.is_delayed


@pytest.mark.parametrize("delay", [timedelta(minutes=30), 1800, 1800.0, "30m", "1800s"], ids=repr)
def test_an_event_can_be_delivered_after_a_time(delay):
    """TC-017."""
    made = event(occurred_at=NOON, deliver_after=delay)

    assert made.available_at == NOON + timedelta(seconds=1800)
    assert made.deliver_after == timedelta(seconds=1800)
    assert made.is_delayed


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"available_at": NOON, "deliver_after": "5s"}, "both available_at=datetime"),  # TC-019
        ({"available_at": None, "deliver_after": None}, "both available_at=None and deliver_after=None"),
        ({"deliver_after": 0}, "deliver_after must be positive"),  # TC-020
        ({"deliver_after": timedelta(0)}, "deliver_after must be positive"),
        ({"deliver_after": timedelta(seconds=-10)}, "deliver_after must be positive"),  # TC-021
        ({"deliver_after": -10}, "deliver_after=-10"),
        ({"deliver_after": "-10s"}, "deliver_after='-10s'"),
        ({"deliver_after": "soon"}, "deliver_after='soon' is not a duration"),
        ({"deliver_after": True}, "deliver_after=True is not a duration"),
        ({"deliver_after": float("nan")}, "deliver_after=nan is not a duration"),
        ({"deliver_after": float("inf")}, "deliver_after=inf is not a duration"),
        ({"deliver_after": None}, "deliver_after=None"),  # TC-024
        ({"deliver_after": NOON}, "deliver_after=datetime"),
        ({"deliver_after": timedelta.max}, "ends after the year 9999"),
        ({"deliver_after": "3000000d"}, "deliver_after='3000000d' ends after the year 9999"),
        ({"available_at": None}, "available_at is None"),  # TC-023
        ({"available_at": "2030-01-01"}, "available_at is '2030-01-01' of type str"),
        ({"available_at": date(2030, 1, 1)}, "available_at is datetime.date(2030, 1, 1) of type date"),
        ({"available_at": datetime(2030, 1, 1)}, "available_at 2030-01-01T00:00:00 has no time zone"),
        ({"occurred_at": datetime(2030, 1, 1)}, "occurred_at 2030-01-01T00:00:00 has no time zone"),
        ({"occurred_at": 0}, "occurred_at is 0 of type int"),
        (
            {"occurred_at": NOON, "available_at": NOON - timedelta(seconds=10)},  # TC-025
            "available_at must not be before occurred_at (2025-01-01T11:59:50+00:00 < 2025-01-01T12:00:00+00:00)",
        ),
        ({"occurred_at": NOON, "available_at": NOON - timedelta(microseconds=1)}, "must not be before occurred_at"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_a_schedule_that_makes_no_sense_is_refused(fields, said):
    assert said in refused(InvalidSchedule, lambda: event(**fields)).message


def test_the_fix_of_a_double_schedule_names_both():
    """TC-019."""
    error = refused(InvalidSchedule, lambda: event(available_at=NOON, deliver_after="5s"))

    assert "available_at or deliver_after" in error.fix


class Nowhere(tzinfo):
    """A zone that does not know its offset: to Python such a time is naive."""

    def utcoffset(self, when):
        return None

    def dst(self, when):
        return None

    def tzname(self, when):
        return "?"


@pytest.mark.parametrize("field", ["occurred_at", "available_at"])
def test_a_zone_without_an_offset_is_no_zone(field):
    error = refused(InvalidSchedule, lambda: event(**{field: datetime(2030, 1, 1, tzinfo=Nowhere())}))

    assert f"{field} 2030-01-01T00:00:00 has no time zone" in error.message


def test_times_are_kept_as_the_same_instant_in_utc():
    india = timezone(timedelta(hours=5, minutes=30))
    made = event(
        occurred_at=datetime(2025, 1, 1, 17, 30, 0, 123456, tzinfo=india),
        available_at=datetime(2025, 1, 1, 17, 30, 0, 123457, tzinfo=india),
    )

    assert made.occurred_at == datetime(2025, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
    assert made.available_at == datetime(2025, 1, 1, 12, 0, 0, 123457, tzinfo=UTC)
    assert made.occurred_at.tzinfo is made.available_at.tzinfo is UTC


def test_the_calendar_is_used_to_its_ends():
    """F81."""
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)

    assert event(occurred_at=first, available_at=last).available_at == last
    assert event(occurred_at=last).occurred_at == last
    assert event(occurred_at=first, deliver_after=last - first).available_at == last


@pytest.mark.parametrize("field", ["occurred_at", "available_at"])
@pytest.mark.parametrize(
    "moment",
    [
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
    ],
    ids=["after", "before"],
)
def test_a_time_that_leaves_the_calendar_in_utc_is_refused(field, moment):
    error = refused(InvalidSchedule, lambda: event(**{field: moment}))

    assert f"{field} {moment.isoformat()} is outside the years 1 to 9999" in error.message


zones = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)


@settings(deadline=None)
@given(st.datetimes(timezones=zones))
def test_any_time_with_a_zone_is_kept_or_refused(moment):
    try:
        made = event(occurred_at=moment)
    except InvalidSchedule:
        assert moment.year in (1, 9999)
    else:
        assert made.occurred_at == moment
        assert made.occurred_at.utcoffset() == timedelta(0)


# --- nobody can change it


@pytest.mark.parametrize("name", [*EventEnvelope.__slots__, "key", "payload_json", "payload_bytes", "anything"])
def test_nothing_can_be_set_or_deleted(name):
    made = full()
    twin = full()

    with pytest.raises(AttributeError, match=rf"cannot be changed; use envelope.replace\({name}="):
        setattr(made, name, "x")
    with pytest.raises(AttributeError, match="cannot be changed"):
        delattr(made, name)

    assert made == twin


DIFFERENCES = {
    "event_id": "other",
    "payload_json": "2",
    "occurred_at": NOON - timedelta(seconds=1),
    "aggregate_type": "Other",
    "aggregate_id": "8",
    "tenant_id": None,
    "key": "other",
    "headers": {"a": "1"},
    "available_at": NOON + timedelta(hours=2),
}


def test_equal_fields_make_equal_events():
    assert full() == full()
    assert hash(full()) == hash(full())
    assert len({full(), full(), full(event_id="other")}) == 2
    assert full() != "UserCreated"
    assert (full() == object()) is False


@pytest.mark.parametrize("field", DIFFERENCES)
def test_every_field_tells_events_apart(field):
    assert full() != full(**{field: DIFFERENCES[field]})


def test_events_of_other_types_and_payload_kinds_differ():
    assert full() != full().replace(event_type="Other")
    assert full() != full().replace(payload_bytes=b'{"id": 1}')


def test_a_copy_is_the_event_itself():
    made = full()

    assert copy.copy(made) is made
    assert copy.deepcopy([made])[0] is made


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_event_crosses_a_process_border(protocol):
    for made in (full(), event(), binary(b"\xff", deliver_after="5s")):
        twin = pickle.loads(pickle.dumps(made, protocol))  # noqa: S301 - our own bytes

        assert twin == made
        assert all(getattr(twin, name) == getattr(made, name) for name in EventEnvelope.__slots__)
        with pytest.raises(TypeError):
            twin.headers["a"] = "2"


def test_no_way_to_print_an_event_shows_what_is_in_it():
    made = event(payload_json='"the-secret"', headers={"h": "the-secret"}, key="k")
    blob = binary(b"the-secret")

    for text in (repr(made), str(made), f"{made}", f"{[made]}", repr(blob), str(blob)):
        assert "the-secret" not in text
        assert "UserCreated" in text
    assert repr(made) == f"EventEnvelope('UserCreated', event_id={made.event_id!r}, key='k')"


# --- replace


def test_replace_changes_one_field_and_keeps_the_others():
    changed = full().replace(tenant_id="other")

    assert changed.tenant_id == "other"
    assert changed.replace(tenant_id="acme") == full()
    assert full().tenant_id == "acme"
    assert full().replace() == full()


@pytest.mark.parametrize("field", DIFFERENCES)
def test_replace_takes_every_field(field):
    assert full().replace(**{field: DIFFERENCES[field]}) == full(**{field: DIFFERENCES[field]})


def test_replace_puts_one_kind_of_payload_in_the_place_of_the_other():
    assert full().replace(payload_bytes=b"\xff").payload == b"\xff"
    assert binary(b"\xff").replace(payload_json="1").payload == "1"
    assert binary(b"\xff").replace(key="k").payload == b"\xff"


def test_replace_puts_one_schedule_in_the_place_of_the_other():
    at, after = full(), delayed()

    assert at.replace(deliver_after="5s").available_at == NOON + timedelta(seconds=5)
    assert after.replace(available_at=NOON).available_at == NOON
    assert after.replace(available_at=NOON).deliver_after is None
    assert after.replace(key="x").deliver_after == timedelta(seconds=30)
    moved = after.replace(occurred_at=NOON + timedelta(hours=1))
    assert moved.available_at == NOON + timedelta(hours=1, seconds=30)


def test_replace_follows_the_aggregate_unless_the_key_was_given():
    made = event(aggregate_type="User", aggregate_id=7)

    assert made.replace(aggregate_id=8).key == "User/8"
    assert made.replace(key="mine").replace(aggregate_id=8).key == "mine"
    assert made.replace(key="mine").replace(key=None).key == "User/7"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"headers": {"a": 1}}, InvalidHeaders),
        ({"payload_json": "{"}, InvalidPayload),
        ({"payload_json": "1", "payload_bytes": b"1"}, InvalidPayload),
        ({"occurred_at": NOON + timedelta(hours=2)}, InvalidSchedule),
    ],
)
def test_replace_checks_like_a_new_event(changes, kind):
    refused(kind, lambda: full().replace(**changes))


def test_replace_refuses_what_is_no_field():
    with pytest.raises(TypeError, match="payload_text"):
        full().replace(payload_text="1")


# --- restore


def restored(**fields):
    return EventEnvelope.restore(
        **(
            {
                "event_id": "id",
                "event_type": "T",
                "payload": "1",
                "occurred_at": NOON,
                "aggregate_type": "A",
                "aggregate_id": None,
                "tenant_id": None,
                "content_type": "application/json",
                "payload_version": 1,
                "key": None,
                "headers": {},
                "available_at": None,
            }
            | fields
        )
    )


@pytest.mark.parametrize(
    "stored",
    [
        {"available_at": NOON - timedelta(hours=1)},  # TC-479: the clocks of two nodes differ
        {"event_type": ""},
        {"event_type": "x" * 5000},
        {"aggregate_type": ""},
        {"event_id": "x" * 300},
        {"key": "x" * 300},
        {"payload": "{not json"},
        {"payload": "x" * (MAX_PAYLOAD_BYTES + 1)},
        {"payload": bytes(MAX_PAYLOAD_BYTES + 1)},
        {"headers": {"": "x"}},
    ],
    ids=lambda stored: next(iter(stored)),
)
def test_a_stored_row_is_not_judged_by_the_rules_of_today(stored):
    """TC-479: rules that held, or were laxer, at write() must not make a row undeliverable."""
    made = restored(**stored)

    assert all(getattr(made, name) == value for name, value in stored.items())


def test_a_restored_event_equals_the_one_that_was_written():
    """Promise 12, also for a delay, which the table keeps as the time that it meant."""
    for made in (full(), event(), event(aggregate_type="User", aggregate_id=7), delayed(), binary(b"\x00")):
        twin = EventEnvelope.restore(
            event_id=made.event_id,
            event_type=made.event_type,
            payload=made.payload,
            content_type=made.content_type,
            payload_version=made.payload_version,
            occurred_at=made.occurred_at,
            aggregate_type=made.aggregate_type,
            aggregate_id=made.aggregate_id,
            tenant_id=made.tenant_id,
            key=made.key,
            headers=dict(made.headers),
            available_at=made.available_at,
        )

        assert twin == made
        assert hash(twin) == hash(made)
        assert twin.is_delayed == made.is_delayed


def test_a_restored_event_cannot_be_changed_either():
    made = restored(headers={"a": "1"})

    with pytest.raises(AttributeError):
        made.event_id = "x"
    with pytest.raises(TypeError):
        made.headers["a"] = "2"
    with pytest.raises(TypeError):
        restored().headers["a"] = "2"
