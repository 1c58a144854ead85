"""What an exporter is told of writes and deliveries, with the names to tell them apart."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from aftercommit import DeadLetter, Discard, FailureContext, Fixed, MetricsExporter, NoRetry, RetryAfter
from tests.observers.kit import Told
from tests.support import Collector, World

Colouring = Callable[[Callable[..., Any]], Callable[..., Any]]

PASSWORD = "canary-4711"


def raising(error: Exception) -> Callable[[object], None]:
    def handler(_: object) -> None:
        raise error

    return handler


def test_each_way_that_a_delivery_ends_has_a_result_of_its_own(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        told = Told()
        outbox = world.outbox(metrics=told, retry_policy=Fixed("1h"), unroutable_grace="1h")
        ways: dict[str, Any] = {
            "Ok": lambda _: None,
            "Retry": raising(ValueError(f"password={PASSWORD}")),
            "Dead": raising(DeadLetter("no")),
            "Discard": raising(Discard("seen before")),
            "Defer": lambda _: RetryAfter("1h"),
        }
        for name, function in ways.items():
            outbox.handler(name, id=f"on{name}")(colour(function))
        failing = outbox.handler("Fallback", id="onFallback", retry=NoRetry())(colour(raising(ValueError("no"))))

        @failing.fallback
        def rescue(event: Any, failure: FailureContext) -> None: ...

        async with outbox.transaction():
            for name in (*ways, "Fallback", "Unknown"):
                await outbox.write(name, "{}")
        await outbox.drain()
        expected = {(name, f"on{name}", name.lower()) for name in (*ways, "Fallback")}
        assert set(told.results) == expected | {("Unknown", "*", "unroutable")}
        assert all(each.duration >= 0 and each.latency >= 0 for each in told.deliveries)
        assert PASSWORD not in repr(list(told.deliveries))

    world.run(scenario)


def test_each_handler_of_one_event_is_told_of_and_the_write_once(world: World) -> None:
    """Also where one row serves both."""

    async def scenario() -> None:
        told = Told()
        writer = world.outbox()
        outbox = world.outbox(metrics=told)
        for name in ("first", "second"):
            outbox.handler("A", id=name)(lambda _: None)
        async with writer.transaction():
            await writer.write("A", "{}")
        async with outbox.transaction():
            await outbox.write_all([_event("A"), _event("A"), _event("B")])
        await outbox.drain()
        handled = [each for each in told.results if each[2] == "ok"]
        assert sorted(handled) == [("A", "first", "ok")] * 3 + [("A", "second", "ok")] * 3
        assert sorted(told.writes) == [("A", 2), ("B", 1)]
        assert told.stores == [str(world.path)]

    world.run(scenario)


def _event(kind: str) -> Any:
    from aftercommit import EventEnvelope

    return EventEnvelope.of_json(kind, "{}")


def test_what_is_rolled_back_is_not_counted_as_written(world: World) -> None:
    async def scenario() -> None:
        told = Told()
        outbox = world.outbox(metrics=told)
        tx = await outbox.begin()
        await outbox.write("A", "{}")
        await tx.rollback()
        async with outbox.transaction():
            await outbox.write("B", "{}")
        assert told.writes == [("B", 1)]

    world.run(scenario)


def test_where_nobody_sees_the_commit_the_write_is_counted(tmp_path: Any) -> None:
    world = World("threads", tmp_path)

    async def scenario() -> None:
        told = Told()
        outbox = world.outbox(metrics=told)
        await outbox.create_schema()
        with closing(sqlite3.connect(world.path, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            await outbox.write("A", "{}", tx=connection)
            connection.execute("COMMIT")
        assert told.writes == [("A", 1)]

    world.run(scenario)


def test_the_way_of_an_event_is_measured_from_its_row_not_from_this_process(world: World) -> None:
    """What another process wrote an hour ago has been under way for an hour; what was to come later is not measured."""

    async def scenario() -> None:
        told = Told()
        outbox = world.outbox(metrics=told)
        outbox.handler("A", id="a")(lambda _: None)
        async with outbox.transaction():
            await outbox.write("A", "{}")
            late = await outbox.write("A", "{}", deliver_after="1h")
        world.change("UPDATE outbox_event SET created_at = created_at - 3600000000, available_at = 0")
        await outbox.drain()
        latencies = {each.latency is None for each in told.deliveries}
        assert latencies == {True, False}
        (measured,) = [each.latency for each in told.deliveries if each.latency is not None]
        assert 3600 <= measured < 3600 + 60
        assert late

    world.run(scenario)


def test_a_lost_lease_is_told_with_the_handler_that_lost_it(world: World) -> None:
    async def scenario() -> None:
        told, seen = Told(), Collector()
        outbox = world.outbox(metrics=told)

        def overtaken(event: Any) -> None:
            world.change("UPDATE outbox_event SET locked_by = 'another' WHERE handler_id IN ('', 'slow')")
            seen.add(event)

        outbox.handler("A", id="slow")(overtaken)
        outbox.handler("A", id="other")(lambda _: None)
        outbox.handler("B", id="lone")(overtaken)
        async with outbox.transaction():
            await outbox.write("A", "{}")
            await outbox.write("B", "{}")
        await outbox.poll()
        assert sorted(told.losses) == [("A", "slow"), ("B", "*")]

    world.run(scenario)


class Broken(MetricsExporter):
    """Raises whatever it is told."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)

        def broken(*_: object) -> None:
            raise RuntimeError(f"{name}: password={PASSWORD}")

        return broken


def test_an_exporter_that_raises_everywhere_harms_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(metrics=Broken(), poll_interval="1h")
        outbox.register("A", seen.add)
        async with outbox:
            async with outbox.transaction():
                await outbox.write("A", "{}")
            await seen.reach(1)
            await world.until_settled(1)

    world.run(scenario)
    assert PASSWORD not in caplog.text


def test_an_exporter_of_the_first_release_goes_on_unchanged(world: World) -> None:
    """It has the methods of then, and derives from nothing."""

    class Plain:
        def __init__(self) -> None:
            self.successes = 0

        def increment_dispatch_success(self) -> None:
            self.successes += 1

        def record_queue_depths(self, hot_depth: int, cold_depth: int) -> None: ...

    async def scenario() -> None:
        plain = Plain()
        outbox = world.outbox(metrics=plain)
        outbox.register("A", lambda _: None)
        async with outbox.transaction():
            await outbox.write("A", "{}")
        assert (await outbox.drain()).delivered == 1
        assert plain.successes == 1

    world.run(scenario)


def test_latency_of_a_lease_is_counted_from_when_it_was_asked_for() -> None:
    from aftercommit.events.claims import Lease, RowKey, asked_at, deadline_of

    lease = Lease(RowKey("e", ""), "me", 1, deadline_of(100.0, timedelta(seconds=30)))
    assert asked_at(lease, timedelta(seconds=30)) == pytest.approx(100.0)
