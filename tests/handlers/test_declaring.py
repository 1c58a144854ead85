"""What can be a handler, what it is called by, and what is refused at once with the fix."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any

import pytest

from aftercommit import (
    AsyncOutbox,
    DuplicateHandler,
    EventEnvelope,
    EventMetadata,
    FailureContext,
    Fixed,
    HandlerSet,
    InvalidHandler,
    InvalidName,
    InvalidOption,
    InvalidPayloadType,
    Outbox,
    any_event,
)
from tests.handlers.kit import Letter, OrderPlaced, OrderShipped, Parcel

if TYPE_CHECKING:
    from tests.handlers.kit import OrderPaid


@pytest.fixture(params=[HandlerSet, lambda: Outbox("sqlite://")], ids=["set", "outbox"])
def handlers(request: pytest.FixtureRequest) -> Any:
    """Where handlers are declared: alone, or on an outbox."""
    return request.param()


def good(event: OrderPlaced) -> None: ...


def known(handlers: HandlerSet) -> list[str]:
    return list(handlers._roster.handlers)


# ---------------------------------------------------------------- what it becomes


def test_a_handler_is_still_the_function_it_was(handlers: Any) -> None:
    @handlers.handler
    def double(event: OrderPlaced) -> int:
        """Twice."""
        return 2 * event.order_id

    assert double(OrderPlaced(21)) == 42
    assert (double.__name__, double.__doc__, double.id) == ("double", "Twice.", "double")
    assert repr(double) == "<handler double>"


def test_an_attribute_of_the_function_does_not_change_the_handler(handlers: Any) -> None:
    def marked(event: OrderPlaced) -> None: ...

    marked.route = marked.function = "mine"  # type: ignore[attr-defined]
    handler = handlers.handler(marked)
    assert handler.function is marked
    assert handler.route is None


def test_ids_are_names_unless_they_are_given(handlers: Any) -> None:
    """D6"""
    handlers.handler(good)
    handlers.handler("A", id="send-welcome", aliases=["welcome", "old_welcome"])(lambda event: None)
    assert known(handlers) == ["good", "send-welcome"]
    assert handlers._roster.named("old_welcome").id == "send-welcome"


class Kind(Enum):
    CREATED = 1


class Word(StrEnum):
    CREATED = "user.created"


@pytest.mark.parametrize(("route", "name"), [("A", "A"), (Kind.CREATED, "CREATED"), (Word.CREATED, "user.created")])
def test_a_route_may_be_a_name(handlers: Any, route: Any, name: str) -> None:
    handler = handlers.handler(route, id="h")(lambda event: None)
    assert (handler.event_type, handler.payload, handler.is_generic) == (name, EventEnvelope, False)


def test_options_become_values(handlers: Any) -> None:
    policy = Fixed("1s")
    options = handlers.handler(
        OrderPlaced, aggregate_type="Order", retry=policy, timeout="200ms", concurrency=3, rate="5/10s"
    )(good).settings
    assert (options.aggregate_type, options.retry, options.timeout, options.concurrency) == ("Order", policy, 0.2, 3)
    assert (options.rate.count, options.rate.per) == (5, 10)


@pytest.mark.parametrize(("text", "per"), [("7/s", 1), ("7/m", 60), ("7/h", 3600), ("7/500ms", 0.5)])
def test_a_rate_is_calls_in_a_time(handlers: Any, text: str, per: float) -> None:
    rate = handlers.handler("A", id="h", rate=text)(lambda event: None).settings.rate
    assert (rate.count, rate.per) == (7, per)


# ---------------------------------------------------------------- annotations


def test_a_string_annotation_may_name_a_class_of_the_function_around(handlers: Any) -> None:
    from dataclasses import dataclass

    @dataclass
    class Local:
        order_id: int

    @handlers.handler
    def local(event: Local) -> None: ...

    assert local.payload is Local


def test_annotations_that_are_not_needed_are_not_resolved(handlers: Any) -> None:
    @handlers.handler
    def placed(event: OrderPlaced, meta: EventMetadata, tries: OrderPaid = None) -> OrderPaid:  # type: ignore[assignment]
        raise AssertionError

    assert placed.payload is OrderPlaced


def test_an_annotation_that_only_a_type_checker_knows_is_refused(handlers: Any) -> None:
    with pytest.raises(InvalidHandler, match=r"paid \(test_declaring.py:\d+\) cannot be resolved.*OrderPaid") as caught:

        @handlers.handler
        def paid(event: OrderPaid) -> None: ...

    assert "TYPE_CHECKING" in caught.value.fix
    assert known(handlers) == []


# ---------------------------------------------------------------- shapes


class Plain:
    def __call__(self, event: OrderPlaced) -> None: ...


class Async:
    async def __call__(self, event: OrderPlaced, meta: EventMetadata) -> None: ...


class Methods:
    def bound(self, event: OrderPlaced) -> None: ...

    @staticmethod
    def static(event: OrderPlaced) -> None: ...

    @classmethod
    def of_class(cls, event: OrderPlaced, meta: EventMetadata) -> None: ...


def decorated(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Any:
        return function(*arguments)

    return wrapper


def with_more(prefix: str, event: OrderPlaced, meta: EventMetadata) -> None: ...


@pytest.mark.parametrize(
    ("function", "takes_metadata"),
    [
        (Plain(), False),
        (Async(), True),
        (Methods().bound, False),
        (Methods.static, False),
        (Methods.of_class, True),
        (decorated(good), False),
        (functools.partial(with_more, "a"), True),
        (functools.partial(good), False),
    ],
    ids=["object", "async object", "bound", "static", "class method", "decorated", "partial", "empty partial"],
)
def test_callables_of_every_shape_are_read(handlers: Any, function: Any, takes_metadata: bool) -> None:
    """D1; the string annotations are found where the function was written."""
    handler = handlers.handler(id="h")(function)
    assert (handler.payload, handler.takes_metadata) == (OrderPlaced, takes_metadata)


@pytest.mark.parametrize("builtin", [print, [].append, str])
def test_a_builtin_needs_a_named_route(handlers: Any, builtin: Any) -> None:
    if builtin is not str:  # a class is a route
        assert handlers.handler("A", id="h")(builtin).payload is EventEnvelope
    with pytest.raises(InvalidHandler):
        handlers.handler(id="other")(builtin)


# ---------------------------------------------------------------- refused: functions


def no_parameter() -> None: ...


def no_annotation(event) -> None: ...  # type: ignore[no-untyped-def]


def three(event: OrderPlaced, meta: EventMetadata, more: int) -> None: ...


def other_second(event: OrderPlaced, meta: int) -> None: ...


def keyword(event: OrderPlaced, *, more: int) -> None: ...


def envelope(event: EventEnvelope) -> None: ...


def mapping(event: dict[str, Any]) -> None: ...


def anything(event: Any) -> None: ...


def generator(event: OrderPlaced) -> Iterator[None]:
    yield


async def async_generator(event: OrderPlaced) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize(
    ("function", "message", "fix"),
    [
        (no_parameter, "takes 0 parameters", "event: OrderPlaced"),
        (no_annotation, "no annotation on its first parameter", "event: OrderPlaced"),
        (three, "takes 3 parameters", "EventMetadata"),
        (other_second, "second parameter .* annotated int", "EventMetadata"),
        (keyword, "needs the keyword more", "event: OrderPlaced"),
        (envelope, "names no event type", "any_event"),
        (mapping, "names no event type", '@outbox.handler("OrderPlaced")'),
        (anything, "no annotation on its first parameter", "event: OrderPlaced"),
        (generator, "is a generator", "return"),
        (async_generator, "is a generator", "return"),
        (functools.partial(generator), "has no name|is a generator", ""),
        (lambda event: None, "has no name", "id="),
        (functools.partial(good), "has no name", "id="),
        (7, "cannot be called", "function"),
    ],
)
def test_what_cannot_be_a_handler_is_refused_with_the_fix(handlers: Any, function: Any, message: str, fix: str) -> None:
    """The issue's table of bad input; TC-414, TC-415"""
    with pytest.raises(InvalidHandler, match=message) as caught:
        handlers.handler(function)
    assert fix in caught.value.fix
    assert known(handlers) == []


def test_a_route_and_an_annotation_that_contradict_each_other_are_refused(handlers: Any) -> None:
    with pytest.raises(InvalidHandler, match="has the route OrderShipped and takes"):
        handlers.handler(OrderShipped)(good)


def test_a_handler_for_a_class_may_take_its_base_or_the_envelope(handlers: Any) -> None:
    def of_base(event: Parcel) -> None: ...

    assert handlers.handler(Letter)(of_base).payload is Letter
    assert handlers.handler(Letter)(envelope).payload is EventEnvelope


# ---------------------------------------------------------------- refused: options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retry": Fixed}, "no retry policy"),
        ({"retry": "exponentail"}, "no policy 'exponentail'"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": "soon"}, "timeout"),
        ({"timeout": timedelta(-1)}, "timeout"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"rate": "many"}, "rate"),
        ({"rate": "0/s"}, "rate"),
        ({"rate": 5}, "rate"),
        ({"aliases": "old"}, "aliases"),
        ({"supports": print}, "route of its own"),
        ({"destination": ""}, "destination"),
        ({"destination": 7}, "destination"),
        ({"retries": 3}, "no option retries=3"),
        ({"timeuot": 3}, "no option timeuot=3"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(handlers: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        handlers.handler(**options)(good)
    assert known(handlers) == []


def test_a_misspelt_option_is_found(handlers: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        handlers.handler(timeuot="1s")(good)
    assert caught.value.fix == "did you mean timeout?"


@pytest.mark.parametrize("name", ["@listener", "!h"])
def test_reserved_ids_are_refused(handlers: Any, name: str) -> None:
    for options in ({"id": name}, {"aliases": [name]}):
        with pytest.raises(InvalidHandler, match="reserved"):
            handlers.handler(**options)(good)


@pytest.mark.parametrize("name", ["", "x" * 256, 7])
def test_an_id_is_a_name_that_fits_its_column(handlers: Any, name: Any) -> None:
    with pytest.raises(InvalidName):
        handlers.handler(id=name)(good)


@pytest.mark.parametrize(
    "second", [{}, {"id": "good"}, {"id": "other", "aliases": ["good"]}, {"id": "other", "aliases": ["old"]}]
)
def test_an_id_or_alias_names_one_handler(handlers: Any, second: dict[str, Any]) -> None:
    """TC-423: both are named with their places."""
    handlers.handler(aliases=["old"])(good)

    def good_too(event: OrderShipped) -> None: ...

    good_too.__name__ = "good"
    with pytest.raises(
        DuplicateHandler, match=r"good \(test_declaring.py:\d+\) and .*good_too \(test_declaring"
    ) as caught:
        handlers.handler(**second)(good_too)
    assert "id=" in caught.value.fix
    assert known(handlers) == ["good"]


# ---------------------------------------------------------------- refused: fallbacks


def only_event(event: OrderPlaced) -> None: ...


def four(event: OrderPlaced, meta: EventMetadata, failure: FailureContext, more: int) -> None: ...


def wrong_failure(event: OrderPlaced, failure: Exception) -> None: ...


def wrong_event(event: OrderShipped, failure: FailureContext) -> None: ...


def wrong_middle(event: OrderPlaced, meta: str, failure: FailureContext) -> None: ...


@pytest.mark.parametrize("function", [only_event, four, wrong_failure, wrong_event, wrong_middle, generator, 7])
def test_what_cannot_be_a_fallback_is_refused(handlers: Any, function: Any) -> None:
    """TC-417"""
    handler = handlers.handler(good)
    with pytest.raises(InvalidHandler) as caught:
        handler.fallback(function)
    assert caught.value.fix
    assert handler.bound_fallback is None


def failed(event: OrderPlaced, failure: FailureContext) -> None: ...


def test_a_handler_has_one_fallback(handlers: Any) -> None:
    """TC-423"""
    handler = handlers.handler(good)
    assert handler.fallback(failed) is failed
    with pytest.raises(DuplicateHandler, match="good has a fallback already"):
        handler.fallback(failed)


def test_a_payload_type_has_one_fallback(handlers: Any) -> None:
    assert handlers.fallback(failed) is failed
    with pytest.raises(DuplicateHandler, match="has a fallback already"):
        handlers.fallback(OrderPlaced)(lambda event, failure: None)


def test_a_fallback_for_a_type_needs_the_type(handlers: Any) -> None:
    with pytest.raises(InvalidHandler, match="no annotation"):
        handlers.fallback(lambda event, failure: None)


# ---------------------------------------------------------------- on an outbox


@pytest.mark.parametrize("kind", [Outbox, AsyncOutbox])
def test_a_writer_has_no_handlers(kind: Any) -> None:
    outbox = kind.writer_only("sqlite://")
    with pytest.raises(InvalidOption, match="writer-only"):
        outbox.handler(good)
    handlers = HandlerSet()
    handlers.handler(good)
    with pytest.raises(InvalidOption, match="writer-only"):
        outbox.include(handlers)


def test_a_class_that_nothing_can_be_decoded_into_is_refused() -> None:
    class Opaque: ...

    def opaque(event: Opaque) -> None: ...

    outbox = Outbox("sqlite://")
    for route in ((), ("Named",), (any_event,)):
        with pytest.raises(InvalidPayloadType, match="Opaque"):
            outbox.handler(*route)(opaque)
    assert known(outbox) == []


def test_any_event_may_ask(handlers: Any) -> None:
    handler = handlers.handler(any_event, id="h", supports=lambda event: True)(lambda event: None)
    assert handler.is_generic
    with pytest.raises(InvalidOption, match="supports"):
        handlers.handler(any_event, id="i", supports=7)(lambda event: None)
