"""The chain: handler, retry, fallback, permanent failure. It ends in one outcome."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

from aftercommit import (
    DeadLetter,
    Discard,
    EventMetadata,
    Exponential,
    FailureContext,
    Fixed,
    NoRetry,
    RetryAfter,
    RetryAfterError,
    StoredError,
    any_event,
)
from aftercommit.events.envelope import EventStatus
from tests.handlers.kit import (
    Colouring,
    Deliberate,
    OrderPlaced,
    OrderShipped,
    declare,
    drain_all,
    due_now,
    rows,
    write,
)
from tests.support import Collector, World


@pytest.fixture
def world(every_world: World) -> World:
    """What is said here holds on every store."""
    return every_world


def raising(error: BaseException, seen: Collector | None = None) -> Any:
    def handler(event: Any) -> None:
        if seen is not None:
            seen.add("handler")
        raise error

    return handler


def last_error(world: World) -> str:
    return str(world.rows()[0]["last_error"])


# ---------------------------------------------------------------- retry


def test_the_handlers_own_policy_goes_first_then_the_outboxs_then_the_default(world: World, colour: Colouring) -> None:
    """D8"""

    async def scenario() -> None:
        outbox = world.outbox(retry_policy=Fixed("30s", max_attempts=4))
        outbox.handler("A", id="own", retry=Fixed("10s"))(colour(raising(Deliberate())))
        outbox.handler("A", id="outbox")(colour(raising(Deliberate())))
        await write(outbox, "A")
        before = world.rows()[0]["created_at"]
        await outbox.drain()
        waits = [round((row["available_at"] - before) / 1e6) for row in world.rows()]
        assert waits == [10, 30]

    world.run(scenario)


def test_max_retries_of_two_are_three_attempts_and_one_fallback(world: World, colour: Colouring) -> None:
    """TC-402, TC-427"""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(retry_policy=Fixed("1s", max_attempts=3))
        handler = declare(outbox, colour, raising(Deliberate("no"), seen))
        handler.fallback(colour(lambda event, failure: seen.add(failure)))
        async with outbox.transaction():
            event_id = await outbox.write("A", {}, key="k", context={"user": "ada"})
        await drain_all(world, outbox)
        assert seen[:3] == ["handler"] * 3
        (failure,) = seen[3:]
        row = world.rows()[0]
        assert (failure.event_id, failure.handler_id, failure.key) == (event_id, "h", "k")
        assert (failure.failure_count, failure.retries_exhausted, dict(failure.context)) == (3, True, {"user": "ada"})
        assert isinstance(failure.last_error, Deliberate)
        assert int(failure.created_at.timestamp() * 1000) == row["created_at"] // 1000
        assert (row["status"], row["attempts"]) == (EventStatus.DONE, 2)

    world.run(scenario)


def test_each_attempt_waits_as_its_policy_says(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        outbox.handler("A", id="h", retry=Exponential("10s", "60s", max_attempts=5))(raising(Deliberate()))
        await write(outbox, "A")
        waits = []
        while world.statuses() != [EventStatus.DEAD]:
            due_now(world)
            now = world.now()
            await outbox.drain()
            waits.append(round((world.rows()[0]["available_at"] - now) / 1_000_000))
        assert waits[:-1] == [10, 20, 40, 60]

    world.run(scenario)


# ---------------------------------------------------------------- what a handler may say


def test_a_discarded_event_is_done_and_the_reason_is_logged(
    world: World, colour: Colouring, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        declare(outbox, colour, raising(Discard("seen before")))
        await write(outbox, "A")
        with caplog.at_level(logging.INFO):
            await outbox.drain()
        assert world.statuses() == [EventStatus.DONE]
        assert [record.levelname for record in caplog.records if "seen before" in record.getMessage()] == ["INFO"]
        assert "WARNING" not in {record.levelname for record in caplog.records}

    world.run(scenario)


def test_a_dead_letter_is_dead_at_once_and_passes_by_the_fallback(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        handler = declare(outbox, colour, raising(DeadLetter("needs a human")))
        handler.fallback(colour(lambda event, failure: seen.add(failure)))
        await write(outbox, "A")
        await outbox.drain()
        row = world.rows()[0]
        assert (row["status"], row["attempts"], seen) == (EventStatus.DEAD, 1, [])
        assert "needs a human" in row["last_error"]

    world.run(scenario)


def test_later_is_not_counted_and_a_later_error_is(world: World, colour: Colouring) -> None:
    """C8"""

    async def scenario() -> None:
        outbox = world.outbox()
        outbox.handler("A", id="value")(colour(lambda event: RetryAfter("30s")))
        outbox.handler("A", id="error")(colour(raising(RetryAfterError("30s"))))
        await write(outbox, "A")
        await outbox.drain()
        assert [(row["status"], row["attempts"]) for row in world.rows()] == [(EventStatus.RETRY, 0), (2, 1)]

    world.run(scenario)


# ---------------------------------------------------------------- fallback


def test_an_error_that_is_not_worth_a_retry_goes_to_the_fallback_at_once(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(retry_policy=Fixed("1s", give_up_on=Deliberate))
        handler = declare(outbox, colour, raising(Deliberate("no")))
        handler.fallback(colour(lambda event, failure: seen.add(failure)))
        await write(outbox, "A")
        await outbox.drain()
        (failure,) = seen
        assert (failure.failure_count, failure.retries_exhausted) == (1, False)
        assert world.statuses() == [EventStatus.DONE]

    world.run(scenario)


def test_a_fallback_that_fails_ends_the_event_with_both_errors(world: World, colour: Colouring) -> None:
    """D5, TC-378, TC-428: once, and never again."""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(retry_policy=NoRetry())
        handler = declare(outbox, colour, raising(Deliberate("the " + "long " * 2000 + "story")))

        def failed(event: Any, failure: FailureContext) -> None:
            seen.add(failure)
            raise LookupError("the fallback's own")

        handler.fallback(colour(failed))
        await write(outbox, "A")
        await drain_all(world, outbox)
        assert rows(world) == [("", "DEAD")]
        assert last_error(world).startswith("Deliberate: the long")
        assert last_error(world).endswith("the fallback failed too: LookupError: the fallback's own")
        assert (len(seen), world.rows()[0]["attempts"]) == (1, 1)

    world.run(scenario)


def test_a_fallback_gets_what_its_handler_gets(world: World) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(retry_policy=NoRetry())

        @outbox.handler
        def typed(event: OrderPlaced) -> None:
            raise Deliberate

        @typed.fallback
        def typed_failed(event: OrderPlaced, meta: EventMetadata, failure: FailureContext) -> None:
            seen.add((event, meta.handler_id, failure.handler_id))

        @outbox.handler("Named")
        def named(event: Any) -> None:
            raise Deliberate

        @named.fallback
        async def named_failed(event: Any, failure: FailureContext) -> None:
            seen.add(event.event_type)

        await write(outbox, OrderPlaced(7), "Named")
        await outbox.drain()
        assert seen == [(OrderPlaced(7), "typed", "typed"), "Named"]

    world.run(scenario)


def test_a_fallback_for_a_type_serves_all_its_typed_handlers_that_have_none(world: World) -> None:
    """004: matched by the payload's type; not for generic and named handlers. TC-417, TC-418"""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(retry_policy=NoRetry())

        @outbox.fallback
        def placed_failed(event: OrderPlaced, failure: FailureContext) -> None:
            seen.add((event, failure.handler_id))

        @outbox.handler
        def one(event: OrderPlaced) -> None:
            raise Deliberate

        @outbox.handler
        def either(event: OrderPlaced | OrderShipped) -> None:
            raise Deliberate

        @outbox.handler
        def own(event: OrderPlaced) -> None:
            raise Deliberate

        @own.fallback
        def own_failed(event: OrderPlaced, failure: FailureContext) -> None:
            seen.add("own")

        outbox.handler(any_event, id="generic", supports=lambda event: event.event_type == "OrderPlaced")(
            raising(Deliberate())
        )
        await write(outbox, OrderPlaced(1), OrderShipped(2))
        await outbox.drain()
        assert seen == [(OrderPlaced(1), "one"), (OrderPlaced(1), "either"), "own"]
        assert rows(world) == [
            *(("one", "DONE"), ("either", "DONE"), ("own", "DONE"), ("generic", "DEAD")),
            ("", "DEAD"),
        ]

    world.run(scenario)


def test_an_event_that_ends_its_processes_goes_to_the_fallback_once(world: World, colour: Colouring) -> None:
    """Promise 4a: the handler is not called again; what is left of its errors is text."""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(max_abandoned=3)
        declare(outbox, colour, raising(AssertionError("called again"))).fallback(
            colour(lambda event, failure: seen.add(failure))
        )
        for abandoned in (3, 4):
            await write(outbox, "A")
            world.change("UPDATE outbox_event SET abandoned = ? WHERE abandoned = 0", abandoned)
        await write(outbox, "A", deliver_after="10d")
        await outbox.drain()
        (failure,) = seen
        assert isinstance(failure.last_error, StoredError)
        assert "worker lost: 3 processes" in str(failure.last_error)
        assert failure.retries_exhausted
        # The second one has ended a process in its fallback, too.
        assert world.statuses() == [EventStatus.DONE, EventStatus.DEAD, EventStatus.NEW]

    world.run(scenario)


def test_what_cannot_be_decoded_is_dead_without_retries_and_without_fallback(world: World, colour: Colouring) -> None:
    """D12"""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()

        @outbox.handler
        def typed(event: OrderPlaced) -> None:
            seen.add(event)

        typed.fallback(lambda event, failure: seen.add(failure))
        async with outbox.transaction():
            await outbox.write("OrderPlaced", {"order_id": "seven"})
        await outbox.drain()
        row = world.rows()[0]
        assert (row["status"], row["attempts"], seen) == (EventStatus.DEAD, 0, [])
        assert "is no OrderPlaced" in row["last_error"]
        assert "order_id" in row["last_error"]

    world.run(scenario)


def test_interceptors_are_around_each_handler_and_hear_its_error(world: World) -> None:
    from aftercommit import EventInterceptor

    async def scenario() -> None:
        seen = Collector()

        class Watching(EventInterceptor):
            def before_dispatch(self, event: Any) -> None:
                seen.add("before")

            def after_dispatch(self, event: Any, error: BaseException | None) -> None:
                seen.add(type(error))

        outbox, writer = world.outbox(interceptors=[Watching()]), world.outbox(wiring="writer_only")
        declare(outbox, lambda function: function, raising(Deliberate()), retry=NoRetry())
        outbox.handler("A", id="good")(lambda event: None)
        await write(writer, "A")
        await outbox.drain()
        assert seen == ["before", Deliberate, "before", type(None)]

    world.run(scenario)


def test_the_longest_wait_of_a_policy_is_kept(world: World) -> None:
    async def scenario() -> None:
        class Endless:
            def delay(self, attempts: int) -> timedelta:
                return timedelta(days=99_999)

            def should_retry(self, error: BaseException) -> bool:
                return True

        outbox = world.outbox()
        declare(outbox, lambda function: function, raising(Deliberate()), retry=Endless())
        await write(outbox, "A")
        await outbox.drain()
        row = world.rows()[0]
        assert (row["available_at"] - row["created_at"]) // (24 * 3600 * 1_000_000) == 365

    world.run(scenario)
