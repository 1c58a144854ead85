"""One delivery: interceptors, listeners, the decision. Whatever they do, it ends in an outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest

from aftercommit import (
    DefaultInFlightTracker,
    DefaultListenerRegistry,
    Done,
    EventEnvelope,
    EventInterceptor,
    Fixed,
    MultiListenerRegistry,
    NoRetry,
    RetryAfter,
    RetryAfterError,
)
from aftercommit.delivery.chain import LATER, Delivery
from aftercommit.events.outcome import Dead, Defer, Release, Retry
from aftercommit.events.outcome import Done as Delivered
from tests.delivery.faulty import Loud, claimed, meter_of, plain_config, router_of, with_runtime
from tests.support import PATIENCE, Collector, Signal, World

Colouring = Callable[[Callable[..., Any]], Callable[..., Any]]

stage: ContextVar[str] = ContextVar("stage", default="")


class Deliberate(Exception):
    """Raised by listeners."""


def fail(event: EventEnvelope) -> None:
    raise Deliberate("no luck today")


def delivery(
    runtime: Any,
    listener: Any = None,
    *,
    registry: Any = None,
    policy: Any = None,
    max_attempts: int = 3,
    grace: timedelta | None = timedelta(0),
    exporter: Any = None,
    **parts: Any,
) -> Delivery:
    if registry is None:
        registry = DefaultListenerRegistry()
        if listener is not None:
            registry.register("Happened", listener)
    if "tracker" in parts:
        parts["in_flight_tracker"] = parts.pop("tracker")
    config = plain_config(
        retry_policy=policy or Fixed("5s"), max_attempts=max_attempts, unroutable_grace=grace, **parts
    )
    return Delivery(runtime, router_of(registry), meter_of(runtime, exporter), config)


# ---------------------------------------------------------------- what a listener says


def test_a_listener_gets_the_event_and_it_is_done(world: World, colour: Colouring) -> None:
    """TC-127, TC-141"""

    async def scenario(runtime: Any) -> None:
        seen = Collector()
        event = EventEnvelope("Happened", payload_json='{"exact":  1}')
        outcome = await delivery(runtime, colour(seen.add)).deliver(claimed(runtime, event))
        assert outcome == Delivered()
        assert seen == [event]
        assert seen[0] is event

    with_runtime(world, scenario)


@pytest.mark.parametrize("value", [None, Done(), False, 0, ValueError("returned, not raised"), [1], RetryAfter])
def test_any_other_value_means_done(world: World, colour: Colouring, value: Any) -> None:
    """TC-135, TC-137, F60"""

    async def scenario(runtime: Any) -> None:
        assert await delivery(runtime, colour(lambda event: value)).deliver(claimed(runtime)) == Delivered()

    with_runtime(world, scenario)


def test_retry_after_is_deferred_and_not_counted(world: World, colour: Colouring) -> None:
    """TC-136; even when no attempt is left."""

    async def scenario(runtime: Any) -> None:
        parts = delivery(runtime, colour(lambda event: RetryAfter("30s")), max_attempts=1)
        assert await parts.deliver(claimed(runtime, attempts=9)) == Defer(timedelta(seconds=30))

    with_runtime(world, scenario)


def test_an_error_is_retried_as_the_policy_says(world: World, colour: Colouring) -> None:
    """TC-129"""

    async def scenario(runtime: Any) -> None:
        outcome = await delivery(runtime, colour(fail)).deliver(claimed(runtime))
        assert outcome == Retry(timedelta(seconds=5), "Deliberate: no luck today", limit=3)

    with_runtime(world, scenario)


@pytest.mark.parametrize(("max_attempts", "attempts"), [(1, 0), (2, 1), (3, 2), (3, 7)])
def test_the_last_attempt_ends_dead(world: World, colour: Colouring, max_attempts: int, attempts: int) -> None:
    """TC-130, TC-131"""

    async def scenario(runtime: Any) -> None:
        parts = delivery(runtime, colour(fail), max_attempts=max_attempts)
        assert await parts.deliver(claimed(runtime, attempts=attempts)) == Dead("Deliberate: no luck today")

    with_runtime(world, scenario)


def test_an_error_that_is_not_worth_a_retry_ends_dead(world: World, colour: Colouring) -> None:
    async def scenario(runtime: Any) -> None:
        outcome = await delivery(runtime, colour(fail), policy=NoRetry()).deliver(claimed(runtime))
        assert outcome == Dead("Deliberate: no luck today")

    with_runtime(world, scenario)


def test_a_retry_after_error_sets_the_delay_and_counts(world: World, colour: Colouring) -> None:
    """TC-138, TC-139"""

    def later(event: EventEnvelope) -> None:
        raise RetryAfterError("5m", "busy")

    async def scenario(runtime: Any) -> None:
        parts = delivery(runtime, colour(later), max_attempts=2)
        outcome = await parts.deliver(claimed(runtime))
        assert isinstance(outcome, Retry)
        assert outcome.delay == timedelta(minutes=5)
        assert isinstance(await parts.deliver(claimed(runtime, attempts=1)), Dead)

    with_runtime(world, scenario)


@pytest.mark.parametrize(
    "error", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, asyncio.TimeoutError, StopIteration]
)
def test_no_error_is_too_base_to_be_counted(world: World, colour: Colouring, error: type[BaseException]) -> None:
    """F57, TC-480"""

    def broken(event: EventEnvelope) -> None:
        raise error

    async def scenario(runtime: Any) -> None:
        outcomes = Collector()

        async def worker() -> None:
            outcomes.add(await delivery(runtime, colour(broken)).deliver(claimed(runtime)))

        assert await runtime.spawn("worker", worker).join(PATIENCE)
        assert [type(outcome) for outcome in outcomes] == [Retry]

    with_runtime(world, scenario)


def test_a_policy_that_raises_does_not_lose_the_event(world: World, colour: Colouring) -> None:
    """F69"""

    class Broken:
        def delay(self, attempts: int) -> timedelta:
            raise OverflowError(2**1024)

        def should_retry(self, error: BaseException) -> bool:
            raise LookupError

    async def scenario(runtime: Any) -> None:
        outcome = await delivery(runtime, colour(fail), policy=Broken()).deliver(claimed(runtime))
        assert isinstance(outcome, Retry)
        assert timedelta(0) < outcome.delay <= timedelta(seconds=60)

    with_runtime(world, scenario)


# ---------------------------------------------------------------- generators


def numbers(event: EventEnvelope) -> Iterator[int]:
    yield 1


async def async_numbers(event: EventEnvelope) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("generator", [numbers, async_numbers])
def test_a_generator_that_a_listener_returns_is_an_error(
    world: World, colour: Colouring, generator: Callable[[EventEnvelope], Any]
) -> None:
    """Nothing of its body has run, so it is never DONE. F60"""

    async def scenario(runtime: Any) -> None:
        made = Collector()

        def listener(event: EventEnvelope) -> Any:
            made.add(generator(event))
            return made[-1]

        outcome = await delivery(runtime, colour(listener)).deliver(claimed(runtime))
        assert isinstance(outcome, Retry)
        assert "returned a generator, so its body has not run" in outcome.error

    with_runtime(world, scenario)


def test_a_generator_that_an_interceptor_returns_is_an_error_too(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        seen = Collector()
        parts = delivery(runtime, seen.add, interceptors=[EventInterceptor.before(numbers)])
        assert isinstance(await parts.deliver(claimed(runtime)), Retry)
        assert seen == []

    with_runtime(world, scenario)


# ---------------------------------------------------------------- routes


def test_an_unroutable_event_is_dead_at_once(world: World) -> None:
    """TC-128, C5"""

    async def scenario(runtime: Any) -> None:
        outcome = await delivery(runtime).deliver(claimed(runtime))
        assert isinstance(outcome, Dead)
        assert not outcome.counted
        assert "takes Happened (" in outcome.error

    with_runtime(world, scenario)


def test_an_unroutable_event_is_left_to_others_while_the_grace_lasts(world: World) -> None:
    """F72: a rolling deploy must not kill what the old processes do not know yet."""

    async def scenario(runtime: Any) -> None:
        parts = delivery(runtime, grace=timedelta(minutes=10))
        young, old = timedelta(minutes=9, seconds=59), timedelta(minutes=10)
        assert await parts.deliver(claimed(runtime, age=young, attempts=99)) == Defer(LATER)
        assert isinstance(await parts.deliver(claimed(runtime, age=old)), Dead)

    with_runtime(world, scenario)


def test_without_an_end_of_the_grace_an_unroutable_event_is_never_dead(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        outcome = await delivery(runtime, grace=None).deliver(claimed(runtime, age=timedelta(days=9999)))
        assert outcome == Defer(LATER)

    with_runtime(world, scenario)


def test_a_registry_that_finds_an_empty_list_has_found_nobody(world: World) -> None:
    """An event that nobody has seen is not done."""

    class Empty:
        def listener_for(self, aggregate_type: str, event_type: str) -> list[Any]:
            return []

    async def scenario(runtime: Any) -> None:
        assert isinstance(await delivery(runtime, registry=Empty()).deliver(claimed(runtime)), Dead)

    with_runtime(world, scenario)


def test_a_registry_that_raises_is_a_failed_attempt(world: World) -> None:
    class Broken:
        def listener_for(self, aggregate_type: str, event_type: str) -> None:
            raise LookupError("the container is not ready")

    async def scenario(runtime: Any) -> None:
        outcome = await delivery(runtime, registry=Broken()).deliver(claimed(runtime))
        assert isinstance(outcome, Retry)
        assert "the container is not ready" in outcome.error

    with_runtime(world, scenario)


def test_several_listeners_stop_at_the_first_that_fails(world: World, colour: Colouring) -> None:
    async def scenario(runtime: Any) -> None:
        seen = Collector()
        registry = MultiListenerRegistry().register("Happened", colour(lambda event: seen.add(1)))
        registry.register("Happened", colour(fail)).register_all(colour(lambda event: seen.add(3)))
        assert isinstance(await delivery(runtime, registry=registry).deliver(claimed(runtime)), Retry)
        assert seen == [1]

    with_runtime(world, scenario)


def test_several_listeners_stop_at_the_first_that_wants_to_be_called_again(world: World, colour: Colouring) -> None:
    """What the later ones return must not make an event done that one of them has not handled."""

    async def scenario(runtime: Any) -> None:
        seen = Collector()
        registry = MultiListenerRegistry().register("Happened", colour(lambda event: RetryAfter("7s")))
        registry.register_all(colour(seen.add))
        outcome = await delivery(runtime, registry=registry).deliver(claimed(runtime))
        assert outcome == Defer(timedelta(seconds=7))
        assert seen == []

    with_runtime(world, scenario)


# ---------------------------------------------------------------- interceptors


class Named(EventInterceptor):
    """Notes its calls; either phase may fail."""

    def __init__(self, name: str, seen: Collector, *, before: Any = None, after: Any = None) -> None:
        self.name, self.seen, self.before_error, self.after_error = name, seen, before, after

    def before_dispatch(self, event: EventEnvelope) -> None:
        self.seen.add(f"before {self.name}")
        if self.before_error:
            raise self.before_error

    def after_dispatch(self, event: EventEnvelope, error: BaseException | None) -> None:
        self.seen.add(f"after {self.name} {type(error).__name__ if error else 'well'}")
        if self.after_error:
            raise self.after_error


class AsyncNamed(Named):
    async def before_dispatch(self, event: EventEnvelope) -> None:  # type: ignore[override]
        super().before_dispatch(event)

    async def after_dispatch(self, event: EventEnvelope, error: BaseException | None) -> None:  # type: ignore[override]
        super().after_dispatch(event, error)


@pytest.fixture(params=[Named, AsyncNamed])
def interceptor(request: pytest.FixtureRequest) -> type[Named]:
    return request.param


def test_interceptors_go_in_order_and_come_back_in_reverse(
    world: World, colour: Colouring, interceptor: type[Named]
) -> None:
    """TC-150"""

    async def scenario(runtime: Any) -> None:
        seen = Collector()
        interceptors = [interceptor("1", seen), interceptor("2", seen)]
        parts = delivery(runtime, colour(lambda event: seen.add("listener")), interceptors=interceptors)
        assert await parts.deliver(claimed(runtime)) == Delivered()
        assert seen == ["before 1", "before 2", "listener", "after 2 well", "after 1 well"]

    with_runtime(world, scenario)


def test_an_interceptor_that_refuses_fails_the_attempt(world: World, interceptor: type[Named]) -> None:
    """TC-154, F68: only those whose before has run are told, and the listener is not called."""

    async def scenario(runtime: Any) -> None:
        seen = Collector()
        interceptors = [
            interceptor("1", seen),
            interceptor("2", seen, before=Deliberate("not now")),
            interceptor("3", seen),
        ]
        parts = delivery(runtime, seen.add, interceptors=interceptors)
        assert await parts.deliver(claimed(runtime)) == Retry(timedelta(seconds=5), "Deliberate: not now", limit=3)
        assert seen == ["before 1", "before 2", "after 1 Deliberate"]

    with_runtime(world, scenario)


@pytest.mark.parametrize("listener", [lambda event: None, fail])
def test_an_interceptor_that_fails_afterwards_changes_nothing(
    world: World, interceptor: type[Named], listener: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """TC-155, F68"""

    async def scenario(runtime: Any) -> None:
        seen = Collector()
        interceptors = [interceptor("1", seen), interceptor("2", seen, after=SystemExit("password=hunter2"))]
        outcome = await delivery(runtime, listener, interceptors=interceptors).deliver(claimed(runtime))
        assert type(outcome) is (Retry if listener is fail else Delivered)
        assert len(seen) == 4, "the one before it is still told"

    with caplog.at_level(logging.WARNING, "aftercommit"):
        with_runtime(world, scenario)
    assert "an interceptor failed after" in caplog.text
    assert "hunter2" not in caplog.text


def test_interceptors_of_one_function(world: World, colour: Colouring) -> None:
    """TC-151, TC-152, TC-153"""

    async def scenario(runtime: Any) -> None:
        seen, problem = Collector(), Deliberate("the same object")
        answers: list[Any] = [None, problem]

        def listener(event: EventEnvelope) -> None:
            if (answer := answers.pop(0)) is not None:
                raise answer

        interceptors = [
            EventInterceptor(),
            EventInterceptor.before(colour(lambda event: seen.add(("before", event)))),
            EventInterceptor.after(colour(lambda event, error: seen.add(("after", event, error)))),
        ]
        parts = delivery(runtime, colour(listener), interceptors=interceptors)
        first, second = claimed(runtime), claimed(runtime)
        await parts.deliver(first)
        await parts.deliver(second)
        assert seen == [
            ("before", first.event),
            ("after", first.event, None),
            ("before", second.event),
            ("after", second.event, problem),
        ]
        assert seen[3][2] is problem

    with_runtime(world, scenario)


def test_one_event_has_one_context_and_the_next_a_fresh_one(
    world: World, colour: Colouring, interceptor: type[Named]
) -> None:
    async def scenario(runtime: Any) -> None:
        seen = Collector()

        def note(name: str) -> Callable[..., None]:
            def noting(*_: Any) -> None:
                stage.set(f"{stage.get()}/{name}")
                seen.add(stage.get())

            return noting

        token = stage.set("worker")
        try:
            interceptors = [
                EventInterceptor.before(colour(note("before"))),
                EventInterceptor.after(colour(note("after"))),
            ]
            parts = delivery(runtime, colour(note("listener")), interceptors=interceptors)
            for _ in range(2):
                await parts.deliver(claimed(runtime))
            whole = ["worker/before", "worker/before/listener", "worker/before/listener/after"]
            assert seen == whole * 2
            assert stage.get() == "worker"
        finally:
            stage.reset(token)

    with_runtime(world, scenario)


# ---------------------------------------------------------------- in flight


def test_an_event_in_flight_is_not_handled_a_second_time_at_once(world: World, colour: Colouring) -> None:
    """TC-144; the second is given back uncounted, and runs when it comes again."""

    async def scenario(runtime: Any) -> None:
        entered, release, seen = Signal(), Signal(), Collector()

        def listener(event: EventEnvelope) -> None:
            seen.add(event)
            entered.set()
            release.wait_here()

        parts = delivery(runtime, listener, tracker=DefaultInFlightTracker())
        row, outcomes = claimed(runtime), Collector()

        async def first() -> None:
            outcomes.add(await parts.deliver(row))

        task = runtime.spawn("first", first)
        await entered.wait()
        assert await parts.deliver(row) == Defer(LATER)
        assert len(seen) == 1
        release.set()
        assert await task.join(PATIENCE)
        assert await parts.deliver(row) == Delivered()
        assert len(seen) == 2
        assert outcomes == [Delivered()]

    with_runtime(world, scenario)


def test_a_failed_event_is_in_flight_no_more(world: World, colour: Colouring) -> None:
    async def scenario(runtime: Any) -> None:
        parts = delivery(runtime, colour(fail), tracker=DefaultInFlightTracker())
        row = claimed(runtime)
        assert [type(await parts.deliver(row)) for _ in range(2)] == [Retry, Retry]

    with_runtime(world, scenario)


class Tracker:
    """One of a user's own, somewhere on the network."""

    def __init__(self, *, acquiring: bool = False, releasing: bool = False) -> None:
        self.acquiring, self.releasing = acquiring, releasing

    def try_acquire(self, event_id: str) -> bool:
        if self.acquiring:
            raise ConnectionError("the tracker is away, token=abc123")
        return True

    def release(self, event_id: str) -> None:
        if self.releasing:
            raise ConnectionError("the tracker is away, token=abc123")


def test_a_tracker_that_cannot_be_asked_puts_the_event_off(
    world: World, colour: Colouring, caplog: pytest.LogCaptureFixture
) -> None:
    """F68. Given back at once it would come back at once, over and over."""

    async def scenario(runtime: Any) -> None:
        seen = Collector()
        parts = delivery(runtime, colour(seen.add), tracker=Tracker(acquiring=True))
        assert await parts.deliver(claimed(runtime)) == Defer(LATER)
        assert seen == []

    with caplog.at_level(logging.WARNING, "aftercommit"):
        with_runtime(world, scenario)
    assert "the tracker is away" in caplog.text
    assert "abc123" not in caplog.text


def test_a_tracker_that_cannot_be_told_does_not_undo_the_delivery(
    world: World, colour: Colouring, caplog: pytest.LogCaptureFixture
) -> None:
    """F68: the listener has run; the outcome is written, and the listener is not run again for it."""

    async def scenario(runtime: Any) -> None:
        seen = Collector()
        parts = delivery(runtime, colour(seen.add), tracker=Tracker(releasing=True))
        assert await parts.deliver(claimed(runtime)) == Delivered()
        assert len(seen) == 1

    with caplog.at_level(logging.WARNING, "aftercommit"):
        with_runtime(world, scenario)
    assert "the tracker is away" in caplog.text


# ---------------------------------------------------------------- seeing


def test_each_failed_attempt_is_a_warning_with_its_traceback(
    world: World, colour: Colouring, caplog: pytest.LogCaptureFixture
) -> None:
    """000 §16.2; without secrets."""

    def leak(event: EventEnvelope) -> None:
        raise Deliberate("postgresql://app:hunter2@db/x")

    async def scenario(runtime: Any) -> None:
        parts = delivery(runtime, colour(leak), max_attempts=2)
        await parts.deliver(claimed(runtime))
        await parts.deliver(claimed(runtime, attempts=1))

    with caplog.at_level(logging.INFO, "aftercommit"):
        with_runtime(world, scenario)
    first, second = caplog.records
    assert (first.levelname, second.levelname) == ("WARNING", "WARNING")
    assert "attempt 1 of" in first.getMessage()
    assert "again in 5 s" in first.getMessage()
    assert "attempt 2 of" in second.getMessage()
    assert "no more attempts" in second.getMessage()
    assert "in leak" in caplog.text, "the traceback, which a formatter makes of exc_info"
    assert first.exc_info[0] is Deliberate
    assert str(first.exc_info[1]) == "postgresql://app:***@db/x"
    assert (first.outbox_attempt, first.outbox_outcome, first.outbox_error_type) == (1, "retry", "Deliberate")
    assert (second.outbox_attempt, second.outbox_outcome) == (2, "dead")
    assert "hunter2" not in caplog.text


def test_an_error_that_cannot_be_printed_is_a_failure_like_any_other(world: World, colour: Colouring) -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("not even this")

    def broken(event: EventEnvelope) -> None:
        raise Unprintable

    async def scenario(runtime: Any) -> None:
        outcome = await delivery(runtime, colour(broken)).deliver(claimed(runtime))
        assert isinstance(outcome, Retry)
        assert outcome.error.startswith("Unprintable")

    with_runtime(world, scenario)


def test_an_interrupted_listener_is_given_back_and_not_a_failure(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(runtime: Any) -> None:
        entered, outcomes = Signal(), Collector()

        async def sleeps(event: EventEnvelope) -> None:
            entered.set()
            await asyncio.Event().wait()

        async def worker() -> None:
            outcomes.add(await delivery(runtime, sleeps, max_attempts=1).deliver(claimed(runtime)))

        task = runtime.spawn("worker", worker)
        await entered.wait()
        runtime.interrupt()
        assert await task.join(PATIENCE)
        assert outcomes == [Release(was_started=True)]

    with caplog.at_level(logging.INFO, "aftercommit"):
        with_runtime(world, scenario)
    assert caplog.records == []


def test_the_time_of_each_listener_is_recorded(world: World, colour: Colouring) -> None:
    async def scenario(runtime: Any) -> None:
        exporter, now = Loud(), [10.0]
        runtime.clock = lambda: now[0]

        def slow(event: EventEnvelope) -> None:
            now[0] += 0.25

        await delivery(runtime, colour(slow), exporter=exporter).deliver(claimed(runtime))
        assert exporter.named("record_listener_duration_ms") == [(250.0,)]

    with_runtime(world, scenario)
