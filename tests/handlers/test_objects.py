"""Handlers as objects: classes that users derive from, registered as instances, beside the decorators."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

import pytest

from aftercommit import (
    DuplicateHandler,
    EventEnvelope,
    EventMetadata,
    FailureContext,
    Fixed,
    HandlerSet,
    InvalidHandler,
    InvalidOption,
    NoRetry,
    Outbox,
    OutboxFallbackHandler,
    OutboxHandler,
    OutboxTypedHandler,
    any_event,
)
from tests.handlers.kit import (
    Colouring,
    Deliberate,
    Letter,
    OrderLost,
    OrderPaid,
    OrderPlaced,
    OrderReturned,
    OrderShipped,
    Parcel,
    drain_all,
    rows,
    write,
)
from tests.support import Collector, Signal, World


@pytest.fixture
def world(every_world: World) -> World:
    """What is said here holds on every store."""
    return every_world


E = TypeVar("E")


class Painted:
    """Calls what `colour` has made of a function, so that `handle` is sync or async."""

    def __init__(self, seen: Collector, colour: Colouring = lambda function: function) -> None:
        self.seen = seen
        self.see = colour(self._see)

    def _see(self, *what: Any) -> None:
        self.seen.add((type(self).__name__, *what))
        if "fail" in what:
            raise Deliberate("no")


class Receipt(Painted, OutboxTypedHandler[OrderPlaced]):
    def handle(self, payload: OrderPlaced) -> Any:
        return self.see(payload)


class Shipping(Painted, OutboxTypedHandler[OrderShipped]):
    id = "ship-it"
    aliases = ("shipping",)

    def handle(self, event: OrderShipped, metadata: EventMetadata) -> Any:
        return self.see(event, metadata.handler_id, metadata.attempt)


class Audit(Painted, OutboxHandler):
    def handle(self, payload: Any, metadata: EventMetadata) -> Any:
        return self.see(payload, metadata.event_type)


# ---------------------------------------------------------------- what they get


def test_typed_objects_come_first_then_generic_ones_each_with_a_row(world: World, colour: Colouring) -> None:
    """H5, TC-411, TC-322: one row each, whatever the order of registration."""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        outbox.include(Audit(seen, colour))
        outbox.handler(Receipt(seen, colour))
        outbox.include(Shipping(seen, colour))
        await write(outbox, OrderPlaced(1), OrderShipped(2))
        assert rows(world) == [("Receipt", "NEW"), ("Audit", "NEW"), ("ship-it", "NEW"), ("Audit", "NEW")]
        await outbox.drain()
        assert seen == [
            ("Receipt", OrderPlaced(1)),
            ("Audit", OrderPlaced(1), "OrderPlaced"),
            ("Shipping", OrderShipped(2), "ship-it", 1),
            ("Audit", OrderShipped(2), "OrderShipped"),
        ]
        assert {status for _, status in rows(world)} == {"DONE"}

    world.run(scenario)


def test_objects_get_events_after_their_commit(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        outbox.handler(Receipt(seen, colour))
        await outbox.start()
        await write(outbox, OrderPlaced(1))
        await seen.reach(1)
        await world.until_settled(1)
        assert seen == [("Receipt", OrderPlaced(1))]

    world.run(scenario)


class Known(OutboxHandler):
    def __init__(self, seen: Collector) -> None:
        self.seen = seen

    async def handle(self, payload: OrderPaid | OrderReturned | object, metadata: EventMetadata) -> None:
        self.seen.add(payload)


def test_a_generic_object_gets_the_payload_as_its_class_where_the_outbox_has_one(world: World) -> None:
    """004: a typed handler's class, one that it names itself, subclasses; else plain data, or bytes as they are.

    A class that was merely written does not count: another process, or this one after a restart, would not know it.
    """

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        outbox.include(Known(seen))
        outbox.handler(Parcel, id="parcel")(lambda event: None)
        await write(outbox, OrderPlaced(1), OrderPaid(order_id=2), OrderReturned(3), Letter(4, "blue"))
        async with outbox.transaction():
            await outbox.write("Named", {"a": [1]})
            await outbox.write("OrderPaid", '{"order_id": 5}')
            await outbox.write("Text", '"text"')
            await outbox.write("Bytes", b"\x00\xff")
        await outbox.drain()
        assert seen == [
            *({"order_id": 1}, OrderPaid(order_id=2), OrderReturned(3), Letter(4, "blue")),
            *({"a": [1]}, OrderPaid(order_id=5), "text", b"\x00\xff"),
        ]

        @outbox.handler
        def placed(event: OrderPlaced) -> None: ...

        await write(outbox, OrderPlaced(6), "Named")
        await outbox.drain()
        assert seen[-2:] == [OrderPlaced(6), {}]

    world.run(scenario)


def test_a_generic_object_may_ask_for_other_forms(world: World) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()

        class Whole(OutboxHandler):
            def handle(self, payload: EventEnvelope, metadata: EventMetadata) -> None:
                seen.add(payload.payload_json)

        class Plain(OutboxHandler):
            def handle(self, payload: dict[str, Any], metadata: EventMetadata) -> None:
                seen.add(payload)

            def supports(self, event: EventEnvelope) -> bool:
                return event.event_type == "A"

        outbox.include(Whole()).include(Plain())
        await write(outbox, "A", "B")
        await outbox.drain()
        assert seen == ["{}", {}, "{}"]
        assert [handler_id for handler_id, _ in rows(world)] == ["Whole", "Plain", ""]  # TC-328

    world.run(scenario)


def test_a_union_and_a_base_class_are_routes_too(world: World) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()

        class Either(Painted, OutboxTypedHandler[OrderPlaced | OrderLost]):
            def handle(self, payload: Any) -> Any:
                return self.see(payload)

        class Post(Painted, OutboxTypedHandler[Parcel]):
            def handle(self, payload: Parcel) -> Any:
                return self.see(payload)

        class Stamps(Painted, OutboxTypedHandler[Letter]):
            def handle(self, payload: Parcel) -> Any:  # it may take more than it asks for
                return self.see(payload)

        for kind in (Either, Post, Stamps):
            outbox.include(kind(seen))
        await write(outbox, OrderPlaced(1), Parcel(3), Letter(4, "blue"))
        async with outbox.transaction():
            await outbox.write("OrderLost", {"order_id": 2})
        await outbox.drain()
        assert seen == [
            ("Either", OrderPlaced(1)),
            ("Post", Parcel(3)),
            ("Post", Letter(4, "blue")),
            ("Stamps", Letter(4, "blue")),
            ("Either", {"order_id": 2}),
        ]

    world.run(scenario)


# ---------------------------------------------------------------- the type argument


class Relay(OutboxTypedHandler[E], Generic[E]):
    """For whatever class its subclass, or its object, names."""

    def __init__(self, seen: Collector | None = None) -> None:
        self.seen = seen

    def handle(self, payload: E) -> None:
        if self.seen is not None:
            self.seen.add(payload)


class RelayPlaced(Relay[OrderPlaced]): ...


class RelayPlacedFurther(RelayPlaced): ...


class Two(Generic[E]): ...


class Mixed(Two[int], Relay[OrderShipped]): ...


class Either(OutboxTypedHandler["OrderPlaced | OrderShipped"]):
    def handle(self, payload: OrderPlaced | OrderShipped) -> None: ...


class Quoted(OutboxTypedHandler["OrderPlaced"]):
    def handle(self, payload: Any) -> None: ...


class WithMore(OutboxTypedHandler[E | OrderShipped], Generic[E]):
    def handle(self, payload: Any) -> None: ...


class MoreOfPlaced(WithMore[OrderPlaced]): ...


class ByAnnotation(OutboxTypedHandler):  # type: ignore[type-arg]
    def handle(self, payload: OrderPlaced) -> None: ...


@pytest.mark.parametrize(
    ("instance", "payload"),
    [
        (Receipt(Collector()), OrderPlaced),
        (RelayPlaced(), OrderPlaced),
        (RelayPlacedFurther(), OrderPlaced),
        (Relay[OrderPlaced](), OrderPlaced),
        (Mixed(), OrderShipped),
        (Either(), OrderPlaced | OrderShipped),
        (Quoted(), OrderPlaced),
        (MoreOfPlaced(), OrderPlaced | OrderShipped),
        (ByAnnotation(), OrderPlaced),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_type_argument_is_the_route(instance: Any, payload: Any) -> None:
    handler = HandlerSet().handler(instance)
    assert handler.payload == handler.route_type == payload
    assert handler.is_typed
    assert handler.id == type(instance).__name__


def test_a_class_of_the_function_around_may_be_the_argument() -> None:
    @dataclass
    class Local:
        number: int

    class Locally(OutboxTypedHandler[Local]):
        def handle(self, payload: Local, metadata: EventMetadata) -> None: ...

    def elsewhere(instance: Any) -> Any:
        return HandlerSet().handler(instance)

    assert elsewhere(Locally()).payload is Local


# ---------------------------------------------------------------- options


class Full(OutboxTypedHandler[OrderPlaced]):
    id = "full"
    aliases = ("old", "older")
    aggregate_type = "Order"
    retry = Fixed("3s", max_attempts=2)
    timeout = "30s"
    concurrency = 3
    rate = "5/s"

    def destination(self, event: EventEnvelope) -> str:
        return event.event_type

    def handle(self, payload: OrderPlaced) -> None: ...


def test_options_are_attributes_and_keywords_win() -> None:
    settings = HandlerSet().handler(Full()).settings
    assert (settings.id, settings.aliases, settings.aggregate_type) == ("full", ("old", "older"), "Order")
    assert (settings.retry, settings.timeout, settings.concurrency) == (Fixed("3s", max_attempts=2), 30, 3)
    assert settings.rate is not None
    assert settings.destination is not None
    assert settings.destination(EventEnvelope.of_json("A", "{}")) == "A"

    settings = HandlerSet().handler(Full(), id="other", timeout="5s", retry="fixed").settings
    assert (settings.id, settings.timeout, settings.retry, settings.concurrency) == ("other", 5, Fixed(), 3)
    assert HandlerSet().handler(id="third")(Full()).id == "third"


def test_an_object_may_have_options_of_its_own() -> None:
    class Webhook(OutboxTypedHandler[OrderPlaced]):
        def __init__(self, name: str) -> None:
            self.id = f"webhook-{name}"

        def handle(self, payload: OrderPlaced) -> None: ...

    handlers = HandlerSet().include(Webhook("a")).include(Webhook("b"))
    assert list(handlers._roster.handlers) == ["webhook-a", "webhook-b"]


def test_a_plain_object_has_the_defaults() -> None:
    settings = HandlerSet().handler(Receipt(Collector())).settings
    rest = (
        settings.retry,
        settings.timeout,
        settings.concurrency,
        settings.rate,
        settings.supports,
        settings.destination,
    )
    assert (settings.id, settings.aliases, settings.aggregate_type, *rest) == ("Receipt", (), None, *[None] * 6)
    assert HandlerSet().handler(Audit(Collector())).settings.supports is None


def test_its_retry_policy_and_its_limit_are_kept(world: World, colour: Colouring) -> None:
    """TC-425, D8: by an object's attribute, before the outbox's."""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(retry_policy="no_retry")

        class Failing(Painted, OutboxTypedHandler[OrderPlaced]):
            retry = {"policy": "fixed", "delay": "1h", "max_attempts": 3, "exclude": ["KeyError"]}  # noqa: RUF012

            def handle(self, payload: OrderPlaced) -> Any:
                return self.see("fail")

        outbox.include(Failing(seen, colour))
        await write(outbox, OrderPlaced(1))
        await outbox.drain()
        (row,) = world.rows()
        assert (row["status"], row["attempts"]) == (2, 1)
        assert row["available_at"] > world.now() + timedelta(minutes=30) / timedelta(microseconds=1)
        await drain_all(world, outbox)
        assert len(seen) == 3
        assert rows(world) == [("", "DEAD")]

    world.run(scenario)


def test_its_timeout_is_kept(world: World) -> None:
    async def scenario() -> None:
        outbox, never = world.outbox(), Signal()

        class Slow(OutboxTypedHandler[OrderPlaced]):
            timeout, retry = "50ms", NoRetry()

            async def handle(self, payload: OrderPlaced) -> None:
                await asyncio.sleep(3600)
                never.set()

        outbox.include(Slow())
        await write(outbox, OrderPlaced(1))
        await outbox.drain()
        assert rows(world) == [("", "DEAD")]
        assert "HandlerTimeout" in world.rows()[0]["last_error"]
        assert not never.is_set

    world.run(scenario)


def test_an_alias_of_an_object_finds_its_rows(world: World) -> None:
    """D6: rows that were written under an earlier name."""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        outbox.include(Shipping(seen))
        await write(outbox, OrderShipped(1))
        world.change("UPDATE outbox_event SET handler_id = 'shipping'")
        await outbox.drain()
        assert seen == [("Shipping", OrderShipped(1), "ship-it", 1)]

    world.run(scenario)


# ---------------------------------------------------------------- fallbacks


class Failing(Painted, OutboxTypedHandler[OrderPlaced]):
    retry = Fixed("1s", max_attempts=3)

    def handle(self, payload: OrderPlaced) -> Any:
        return self.see("fail")


class FailingToo(Failing): ...


class FailingAtAll(Painted, OutboxHandler):
    retry = Fixed("1s", max_attempts=3)

    def handle(self, payload: Any, metadata: EventMetadata) -> Any:
        return self.see("fail")


class Rescue(Painted, OutboxFallbackHandler[OrderPlaced]):
    def handle(self, payload: OrderPlaced, failure: FailureContext) -> Any:
        return self.see(payload, failure.handler_id, failure.failure_count, str(failure.last_error), failure.key)


class RescueAll(Painted, OutboxFallbackHandler[Any]):
    def handle(self, payload: Any, metadata: EventMetadata, failure: FailureContext) -> Any:
        return self.see(payload, metadata.event_type, failure.handler_id, failure.retries_exhausted)


def test_a_fallback_object_serves_the_handlers_of_its_payload(world: World, colour: Colouring) -> None:
    """TC-402, TC-427, TC-429: each handler three times, then the fallback once for each; one for two handlers."""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        outbox.include(Rescue(seen, colour)).include(Failing(seen, colour)).include(FailingToo(seen, colour))
        await write(outbox, OrderPlaced(1), key="order-1")
        await drain_all(world, outbox)
        assert seen.count(("Failing", "fail")) == seen.count(("FailingToo", "fail")) == 3
        assert [each for each in seen if each[0] == "Rescue"] == [
            ("Rescue", OrderPlaced(1), "Failing", 3, "no", "order-1"),
            ("Rescue", OrderPlaced(1), "FailingToo", 3, "no", "order-1"),
        ]
        assert [status for _, status in rows(world)] == ["DONE", "DONE"]

    world.run(scenario)


def test_a_fallback_for_generic_handlers_serves_no_typed_ones(world: World, colour: Colouring) -> None:
    """TC-417, TC-427."""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        outbox.fallback(RescueAll(seen, colour))
        outbox.include(Failing(seen, colour)).include(FailingAtAll(seen, colour))
        await write(outbox, OrderPlaced(1), "Named")
        await drain_all(world, outbox)
        assert [each for each in seen if each[0] == "RescueAll"] == [
            ("RescueAll", OrderPlaced(1), "OrderPlaced", "FailingAtAll", True),
            ("RescueAll", {}, "Named", "FailingAtAll", True),
        ]
        assert rows(world) == [("Failing", "DEAD"), ("FailingAtAll", "DONE"), ("", "DONE")]

    world.run(scenario)


def test_a_decorated_fallback_may_be_for_generic_handlers_and_a_handlers_own_wins(world: World) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        generic = outbox.handler(FailingAtAll(seen), retry=NoRetry())

        @outbox.handler(any_event, retry=NoRetry())
        def other(event: EventEnvelope) -> None:
            raise Deliberate("no")

        @outbox.fallback(any_event)
        def rescue(event: Any, failure: FailureContext) -> None:
            seen.add(("shared", failure.handler_id, event.event_type))

        @generic.fallback
        def own(payload: Any, failure: FailureContext) -> None:
            seen.add(("own", failure.handler_id, payload))

        await write(outbox, "A")
        await drain_all(world, outbox)
        assert seen == [("FailingAtAll", "fail"), ("own", "FailingAtAll", {}), ("shared", "other", "A")]
        assert {status for _, status in rows(world)} == {"DONE"}

    world.run(scenario)


def test_a_fallback_object_that_fails_leaves_the_event_dead(world: World, colour: Colouring) -> None:
    """TC-428."""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(retry_policy=NoRetry())

        class Helpless(Painted, OutboxFallbackHandler[OrderPlaced]):
            def handle(self, payload: OrderPlaced, failure: FailureContext) -> Any:
                return self.see("fail")

        outbox.include(Helpless(seen, colour))
        outbox.handler(Failing(seen, colour), retry="no_retry")
        await write(outbox, OrderPlaced(1))
        await outbox.drain()
        assert seen == [("Failing", "fail"), ("Helpless", "fail")]
        assert rows(world) == [("", "DEAD")]

    world.run(scenario)


def test_an_object_may_have_a_fallback_by_decorator(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        handler = outbox.handler(Failing(seen, colour), retry=NoRetry())

        @handler.fallback
        def own(payload: OrderPlaced, failure: FailureContext) -> None:
            seen.add(("own", payload))

        outbox.include(Rescue(seen, colour))
        await write(outbox, OrderPlaced(1))
        await outbox.drain()
        assert seen == [("Failing", "fail"), ("own", OrderPlaced(1))]

    world.run(scenario)


# ---------------------------------------------------------------- beside the decorators


def test_objects_functions_and_methods_are_one_mechanism(world: World) -> None:
    """In a set that is included before and after, and an object that has declared methods as well."""

    async def scenario() -> None:
        seen, outbox, own = Collector(), world.outbox(), HandlerSet()

        class Both(Painted, OutboxTypedHandler[OrderPlaced]):
            def handle(self, payload: OrderPlaced) -> Any:
                return self.see(payload)

            @own.handler
            def shipped(self, event: OrderShipped) -> None:
                self.see(event)

        own.handler(Receipt(seen))
        outbox.include(own)
        own.include(Both(seen))

        @own.handler
        def function(event: OrderPlaced) -> None:
            seen.add(("function", event))

        await write(outbox, OrderPlaced(1), OrderShipped(2))
        await outbox.drain()
        assert seen == [
            *(("Receipt", OrderPlaced(1)), ("Both", OrderPlaced(1)), ("function", OrderPlaced(1))),
            ("Both", OrderShipped(2)),
        ]

    world.run(scenario)


def test_a_registered_object_is_called_as_it_is() -> None:
    seen = Collector()
    handler = HandlerSet().handler(Receipt(seen))
    handler(OrderPlaced(1))
    assert seen == [("Receipt", OrderPlaced(1))]
    fallback = Rescue(seen)
    assert HandlerSet().fallback(fallback) is fallback


def test_in_the_body_of_a_class_an_object_is_no_method() -> None:
    own = HandlerSet()

    class Holder:
        receipt = own.handler(Receipt(Collector()))

    assert list(own._roster.handlers) == ["Receipt"]
    assert not own._not_included()


# ---------------------------------------------------------------- bad input


class Generating(OutboxTypedHandler[OrderPlaced]):
    def handle(self, payload: OrderPlaced) -> Iterator[None]:
        yield


class TooMany(OutboxTypedHandler[OrderPlaced]):
    def handle(self, payload: OrderPlaced, metadata: EventMetadata, more: int) -> None: ...


class OtherPayload(OutboxTypedHandler[OrderPlaced]):
    def handle(self, payload: OrderShipped) -> None: ...  # type: ignore[override]


class OtherSecond(OutboxTypedHandler[OrderPlaced]):
    def handle(self, payload: OrderPlaced, metadata: int) -> None: ...


class OfEnvelopes(OutboxTypedHandler[EventEnvelope]):
    def handle(self, payload: EventEnvelope) -> None: ...


class OfDicts(OutboxTypedHandler[dict[str, Any]]):
    def handle(self, payload: dict[str, Any]) -> None: ...


class OfAnything(OutboxTypedHandler[Any]):
    def handle(self, payload: Any) -> None: ...


class OfNothing(OutboxTypedHandler):  # type: ignore[type-arg]
    def handle(self, payload: Any) -> None: ...


class Unresolved(OutboxTypedHandler["Nowhere"]):  # type: ignore[name-defined]
    def handle(self, payload: Any) -> None: ...


class Narrow(OutboxHandler):
    def handle(self, payload: OrderPlaced, metadata: EventMetadata) -> None: ...


class TwoRoles(OutboxTypedHandler[OrderPlaced], OutboxFallbackHandler[OrderPlaced]):
    def handle(self, payload: OrderPlaced, failure: Any) -> None: ...


class Supporting(OutboxTypedHandler[OrderPlaced]):
    def supports(self, event: EventEnvelope) -> bool:
        return True

    def handle(self, payload: OrderPlaced) -> None: ...


class Rated(OutboxTypedHandler[OrderPlaced]):
    rate = "often"

    def handle(self, payload: OrderPlaced) -> None: ...


class Nameless(OutboxFallbackHandler):  # type: ignore[type-arg]
    def handle(self, payload: Any, failure: FailureContext) -> None: ...


class OtherFallback(OutboxFallbackHandler[OrderPlaced]):
    def handle(self, payload: OrderShipped, failure: FailureContext) -> None: ...  # type: ignore[override]


class WithoutFailure(OutboxFallbackHandler[OrderPlaced]):
    def handle(self, payload: OrderPlaced) -> None: ...


@pytest.mark.parametrize(
    ("instance", "said", "fix"),
    [
        (Generating(), "is a generator", "return"),
        (TooMany(), "takes 3 parameters", "EventMetadata"),  # TC-415
        (OtherPayload(), "has the route OrderPlaced and takes", "annotate"),  # TC-415
        (OtherSecond(), "second parameter .* annotated int", "EventMetadata"),  # TC-415
        (OfEnvelopes(), "OfEnvelopes handles .*EventEnvelope.*, which names no event type", "OutboxHandler"),
        (OfDicts(), "names no event type", "OutboxHandler"),
        (OfAnything(), "names no event type", "OutboxHandler"),
        (OfNothing(), "has no annotation", "OrderPlaced"),
        (Unresolved(), "the type argument 'Nowhere' of Unresolved cannot be resolved", "quotation marks"),
        (Narrow(), r"Narrow.handle .* gets every event, and takes", r"OrderPlaced \| object"),  # TC-416
        (TwoRoles(), "TwoRoles is OutboxTypedHandler and OutboxFallbackHandler", "a class for each"),
        (Nameless(), "Nameless says of no payload", "OutboxFallbackHandler"),
        (OtherFallback(), "takes another payload than its class says", "annotate"),  # TC-417
        (WithoutFailure(), "takes 1 parameters", "FailureContext"),  # TC-417
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_an_object_that_cannot_handle_is_refused_and_nothing_is_taken(instance: Any, said: str, fix: str) -> None:
    outbox = Outbox("sqlite://")
    with pytest.raises(InvalidHandler, match=said) as caught:
        outbox.include(instance)
    assert fix.replace("\\", "") in caught.value.fix
    if not isinstance(instance, OutboxFallbackHandler):
        with pytest.raises(InvalidHandler, match=said):
            outbox.handler(instance)
    assert not outbox._roster.handlers
    assert not outbox._roster.fallbacks


@pytest.mark.parametrize("kind", [Receipt, Audit, Rescue])
def test_a_class_in_place_of_an_object_is_refused(kind: Any) -> None:
    """It would pass for a route, and nothing would ever be handled."""
    handlers = HandlerSet()
    for take in (handlers.handler, handlers.fallback, handlers.include):
        with pytest.raises(InvalidHandler, match=f"got the class {kind.__name__}") as caught:
            take(kind)
        assert f"{kind.__name__}(…)" in caught.value.fix


@pytest.mark.parametrize(("instance", "said"), [(Supporting(), "route of its own"), (Rated(), "rate is 'often'")])
def test_an_attribute_that_makes_no_sense_is_refused(instance: Any, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        HandlerSet().handler(instance)


def test_a_fallback_is_no_handler_and_a_handler_no_fallback() -> None:
    handlers: Any = HandlerSet()
    with pytest.raises(InvalidHandler, match="Rescue is a fallback") as caught:
        handlers.handler(Rescue(Collector()))
    assert "outbox.fallback" in caught.value.fix
    with pytest.raises(InvalidHandler):
        handlers.fallback(Receipt(Collector()))


def test_an_object_has_its_route_by_its_class() -> None:
    handlers: Any = HandlerSet()
    for route in ("Named", OrderShipped, any_event):
        with pytest.raises(InvalidHandler, match="whose class says what it handles"):
            handlers.handler(route)(Receipt(Collector()))


def test_ids_and_payloads_of_fallbacks_have_one_owner() -> None:
    """TC-423."""
    handlers, seen = HandlerSet(), Collector()
    receipt = Receipt(seen)
    handlers.include(receipt).include(receipt)
    for again in (lambda: handlers.include(Receipt(seen)), lambda: handlers.handler(receipt)):
        with pytest.raises(DuplicateHandler, match="two handlers are called 'Receipt'"):
            again()
    handlers.include(Rescue(seen)).include(RescueAll(seen))
    for second in (Rescue(seen), RescueAll(seen)):
        with pytest.raises(DuplicateHandler, match="has a fallback already"):
            handlers.include(second)


def test_a_handler_that_is_declared_twice_is_refused() -> None:
    own = HandlerSet()

    class Twice(OutboxTypedHandler[OrderPlaced]):
        @own.handler
        def handle(self, payload: OrderPlaced) -> None: ...

    with pytest.raises(InvalidHandler, match=r"Twice.handle is declared as a handler, and is one by its class"):
        own.include(Twice())


def test_a_class_without_handle_cannot_be_made() -> None:
    class Empty(OutboxTypedHandler[OrderPlaced]): ...

    with pytest.raises(TypeError, match="handle"):
        Empty()  # type: ignore[abstract]


def test_a_payload_that_cannot_be_decoded_is_dead_for_a_generic_object_too(world: World) -> None:
    """D12"""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        outbox.include(Known(seen))
        async with outbox.transaction():
            await outbox.write("OrderReturned", {"order_id": "no number"})
        await outbox.drain()
        assert seen == []
        assert rows(world) == [("", "DEAD")]

    world.run(scenario)
