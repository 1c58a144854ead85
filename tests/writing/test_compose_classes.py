"""What classes, providers and callers say of an event, and who wins."""

from __future__ import annotations

import dataclasses
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aftercommit import EventEnvelope, InvalidEvent, InvalidHeaders, InvalidName, InvalidPayload, PayloadTooLarge
from aftercommit.events.classes import outbox_event
from aftercommit.events.codec import MsgpackSerializer
from aftercommit.events.context import as_headers, split
from aftercommit.events.payloads import PayloadTypes
from aftercommit.writing.compose import Composer


@outbox_event(type="order.placed", key="number", context={"who": "customer", "how": lambda _: "class"}, version=2)
@dataclasses.dataclass
class OrderPlaced:
    number: Any
    customer: str = "ann"


@outbox_event(serializer=MsgpackSerializer())
@dataclasses.dataclass
class Packed:
    number: int


@dataclasses.dataclass
class Unmarked:
    number: int


def composer(*providers: Any, serializer: Any = None) -> Composer:
    return Composer(PayloadTypes(serializer), providers)


def context_of(event: EventEnvelope) -> dict[str, str]:
    return dict(split(event.headers)[1])


# ---------------------------------------------------------------- the class


def test_an_object_is_written_as_its_class_says() -> None:
    event = composer().compose(OrderPlaced(7))
    assert (event.event_type, event.key, event.payload_version) == ("order.placed", "7", 2)
    assert (event.payload, event.content_type) == ('{"number":7,"customer":"ann"}', "application/json")
    assert context_of(event) == {"who": "ann", "how": "class"}
    assert split(event.headers)[0] == {}


class Sent(msgspec.Struct):
    number: int


@dataclasses.dataclass
class Order:
    total: int
    lines: list[Unmarked]


@pytest.mark.parametrize(
    ("event", "path"),
    [
        (Unmarked("7"), r"Expected `int`, got `str` - at `\$\.number`"),  # type: ignore[arg-type]
        (Packed(None), r"Expected `int`, got `None` - at `\$\.number`"),  # type: ignore[arg-type]
        (Sent(7.5), r"Expected `int`, got `float` - at `\$\.number`"),  # type: ignore[arg-type]
        (Order(7, [Unmarked(1), Unmarked("2")]), r"got `str` - at `\$\.lines\[1\]\.number`"),  # type: ignore[arg-type]
    ],
)
def test_values_that_do_not_fit_the_annotations_are_refused(event: Any, path: str) -> None:
    """They would make an event that no handler can be given."""
    with pytest.raises(InvalidPayload, match=f"do not fit its annotations: .*{path}") as caught:
        composer().compose(event)
    assert "annotated types" in caught.value.fix


def test_what_cannot_be_checked_is_written() -> None:
    """A class that the codec could not make objects of, and one whose annotations are for type checkers only."""

    @dataclasses.dataclass
    class Odd:
        number: Unmarked | Packed
        other: Nowhere = None  # type: ignore[name-defined]  # noqa: F821

    assert composer().compose(Odd(Unmarked(7))).payload == '{"number":{"number":7},"other":null}'


def test_keywords_win_over_the_class() -> None:
    event = composer().compose(OrderPlaced(7), key="mine", context={"how": "caller"}, aggregate_id=1)
    assert event.key == "mine"
    assert context_of(event) == {"who": "ann", "how": "caller"}
    assert composer().compose(OrderPlaced(7), aggregate_id=1).key == "7"
    assert composer().compose("other", OrderPlaced(7)).event_type == "other"
    assert composer().compose("other", OrderPlaced(7)).key == "7"


def test_without_a_key_there_is_none() -> None:
    """TC-436: nothing is ordered that nobody asked to be."""
    assert composer().compose(Unmarked(7)).key is None


@pytest.mark.parametrize("number", [None, 1.5, True, "", "k" * 256, {"a": 1}])
def test_a_key_of_the_class_obeys_the_rules_of_keys(number: Any) -> None:
    with pytest.raises(InvalidName, match="key"):
        composer().compose(OrderPlaced(number))
    assert composer().compose(OrderPlaced(UUID(int=1))).key == str(UUID(int=1))


def test_a_format_is_chosen_by_the_class_or_by_the_outbox() -> None:
    event = composer().compose(Packed(7))
    assert (event.payload, event.content_type) == (b"\x81\xa6number\x07", "application/msgpack")
    packed = composer(serializer=MsgpackSerializer())
    for given_, payload in (((Unmarked(7),), b"\x81\xa6number\x07"), (("T", [1]), b"\x91\x01")):
        event = packed.compose(*given_)
        assert (event.payload, event.content_type) == (payload, "application/msgpack")


def test_text_and_bytes_are_kept_whatever_the_format() -> None:
    packed = composer(serializer=MsgpackSerializer())
    assert packed.compose("T", '{"a": 1}').content_type == "application/json"
    assert packed.compose("T", b"x").content_type == "application/octet-stream"


@pytest.mark.parametrize(("serializer", "around"), [(None, 4), (MsgpackSerializer(), 6)])
def test_the_limit_holds_for_every_format_to_the_byte(serializer: Any, around: int) -> None:
    room = 1_048_576 - around
    for text in ("x" * room, "é" * (room // 2)):
        assert len(composer(serializer=serializer).compose("T", [text]).payload_bytes) == 1_048_576
        with pytest.raises(PayloadTooLarge, match=r"has 1,048,57[78] bytes, the limit is 1,048,576"):
            composer(serializer=serializer).compose("T", [text + text[0]])


# ---------------------------------------------------------------- context


def test_context_comes_from_providers_then_the_class_then_the_caller() -> None:
    """TC-326: the last one wins."""
    providers = (lambda: {"a": "first", "who": "provider"}, lambda: {"a": "second", "b": "provider"})
    event = composer(*providers).compose(OrderPlaced(7), context={"b": "caller", "c": "caller"})
    assert context_of(event) == {"a": "second", "who": "ann", "how": "class", "b": "caller", "c": "caller"}


MAPS = st.dictionaries(st.sampled_from(["a", "b", "traceparent"]), st.text(max_size=2))


@given(st.lists(MAPS, max_size=3), MAPS, st.booleans())
def test_manual_context_wins(provided: list[dict[str, str]], manual: dict[str, str], is_named: bool) -> None:
    providers = [lambda each=each: each for each in provided]  # type: ignore[misc]
    arguments = ("T", {}) if is_named else (Unmarked(1),)
    event = composer(*providers).compose(*arguments, context=manual)
    merged: dict[str, str] = {}
    for each in (*provided, manual):
        merged |= each
    assert context_of(event) == merged


def test_headers_and_context_are_apart_and_only_trace_context_is_both() -> None:
    event = composer(lambda: {"traceparent": "provider", "tracestate": "provider"}).compose(
        "T", {}, headers={"h": "v", "traceparent": "header"}, context={"tenant": "acme"}
    )
    headers, context = split(event.headers)
    assert headers == {"h": "v", "traceparent": "header", "tracestate": "provider"}
    assert context == {"tenant": "acme", "traceparent": "header", "tracestate": "provider"}
    manual = composer().compose("T", {}, headers={"traceparent": "header"}, context={"traceparent": "context"})
    assert context_of(manual) == {"traceparent": "context"}


def test_an_envelope_takes_the_context_of_the_moment_but_keeps_its_own() -> None:
    ready = EventEnvelope("T", payload_json="{}", headers={"h": "v", **as_headers({"a": "mine"})}, payload_version=4)
    event = composer(lambda: {"a": "provider", "b": "provider"}).compose(ready)
    assert split(event.headers) == ({"h": "v"}, {"a": "mine", "b": "provider"})
    assert (event.event_id, event.payload_version, event.occurred_at) == (ready.event_id, 4, ready.occurred_at)
    assert composer(dict).compose(ready) is ready
    with pytest.raises(InvalidEvent, match="was given context as well"):
        composer().compose(ready, context={})


@pytest.mark.parametrize("context", [7, {"a": 1}, {1: "a"}, {"": "a"}, ["a"]])
def test_context_that_is_no_text_is_refused(context: Any) -> None:
    for arguments in (("T", {}), (Unmarked(1),)):
        with pytest.raises(InvalidHeaders, match="context"):
            composer().compose(*arguments, context=context)


def test_context_of_a_class_that_is_no_text_is_refused() -> None:
    @outbox_event(context=lambda value: {"n": value.number})
    class Wrong(Unmarked):
        pass

    with pytest.raises(InvalidHeaders, match="the context entry 'n' is 7 of type int"):
        composer().compose(Wrong(7))


def test_headers_with_the_prefix_of_context_are_refused() -> None:
    for arguments in (("T", {}), (Unmarked(1),)):
        with pytest.raises(InvalidHeaders, match="reserved"):
            composer().compose(*arguments, headers={"ac-context-a": "1"})


@pytest.mark.parametrize("headers", [7, {"a": 1}, {1: "a"}, ["a"], "text"])
def test_headers_are_checked_with_context_and_without(headers: Any) -> None:
    for context in (None, {"a": "1"}):
        with pytest.raises(InvalidHeaders):
            composer().compose("T", {}, headers=headers, context=context)


def test_nothing_of_the_caller_is_kept_or_changed() -> None:
    headers, context = {"h": "v"}, {"a": "1"}
    event = composer().compose("T", {}, headers=headers, context=context)
    headers["h"], context["a"] = "other", "other"
    assert split(event.headers) == ({"h": "v"}, {"a": "1"})
    assert (headers, context) == ({"h": "other"}, {"a": "other"})


# ---------------------------------------------------------------- many at once


@outbox_event(key="number", version=3)
@dataclasses.dataclass
class Keyed:
    number: Any


def said(event: EventEnvelope) -> tuple[object, ...]:
    """All but what no two events share."""
    what = (event.event_type, event.payload, event.content_type, event.payload_version, event.key)
    return *what, event.aggregate_type, dict(event.headers)


@pytest.mark.parametrize("providers", [(), (lambda: {"who": "bob"},)], ids=["alone", "with a provider"])
def test_many_are_composed_as_each_of_them_alone(providers: tuple[Any, ...]) -> None:
    """The second of a class goes another way than the first."""
    ready = EventEnvelope("Ready", payload_json="{}", key="k")
    kinds = [Unmarked(1), Keyed(2), Packed(3), OrderPlaced(4), ready]
    events = [*kinds, *kinds, Unmarked(5), Keyed("six")]
    together = composer(*providers).compose_all(iter(events))
    assert list(map(said, together)) == [said(composer(*providers).compose(each)) for each in events]
    assert len({event.event_id for event in together}) == len(events) - 1  # one is there twice


@pytest.mark.parametrize("last", [Unmarked("7"), Keyed(""), Keyed("k" * 256)])  # type: ignore[arg-type]
def test_many_are_refused_for_the_last_of_a_class_that_is_known(last: Any) -> None:
    known = composer()
    known.compose_all([Unmarked(1), Keyed(2)])
    with pytest.raises((InvalidPayload, InvalidName)):
        known.compose_all([Unmarked(1), Keyed(2), last])


def test_one_of_many_that_is_too_large_is_refused() -> None:
    known = composer()
    known.compose_all([Keyed(1)])
    with pytest.raises(PayloadTooLarge):
        known.compose_all([Keyed("x" * 1_048_576)])
