"""Which handler gets which event, and as what."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from aftercommit import DuplicateHandler, EventEnvelope, EventMetadata, HandlerSet, any_event
from aftercommit.events.envelope import EventStatus
from tests.conftest import in_either_runtime
from tests.handlers.kit import (
    Colouring,
    Letter,
    OrderLost,
    OrderPaid,
    OrderPlaced,
    OrderReturned,
    OrderShipped,
    Parcel,
    declare,
    due_now,
    rows,
    write,
)
from tests.support import Collector, World


@pytest.fixture
def world(every_world: World) -> World:
    """What is said here holds on every store."""
    return every_world


class Kind(Enum):
    CREATED = 1


# ---------------------------------------------------------------- by the payload's type


@pytest.mark.parametrize(
    "event", [OrderPlaced(7), OrderShipped(7), OrderPaid(order_id=7), OrderReturned(7)], ids=lambda e: type(e).__name__
)
def test_the_annotation_is_the_route_and_the_payload_comes_as_it_was(
    world: World, colour: Colouring, event: Any
) -> None:
    """D1: dataclass, Struct, pydantic model, attrs class; hot and cold."""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(poll_interval="1h")
        outbox.handler(type(event), id="h")(colour(seen.add))
        await write(outbox, event)
        async with outbox:
            await seen.reach(1)
            await write(outbox, event)
            await seen.reach(2)
        assert seen == [event, event]
        assert rows(world) == [("", "DONE"), ("", "DONE")]

    world.run(scenario)


def test_a_typed_dict_is_a_route_too(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        outbox.handler(OrderLost, id="h")(colour(seen.add))
        async with outbox.transaction():
            await outbox.write("OrderLost", {"order_id": 7})
        await outbox.drain()
        assert seen == [{"order_id": 7}]

    world.run(scenario)


def test_a_union_is_several_routes(world: World) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()

        @outbox.handler
        def either(event: OrderPlaced | OrderShipped) -> None:
            seen.add(event)

        outbox.register("OrderReturned", lambda event: None)
        await write(outbox, OrderPlaced(1), OrderShipped(2), OrderReturned(3))
        await outbox.drain()
        assert seen == [OrderPlaced(1), OrderShipped(2)]

    world.run(scenario)


def test_a_base_class_takes_its_subclasses(world: World) -> None:
    """D3: also those that are defined after the handler."""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()

        @outbox.handler
        def any_parcel(event: Parcel) -> None:
            seen.add(event)

        @dataclass
        class Crate(Parcel):
            nails: int

        await write(outbox, Parcel(1), Letter(2, "blue"), Crate(3, 4))
        await outbox.drain()
        assert seen == [Parcel(1), Letter(2, "blue"), Crate(3, 4)]

    world.run(scenario)


def test_metadata_comes_second_when_it_is_wanted(world: World, colour: Colouring) -> None:
    """TC-380"""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()

        def handler(event: OrderPlaced, meta: EventMetadata) -> None:
            seen.add((event, meta))

        # painted functions take what comes, so the metadata is asked for by the one that is not
        outbox.handler(OrderPlaced, id="with-meta")(handler)
        async with outbox.transaction():
            await outbox.write(
                OrderPlaced(7),
                key="k",
                aggregate_type="Order",
                aggregate_id=7,
                tenant_id="t",
                headers={"plain": "1"},
                context={"user": "ada"},
            )
        world.change("UPDATE outbox_event SET attempts = 2, status = 2")
        await outbox.drain()
        ((event, meta),) = seen
        row = world.rows()[0]
        assert event == OrderPlaced(7)
        assert (meta.event_id, meta.event_type, meta.handler_id) == (row["event_id"], "OrderPlaced", "with-meta")
        assert (meta.aggregate_type, meta.aggregate_id, meta.tenant_id, meta.key) == ("Order", "7", "t", "k")
        assert (dict(meta.headers), dict(meta.context)) == ({"plain": "1"}, {"user": "ada"})
        assert (meta.attempt, meta.is_retry) == (3, True)
        assert int(meta.created_at.timestamp() * 1_000_000) // 1000 == row["created_at"] // 1000

    world.run(scenario)


# ---------------------------------------------------------------- by name


def test_a_named_route_without_annotation_gets_the_envelope(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        outbox.handler(Kind.CREATED, id="h")(colour(seen.add))
        await write(outbox, "CREATED")
        await outbox.drain()
        (event,) = seen
        assert isinstance(event, EventEnvelope)
        assert event.payload_json == "{}"

    world.run(scenario)


def test_a_named_route_decodes_what_its_annotation_says(world: World) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()

        @outbox.handler("legacy.order")
        def legacy(event: dict[str, Any]) -> None:
            seen.add(event)

        @outbox.handler("legacy.parcel")
        def parcel(event: Parcel, meta: EventMetadata) -> None:
            seen.add((event, meta.handler_id))

        async with outbox.transaction():
            await outbox.write("legacy.order", {"a": 1})
            await outbox.write("legacy.parcel", {"weight": 2})
        await outbox.drain()
        assert seen == [{"a": 1}, (Parcel(2), "parcel")]

    world.run(scenario)


def test_an_aggregate_type_narrows_a_route(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        outbox.handler("A", aggregate_type="Order", id="orders")(colour(lambda event: seen.add("orders")))
        outbox.handler("A", id="all")(colour(lambda event: seen.add("all")))
        await write(outbox, "A", aggregate_type="Order")
        await write(outbox, "A", aggregate_type="User")
        await outbox.drain()
        assert seen == ["orders", "all", "all"]

    world.run(scenario)


# ---------------------------------------------------------------- any event


def test_a_generic_handler_gets_every_event_that_it_supports(world: World, colour: Colouring) -> None:
    """TC-322, TC-328"""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        outbox.handler(any_event, id="all")(colour(lambda event: seen.add(("all", event.event_type))))
        outbox.handler(any_event, id="some", supports=lambda event: event.event_type == "B")(
            colour(lambda event: seen.add(("some", event.event_type)))
        )
        await write(outbox, "A", "B")
        assert [name for name, _ in rows(world)] == ["", "all", "some"]
        await outbox.drain()
        assert seen == [("all", "A"), ("all", "B"), ("some", "B")]

    world.run(scenario)


def test_a_generic_handler_may_take_plain_data(world: World) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()

        @outbox.handler(any_event)
        def plain(event: dict[str, Any], meta: EventMetadata) -> None:
            seen.add((meta.event_type, event))

        await write(outbox, OrderPlaced(7))
        await outbox.drain()
        assert seen == [("OrderPlaced", {"order_id": 7})]

    world.run(scenario)


def test_a_predicate_that_fails_leaves_the_choice_to_the_delivery(world: World, caplog: Any) -> None:
    async def scenario() -> None:
        seen, outbox, broken = Collector(), world.outbox(), [LookupError("the list is away")]

        def supports(event: EventEnvelope) -> bool:
            if broken:
                raise broken[0]
            return True

        outbox.handler(any_event, id="asks", supports=supports)(lambda event: seen.add("asks"))
        outbox.handler("A", id="typed")(lambda event: seen.add("typed"))
        await write(outbox, "A")
        assert rows(world) == [("", "NEW")]
        assert "the list is away" in caplog.text
        await outbox.drain()
        row = world.rows()[0]
        assert (row["status"], row["attempts"], seen) == (EventStatus.RETRY, 1, [])
        broken.clear()
        due_now(world)
        await outbox.drain()
        assert seen == ["typed", "asks"]

    world.run(scenario)


# ---------------------------------------------------------------- bodies that really run


class Body:
    """The same body in every shape that a callable can have."""

    def __init__(self, seen: Collector) -> None:
        self.seen = seen

    def sync(self, event: OrderPlaced) -> None:
        self.seen.add(event)

    async def async_(self, event: OrderPlaced) -> None:
        self.seen.add(event)

    def __call__(self, event: OrderPlaced) -> None:
        self.seen.add(event)


class AsyncBody(Body):
    async def __call__(self, event: OrderPlaced) -> None:  # type: ignore[override]
        self.seen.add(event)


def with_prefix(seen: Collector, event: OrderPlaced) -> None:
    seen.add(event)


async def with_prefix_async(seen: Collector, event: OrderPlaced) -> None:
    seen.add(event)


def shape(name: str, seen: Collector) -> Any:
    body = Body(seen)
    return {
        "bound": lambda: body.sync,
        "async bound": lambda: body.async_,
        "object": lambda: body,
        "async object": lambda: AsyncBody(seen),
        "partial": lambda: functools.partial(with_prefix, seen),
        "async partial": lambda: functools.partial(with_prefix_async, seen),
        "lambda": lambda: lambda event: [seen.add(event)],
        "lambda that returns a coroutine": lambda: lambda event, *rest: body.async_(event),
        "lambda that returns a coroutine of a coroutine": lambda: lambda event: twice(body.async_, event),
        "decorated": lambda: functools.wraps(body.async_)(lambda event: twice(body.async_, event)),
    }[name]()


async def twice(function: Any, event: Any) -> Any:
    return function(event)


@in_either_runtime
@pytest.mark.parametrize(
    "name",
    [
        *("bound", "async bound", "object", "async object", "partial", "async partial", "lambda", "decorated"),
        *("lambda that returns a coroutine", "lambda that returns a coroutine of a coroutine"),
    ],
)
def test_before_an_event_is_done_the_body_has_run(world: World, name: str) -> None:
    """F59"""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        outbox.handler(OrderPlaced, id="h")(shape(name, seen))
        await write(outbox, OrderPlaced(7))
        await outbox.drain()
        assert (seen, world.statuses()) == ([OrderPlaced(7)], [EventStatus.DONE])

    world.run(scenario)


# ---------------------------------------------------------------- sets


def test_a_set_may_be_included_before_and_after_it_is_filled(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        seen, early, late = Collector(), HandlerSet(), HandlerSet()
        outbox, other = world.outbox(), world.outbox()
        early.handler("A", id="early")(colour(lambda event: seen.add("early")))
        outbox.include(early)
        early.include(late)
        other.include(late)
        late.handler("A", id="late")(colour(lambda event: seen.add("late")))
        outbox.include(early)  # again is fine
        await write(outbox, "A")
        assert [name for name, _ in rows(world)] == ["early", "late"]
        await outbox.drain()
        await write(other, "A")
        await other.drain()
        assert seen == ["early", "late", "late"]

    world.run(scenario)


def test_a_handler_that_is_declared_later_takes_part_from_then_on(world: World) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(poll_interval="1h")
        outbox.handler("A", id="one")(lambda event: seen.add("one"))
        async with outbox:
            await write(outbox, "A")
            await seen.reach(1)
            outbox.handler("A", id="two")(lambda event: seen.add("two"))
            await write(outbox, "A")
            await seen.reach(3)
        assert sorted(seen) == ["one", "one", "two"]

    world.run(scenario)


def test_sets_may_include_each_other(world: World) -> None:
    async def scenario() -> None:
        seen, one, two, outbox = Collector(), HandlerSet(), HandlerSet(), world.outbox()
        one.include(two)
        two.include(one).include(two)
        outbox.include(one)
        one.handler("A", id="one")(lambda event: seen.add("one"))
        two.handler("A", id="two")(lambda event: seen.add("two"))
        await write(outbox, "A")
        await outbox.drain()
        assert seen == ["one", "two"]

    world.run(scenario)


def test_a_set_that_does_not_fit_everywhere_is_refused_everywhere(world: World) -> None:
    async def scenario() -> None:
        shared, outbox = HandlerSet(), world.outbox()
        outbox.handler("A", id="taken")(print)
        outbox.include(shared)
        with pytest.raises(DuplicateHandler):
            shared.handler("A", id="taken")(print)
        assert not shared._roster.handlers
        other = HandlerSet()
        other.handler("A", id="fine")(print)
        other.handler("A", id="taken")(print)
        with pytest.raises(DuplicateHandler):
            outbox.include(other)
        assert list(outbox._roster.handlers if world.is_async else outbox.plain._roster.handlers) == ["taken"]

    world.run(scenario)


def test_a_registry_may_change_its_mind(world: World) -> None:
    """register() and its kin go on beside handlers, and are asked for every event."""

    async def scenario() -> None:
        seen = Collector()

        class Moody:
            listener: Any = None

            def listener_for(self, aggregate_type: str, event_type: str) -> Any:
                return self.listener

        registry = Moody()
        outbox = world.outbox(listener_registry=registry)
        outbox.handler("A", id="handler")(lambda event: seen.add("handler"))
        for name in ("first", "second"):
            registry.listener = [lambda event, name=name: seen.add(name)]
            await write(outbox, "A")
            await outbox.drain()
        registry.listener = []
        await write(outbox, "A")
        await outbox.drain()
        assert seen == ["first", "handler", "second", "handler", "handler"]

    world.run(scenario)


def test_a_handler_that_is_declared_while_it_runs_finds_what_waits(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(poll_interval="1h")
        await write(outbox, "A")
        async with outbox:
            assert await outbox.poll() == 0
            declare(outbox, colour, seen.add)
            await seen.reach(1)

    world.run(scenario)
