"""The context of an event is current in its handlers and fallbacks, and nowhere else, in both runtimes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from aftercommit import EventInterceptor, EventMetadata, FailureContext, Fixed, current_context
from tests.support import PATIENCE, Collector, World

Colouring = Callable[[Callable[..., Any]], Callable[..., Any]]

request_id: ContextVar[str] = ContextVar("request_id", default="none")


def test_what_was_current_at_the_write_is_current_in_the_handler(world: World, colour: Colouring) -> None:
    """From memory and from the table: captured when written, not when delivered."""
    seen = Collector()

    async def scenario() -> None:
        outbox = world.outbox(context_providers=[lambda: {"request": request_id.get()}])
        outbox.register("T", colour(lambda event: seen.add((event.payload, dict(current_context())))))
        before = request_id.set("r-1")
        async with outbox.transaction():
            await outbox.write("T", "1", context={"tenant": "acme"}, headers={"h": "v"})
        request_id.set("r-2")
        await outbox.drain()
        await outbox.start()
        async with outbox.transaction():
            await outbox.write("T", "2")
        request_id.reset(before)
        await seen.reach(2)
        assert seen == [("1", {"request": "r-1", "tenant": "acme"}), ("2", {"request": "r-2"})]
        assert current_context() == {}

    world.run(scenario)


def test_metadata_shows_headers_and_context_apart(world: World) -> None:
    seen: list[Any] = []

    async def scenario() -> None:
        outbox = world.outbox()

        @outbox.handler("T")
        def handle(event: object, meta: EventMetadata) -> None:
            seen.append((meta.headers, meta.context))

        async with outbox.transaction():
            await outbox.write("T", {}, headers={"h": "v"}, context={"a": "1", "traceparent": "00-1-2-01"})
        await outbox.drain()
        assert seen == [({"h": "v", "traceparent": "00-1-2-01"}, {"a": "1", "traceparent": "00-1-2-01"})]

    world.run(scenario)


def test_the_fallback_has_the_same_context(world: World, colour: Colouring) -> None:
    """TC-429."""
    seen: list[Any] = []

    async def scenario() -> None:
        outbox = world.outbox(retry_policy=Fixed("1s", max_attempts=1))

        def fail(event: Any) -> None:
            seen.append(dict(current_context()))
            raise ValueError("always")

        handler = outbox.handler("T", id="h")(colour(fail))

        def recover(event: Any, failure: FailureContext) -> None:
            seen.append((dict(current_context()), dict(failure.context)))

        handler.fallback(colour(recover))
        async with outbox.transaction():
            await outbox.write("T", {}, context={"a": "1"})
        await outbox.drain()
        assert seen == [{"a": "1"}, ({"a": "1"}, {"a": "1"})]
        assert world.statuses() == [1]

    world.run(scenario)


def test_events_that_are_handled_at_once_do_not_see_each_others_context(world: World, colour: Colouring) -> None:
    seen = Collector()
    together = threading.Barrier(3)

    async def scenario() -> None:
        outbox = world.outbox(worker_count=3)

        async def handle_async(event: Any) -> None:
            before = current_context()["n"]
            await asyncio.to_thread(together.wait, PATIENCE)
            seen.add((event.payload, before, current_context()["n"]))

        def handle(event: Any) -> None:
            before = current_context()["n"]
            together.wait(PATIENCE)
            seen.add((event.payload, before, current_context()["n"]))

        outbox.register("T", handle if colour(handle) is handle else handle_async)
        await outbox.start()
        async with outbox.transaction():
            for number in "123":
                await outbox.write("T", number, context={"n": number})
        await seen.reach(3)
        assert sorted(seen) == [(number, number, number) for number in "123"]

    world.run(scenario)


def test_what_one_handler_sets_the_next_event_does_not_see(world: World, colour: Colouring) -> None:
    seen: list[str] = []

    async def scenario() -> None:
        outbox = world.outbox(worker_count=1)

        def handle(event: Any) -> None:
            seen.append(f"{current_context().get('n')} {request_id.get()}")
            request_id.set(f"left by {event.payload}")

        outbox.register("T", colour(handle))
        async with outbox.transaction():
            await outbox.write("T", "1", context={"n": "1"})
            await outbox.write("T", "2")
        await outbox.drain()
        assert seen == ["1 none", "None none"]

    world.run(scenario)


def test_interceptors_have_the_context_too(world: World) -> None:
    seen: list[Any] = []

    class Looking(EventInterceptor):
        def before_dispatch(self, event: Any) -> None:
            seen.append(("before", dict(current_context())))

        def after_dispatch(self, event: Any, error: BaseException | None) -> None:
            seen.append(("after", dict(current_context())))

    async def scenario() -> None:
        outbox = world.outbox(interceptors=[Looking()])
        outbox.register("T", lambda event: None)
        async with outbox.transaction():
            await outbox.write("T", {}, context={"a": "1"})
        await outbox.drain()
        assert seen == [("before", {"a": "1"}), ("after", {"a": "1"})]

    world.run(scenario)


@pytest.mark.parametrize("carries_on", [True, False])
def test_events_written_by_a_handler_carry_its_context_on_if_asked_to(world: World, carries_on: bool) -> None:
    seen: list[Any] = []

    async def scenario() -> None:
        outbox = world.outbox(context_providers=[current_context] if carries_on else [])

        async def first(event: Any) -> None:
            async with outbox.transaction():
                await outbox.write("Second", {})

        def first_plain(event: Any) -> None:
            with outbox.plain.transaction():
                outbox.plain.write("Second", {})

        outbox.register("First", first if world.is_async else first_plain)
        outbox.register("Second", lambda event: seen.append(dict(current_context())))
        async with outbox.transaction():
            await outbox.write("First", {}, context={"traceparent": "00-1-2-01", "tenant": "acme"})
        await outbox.drain()
        assert seen == [{"traceparent": "00-1-2-01", "tenant": "acme"} if carries_on else {}]

    world.run(scenario)


def test_a_provider_that_fails_keeps_no_event_from_being_written(world: World, caplog: Any) -> None:
    async def scenario() -> None:
        outbox = world.outbox(context_providers=[lambda: 1 // 0, lambda: {"a": "1"}])
        async with outbox.transaction():
            await outbox.write("T", {})
        assert [row["headers"] for row in world.rows()] == ['{"ac-context-a":"1"}']
        assert "ZeroDivisionError" in caplog.text

    world.run(scenario)
