"""What an outbox carries besides the payload, and the bus: context, versions, formats, subscribers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from aftercommit import (
    EventMetadata,
    FailureContext,
    InvalidHeaders,
    InvalidOption,
    MsgpackSerializer,
    NoRetry,
    NotAwaited,
    NotInTransaction,
    current_context,
    outbox_event,
)
from aftercommit.events.envelope import EventStatus
from tests.conftest import in_transactions
from tests.handlers.kit import Colouring, Deliberate, OrderPlaced, OrderShipped, declare, write
from tests.support import Collector, World


@pytest.fixture
def world(every_world: World) -> World:
    """What is said here holds on every store."""
    return every_world


@outbox_event(type="invoice.sent", key="number", context={"customer": "customer"}, version=2)
@dataclass
class InvoiceSent:
    number: int
    customer: str


# ---------------------------------------------------------------- context


def test_context_is_captured_and_restored_around_handler_and_fallback(world: World, colour: Colouring) -> None:
    """D9: providers, then what the caller says; each event has its own, in both runtimes."""

    async def scenario() -> None:
        seen, request = Collector(), {"user": "ada", "request": "1"}
        outbox = world.outbox(context_providers=[lambda: request], retry_policy=NoRetry())

        def fail(event: Any) -> None:
            seen.add(dict(current_context()))
            raise Deliberate

        def failed(event: Any, failure: FailureContext) -> None:
            seen.add((dict(current_context()), dict(failure.context)))

        declare(outbox, colour, fail).fallback(colour(failed))
        declare(outbox, colour, lambda event: seen.add(dict(current_context())), "B", id="b")
        async with outbox.transaction():
            await outbox.write("A", {}, context={"user": "bob"})
            request.clear()
            await outbox.write("B", {})
        await outbox.drain()
        context = {"user": "bob", "request": "1"}
        assert seen == [context, (context, context), {}]
        assert current_context() == {}

    world.run(scenario)


def test_an_event_that_is_delivered_inside_of_a_handler_has_its_own_context(world: World) -> None:
    async def scenario() -> None:
        seen = Collector()
        outer, inner = world.outbox(), world.outbox(table="inner_event")

        async def handler(event: Any) -> None:
            await write(inner, "B")
            await inner.drain()
            seen.add(dict(current_context()))

        inner.handler("B", id="inner")(lambda event: seen.add(dict(current_context())))
        outer.handler("A", id="outer")(handler)
        async with outer.transaction():
            await outer.write("A", {}, context={"user": "ada"})
        await outer.drain()
        assert seen == [{}, {"user": "ada"}]

    world.run(scenario)


def test_headers_of_the_reserved_kind_are_refused(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        async with outbox.transaction():
            with pytest.raises(InvalidHeaders, match="reserved"):
                await outbox.write("A", {}, headers={"ac-context-user": "eve"})

    world.run(scenario)


# ---------------------------------------------------------------- payloads


def test_old_versions_are_lifted_before_they_are_decoded(world: World) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()

        @outbox.upcast(InvoiceSent, from_version=1)
        def with_customer(data: dict[str, Any]) -> dict[str, Any]:
            return {**data, "customer": "unknown"}

        @outbox.handler
        def sent(event: InvoiceSent, meta: EventMetadata) -> None:
            seen.add((event, meta.key, dict(meta.context)))

        await write(outbox, InvoiceSent(7, "ada"), InvoiceSent(8, "bob"))
        world.change(
            "UPDATE outbox_event SET payload_version = 1, payload = ?, headers = NULL WHERE event_key = '7'",
            '{"number": 6}',
        )
        await outbox.drain()
        assert seen == [
            (InvoiceSent(6, "unknown"), "7", {}),
            (InvoiceSent(8, "bob"), "8", {"customer": "bob"}),
        ]

    world.run(scenario)


def test_a_newer_version_is_left_to_those_who_know_it(world: World) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(unroutable_grace="10m")
        outbox.handler(InvoiceSent, id="h")(seen.add)
        await write(outbox, InvoiceSent(7, "ada"))
        world.change("UPDATE outbox_event SET payload_version = 3")
        await outbox.drain()
        row = world.rows()[0]
        assert (row["status"], row["attempts"], seen) == (EventStatus.RETRY, 0, [])
        assert (await outbox.stats()).unroutable == {"invoice.sent": 1}

    world.run(scenario)


def test_an_outbox_has_the_format_that_it_is_given(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(serializer=MsgpackSerializer())
        declare(outbox, colour, seen.add, OrderPlaced)
        await write(outbox, OrderPlaced(7))
        assert (world.rows()[0]["payload"], world.rows()[0]["content_type"]) == (None, "application/msgpack")
        await outbox.drain()
        assert seen == [OrderPlaced(7)]

    world.run(scenario)


@pytest.mark.parametrize(
    "options", [{"context_providers": [7]}, {"context_providers": 7}, {"serializer": 7}, {"publish_enabled": 1}]
)
def test_senseless_options_are_refused_when_the_outbox_is_built(world: World, options: dict[str, Any]) -> None:
    async def scenario() -> None:
        with pytest.raises((InvalidOption, TypeError)):
            world.outbox(**options)

    world.run(scenario)
    assert not world.path.exists()


# ---------------------------------------------------------------- bus


def test_published_objects_go_to_the_outbox_and_to_subscribers(world: World) -> None:
    """D11, TC-430, TC-431"""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()

        @outbox.subscribe(InvoiceSent)
        def subscriber(event: InvoiceSent) -> None:
            seen.add(("subscriber", event))

        outbox.subscribe(OrderShipped, lambda event: seen.add(("unmarked", event)))
        outbox.handler(InvoiceSent, id="h")(lambda event: seen.add(("handler", event)))
        async with outbox.transaction():
            event_id = await outbox.publish(InvoiceSent(7, "ada"))
        assert event_id == world.rows()[0]["event_id"]
        assert await outbox.publish(OrderShipped(1)) is None
        await outbox.drain()
        assert seen == [
            ("subscriber", InvoiceSent(7, "ada")),
            ("unmarked", OrderShipped(1)),
            ("handler", InvoiceSent(7, "ada")),
        ]

    world.run(scenario)


@in_transactions
def test_publishing_a_marked_object_needs_a_transaction(world: World) -> None:
    """TC-432: nothing is passed on either."""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        outbox.subscribe(InvoiceSent, seen.add)
        with pytest.raises(NotInTransaction):
            await outbox.publish(InvoiceSent(7, "ada"))
        assert seen == []

    world.run(scenario)


def test_what_a_subscriber_raises_rolls_the_publisher_back(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()

        def refuse(event: Any) -> None:
            raise Deliberate

        outbox.subscribe(InvoiceSent, refuse)
        with pytest.raises(Deliberate):
            async with outbox.transaction():
                await outbox.publish(InvoiceSent(7, "ada"))
        assert world.rows() == []

    world.run(scenario)


@pytest.mark.parametrize(
    ("options", "rows", "heard"),
    [({}, 1, 1), ({"publish_after_save": False}, 1, 0), ({"publish_enabled": False}, 0, 1)],
)
def test_the_bus_may_be_switched(world: World, options: Mapping[str, bool], rows: int, heard: int) -> None:
    """TC-433"""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(**options)
        outbox.subscribe(InvoiceSent, seen.add)
        async with outbox.transaction():
            await outbox.publish(InvoiceSent(7, "ada"))
        assert (len(world.rows("SELECT 1 FROM outbox_event")), len(seen)) == (rows, heard)

    world.run(scenario)


def test_a_publish_that_is_not_awaited_rolls_back(world: World) -> None:
    async def scenario() -> None:
        if not world.is_async:
            return
        outbox = world.outbox()
        with pytest.raises(NotAwaited, match="InvoiceSent"):
            async with outbox.transaction():
                outbox.publish(InvoiceSent(7, "ada"))

    world.run(scenario)
