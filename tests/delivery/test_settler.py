"""Settling: a failing mark is not a failing handler, and no outcome is ever turned back into a delivery."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from math import inf
from pathlib import Path
from typing import Any

import pytest

from aftercommit import EventEnvelope, EventStatus, Fixed
from aftercommit.delivery.settler import GROUP, Settler, Unsettled
from aftercommit.events.outcome import Dead, Defer, Done, Release, Retry
from tests.delivery.faulty import (
    FaultyStore,
    Loud,
    RowFault,
    Unreachable,
    faulty_store,
    keys_of,
    short_pauses,  # noqa: F401  (used by every test here)
    until,
)
from tests.support import PATIENCE, Collector, Signal, World

Colouring = Callable[[Callable[..., Any]], Callable[..., Any]]

HOUR = timedelta(hours=1)


async def write(outbox: Any, count: int = 1) -> list[str]:
    async with outbox.transaction():
        return [await outbox.write("Happened", {"number": number}) for number in range(count)]


async def hold(world: World, count: int, **options: Any) -> tuple[Any, FaultyStore, list[Any]]:
    """An outbox that is not started and holds leases on rows, as if workers had them."""
    store = faulty_store(world)
    outbox = world.outbox(store, **options)
    outbox.register("Happened", lambda event: None)
    await write(outbox, count)
    engine = outbox._current()
    runs = engine.poller.deliverable((await engine.poller.claim(count)).claim)
    assert len(runs) == count
    return engine, store, [holding for run in runs for holding in engine.held.admit(run)]


def facts(world: World, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in world.rows()]


# ---------------------------------------------------------------- failing marks


def test_a_mark_that_fails_is_repeated_and_the_handler_is_not(
    world: World, colour: Colouring, caplog: pytest.LogCaptureFixture
) -> None:
    """TC-140, TC-481, F19: counted as a success and as nothing else."""

    async def scenario() -> None:
        store, seen = faulty_store(world), Collector()
        outbox = world.outbox(store, poll_interval="1h")
        outbox.register("Happened", colour(seen.add))
        async with outbox:
            fault = store.fail("settle", times=2)
            await write(outbox)
            await world.until_settled(1)
            assert fault.fired == 2
            await world.until_counted(outbox)
            counters = (await outbox.stats()).counters
        assert len(seen) == 1
        assert facts(world, "status", "attempts", "locked_by") == [(EventStatus.DONE, 0, None)]
        assert counters == {"hot_enqueued": 1, "dispatch_success": 1}

    with caplog.at_level(logging.WARNING, "aftercommit"):
        world.run(scenario)
    assert [record.levelname for record in caplog.records] == ["ERROR"], "once for both failures"
    assert "aftercommit-settler failed and goes on" in caplog.text


def test_a_mark_that_was_written_and_not_answered_is_not_a_lost_lease(
    world: World, colour: Colouring, caplog: pytest.LogCaptureFixture
) -> None:
    """Promise 4: the repetition changes no row, because the first try has."""

    async def scenario() -> None:
        store, seen = faulty_store(world), Collector()
        outbox = world.outbox(store, poll_interval="1h")
        outbox.register("Happened", colour(seen.add))
        async with outbox:
            fault = store.fail("settle", late=True)
            await write(outbox)
            await store.calls["settle"].reach(2)
            assert (await outbox.drain(PATIENCE)).is_complete
            stats = await outbox.stats()
            assert (stats.held, stats.unsettled) == (0, 0)
            assert "lease_lost" not in stats.counters
        assert fault.fired == 1
        assert len(seen) == 1
        assert world.statuses() == [EventStatus.DONE]

    with caplog.at_level(logging.WARNING, "aftercommit"):
        world.run(scenario)
    assert "the lease on" not in caplog.text


def test_a_retry_that_was_written_and_not_answered_is_still_looked_for(world: World, colour: Colouring) -> None:
    """It falls due like any other; the poller must not sleep through it."""

    async def scenario() -> None:
        store, seen = faulty_store(world), Collector()

        def listener(event: EventEnvelope) -> None:
            seen.add(event)
            if len(seen) == 1:
                raise ValueError("not yet")

        outbox = world.outbox(store, poll_interval="1h", retry_policy=Fixed("20ms"))
        outbox.register("Happened", colour(listener))
        async with outbox:
            store.fail("settle", late=True)
            await write(outbox)
            await seen.reach(2)
            await world.until_settled(1)
        assert facts(world, "attempts") == [(1,)]

    world.run(scenario)


def test_an_unreachable_store_loses_nothing(world: World, colour: Colouring) -> None:
    """F19: it backs off, goes on, and each handler has run once in the end."""

    async def scenario() -> None:
        store, seen = faulty_store(world), Collector()
        outbox = world.outbox(store, poll_interval="1h")
        outbox.register("Happened", colour(lambda event: seen.add(event.event_id)))
        async with outbox:
            fault = store.fail("settle", times=inf)
            written = await write(outbox, 20)
            await seen.reach(20)
            await store.calls["settle"].reach(3)
            assert world.statuses() == [EventStatus.NEW] * 20
            assert (await outbox.stats()).held == 20
            store.heal()
            await world.until_settled(20)
            await world.until_counted(outbox, 20)
            assert (await outbox.stats()).counters["dispatch_success"] == 20
        assert fault.fired >= 2
        assert sorted(seen) == sorted(written)

    world.run(scenario)


def test_workers_pause_when_the_outcomes_reach_the_capacity(world: World, colour: Colouring) -> None:
    """Promise 9: a store that is away costs memory for both lanes and no more."""

    async def scenario() -> None:
        store, seen = faulty_store(world), Collector()
        options = {"hot_queue_capacity": 2, "cold_queue_capacity": 2, "worker_count": 1, "batch_size": 2}
        outbox = world.outbox(store, **options)
        outbox.register("Happened", colour(lambda event: seen.add(event.event_id)))
        await write(outbox, 12)
        store.fail("settle", times=inf)
        async with outbox:
            await seen.reach(4)
            await store.calls["settle"].reach(len(store.calls["settle"]) + 4)  # time enough for many more
            assert len(seen) == 4
            assert outbox._engine.settler.unsettled == 4
            store.heal()
            await world.until_settled(12)
        assert len(seen) == len(set(seen)) == 12

    world.run(scenario)


# ---------------------------------------------------------------- a row that the store refuses


def test_a_refused_group_is_written_row_by_row(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        engine, store, holdings = await hold(world, 3)
        fault = store.fail("settle", RowFault("some value"), when=lambda group: len(group) > 1)
        for holding, outcome in zip(holdings, [Done(), Retry(HOUR, "a text"), Dead("another")], strict=True):
            engine.settler.add(holding, outcome)
        await engine.settler.flush()
        assert fault.fired == 1
        assert [len(group) for (group,) in store.calls["settle"]] == [3, 1, 1, 1]
        assert facts(world, "status", "last_error") == [(1, None), (2, "a text"), (3, "another")]
        assert len(engine.held) == 0

    with caplog.at_level(logging.WARNING, "aftercommit"):
        world.run(scenario)
    assert "is written row by row" in caplog.text


def test_a_refused_row_is_written_without_its_text(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        engine, store, holdings = await hold(world, 3)
        bad = [holding.lease.key for holding in holdings[:2]]

        def is_bad(group: Any) -> bool:
            return any(entry.lease.key in bad and entry.outcome.error for entry in group)

        store.fail("settle", RowFault("the text"), times=inf, when=is_bad)
        outcomes = [Retry(HOUR, "odd"), Dead("odd", counted=False), Dead("fine")]
        for holding, outcome in zip(holdings, outcomes, strict=True):
            engine.settler.add(holding, outcome)
        await engine.settler.flush()
        assert facts(world, "status", "attempts", "last_error") == [(2, 1, ""), (3, 0, ""), (3, 1, "fine")]

    with caplog.at_level(logging.WARNING, "aftercommit"):
        world.run(scenario)
    assert caplog.text.count("is written without its error text") == 2


def test_a_row_that_cannot_be_written_at_all_keeps_no_other_from_ending(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again, behind the others, and the settler says that it fails; the rest is written."""
    monkeypatch.setattr("aftercommit.delivery.settler.GROUP", 2)

    async def scenario() -> None:
        engine, store, holdings = await hold(world, 5)
        bad = holdings[0].lease.key

        def has_bad(group: Any) -> bool:
            return any(entry.lease.key == bad for entry in group)

        store.fail("settle", RowFault("a trigger"), times=inf, when=has_bad)
        for holding in holdings:
            engine.settler.add(holding, Done())
        for statuses in ([0, 1, 0, 0, 0], [0, 1, 1, 1, 1], [0, 1, 1, 1, 1]):
            with pytest.raises(RowFault, match="a trigger"):
                await engine.settler.flush()
            assert world.statuses() == statuses
        assert (len(engine.held), engine.settler.unsettled) == (1, 1)
        store.heal()
        await engine.settler.flush()
        assert world.statuses() == [1] * 5
        assert engine.meter.counts() == {"dispatch_success": 5}

    world.run(scenario)


def test_a_store_that_goes_away_in_the_middle_of_a_split_loses_nothing(world: World) -> None:
    async def scenario() -> None:
        engine, store, holdings = await hold(world, 4)
        last = holdings[2].lease.key
        store.fail("settle", RowFault("some value"), when=lambda group: len(group) > 1)
        store.fail("settle", Unreachable("gone"), when=lambda group: group[0].lease.key == last)
        for holding in holdings:
            engine.settler.add(holding, Done())
        with pytest.raises(Unreachable):
            await engine.settler.flush()
        assert world.statuses() == [1, 1, 0, 0]
        assert engine.settler.unsettled == 2
        await engine.settler.flush()
        assert world.statuses() == [1] * 4
        assert engine.meter.counts() == {"dispatch_success": 4}

    world.run(scenario)


# ---------------------------------------------------------------- leases


def test_a_stale_mark_changes_nothing_and_is_counted(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Promise 4: never raised, logged once, and the others of its group are written."""

    async def scenario() -> None:
        engine, _, holdings = await hold(world, 3)
        stale = holdings[1].lease.key.event_id
        world.change("UPDATE outbox_event SET locked_by = 'another', lease_epoch = 9 WHERE event_id = ?", stale)
        for holding in holdings:
            engine.settler.add(holding, Retry(HOUR, "failed"))
        await engine.settler.flush()
        assert facts(world, "status", "locked_by") == [(2, None), (0, "another"), (2, None)]
        assert engine.meter.counts() == {"dispatch_failure": 2, "lease_lost": 1}
        assert len(engine.held) == 0

    with caplog.at_level(logging.WARNING, "aftercommit"):
        world.run(scenario)
    (record,) = caplog.records
    assert (record.levelname, "was lost before RETRY was written" in record.getMessage()) == ("WARNING", True)


def test_a_claim_while_the_handler_runs_gives_the_outcome_a_new_epoch(world: World, colour: Colouring) -> None:
    """Promise 5: this process claims a row that it holds. The handler runs once, and its outcome counts."""

    async def scenario() -> None:
        seen, entered, release = Collector(), Signal(), Signal()

        def listener(event: EventEnvelope) -> None:
            seen.add(event)
            entered.set()
            release.wait_here()

        outbox = world.outbox(poll_interval="1h")
        outbox.register("Happened", listener)
        async with outbox:
            assert await outbox.poll() == 0  # the look of the start is over, and claims nothing in between
            await write(outbox)
            await entered.wait()
            world.change("UPDATE outbox_event SET lease_until = 1")
            assert await outbox.poll() == 1
            assert facts(world, "lease_epoch") == [(2,)]
            release.set()
            await world.until_settled(1)
            assert (await outbox.stats()).counters.get("lease_lost", 0) == 0
        assert len(seen) == 1

    world.run(scenario)


def test_a_claim_while_the_outcome_is_being_written_gives_it_a_new_epoch(world: World) -> None:
    """The mark is on its way under the old epoch; refused, it goes again under the new one."""

    async def scenario() -> None:
        store, seen = faulty_store(world), Collector()
        outbox = world.outbox(store, poll_interval="1h")
        outbox.register("Happened", seen.add)
        async with outbox:
            assert await outbox.poll() == 0  # the look of the start is over, and claims nothing in between
            fault = store.hold("settle")
            await write(outbox)
            await fault.entered.wait()
            world.change("UPDATE outbox_event SET lease_until = 1")
            assert await outbox.poll() == 1
            fault.release.set()
            await world.until_settled(1)
            epochs = [[entry.lease.epoch for entry in group] for (group,) in store.calls["settle"]]
            assert epochs == [[1], [2]]
            await world.until_counted(outbox)
            counters = (await outbox.stats()).counters
            assert (counters["dispatch_success"], counters.get("lease_lost", 0)) == (1, 0)
        assert len(seen) == 1

    world.run(scenario)


# ---------------------------------------------------------------- texts


UNPRINTABLE = type("Unprintable", (Exception,), {"__str__": lambda self: 1 / 0})

TEXTS: dict[str, BaseException] = {
    "nul": ValueError("before\x00after"),
    "surrogates": ValueError("before\ud800after"),
    "huge": ValueError("é" * 2_500_000),
    "unprintable": UNPRINTABLE(),
    "secret": ValueError("postgresql://app:hunter2@db/app"),
    "sql": ValueError("'; DROP TABLE outbox_event; --"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_any_error_text_can_be_written(world: World, name: str) -> None:
    async def scenario() -> None:
        def listener(event: EventEnvelope) -> None:
            raise TEXTS[name]

        outbox = world.outbox(retry_policy=Fixed("1h"))
        outbox.register("Happened", listener)
        await write(outbox)
        assert await outbox.poll() == 1
        ((status, attempts, text),) = facts(world, "status", "attempts", "last_error")
        assert (status, attempts) == (EventStatus.RETRY, 1)
        assert text.startswith(type(TEXTS[name]).__name__)
        assert len(text) <= 4000
        assert "\x00" not in text
        assert "hunter2" not in text

    world.run(scenario)


# ---------------------------------------------------------------- groups


def test_outcomes_are_written_in_large_groups(world: World) -> None:
    async def scenario() -> None:
        engine, store, holdings = await hold(world, 2 * GROUP + 1, batch_size=5000)
        for holding in holdings:
            engine.settler.add(holding, Done())
        await engine.settler.flush()
        assert [len(group) for (group,) in store.calls["settle"]] == [GROUP, GROUP, 1]
        assert set(world.statuses()) == {1}

    world.run(scenario)


def test_a_lone_outcome_is_written_at_once_and_the_next_ones_gather(world: World) -> None:
    """While a group is being written the others wait for the next transaction, all together."""

    async def scenario() -> None:
        engine, store, holdings = await hold(world, 6)
        fault = store.hold("settle")
        engine.settler.start()
        engine.settler.add(holdings[0], Done())
        await fault.entered.wait()
        for holding in holdings[1:]:
            engine.settler.add(holding, Done())
        fault.release.set()
        await world.until_settled(6)
        assert await engine.settler.stop(PATIENCE)
        assert [len(group) for (group,) in store.calls["settle"]] == [1, 5]

    world.run(scenario)


def test_every_outcome_is_counted_and_announced(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """TC-244; 000 §16.2: a DEAD transition is an ERROR."""

    async def scenario() -> None:
        exporter = Loud()
        engine, _, holdings = await hold(world, 5, metrics=exporter)
        due = Collector()
        engine.agenda.add = lambda _, seconds=0.0: due.add(seconds)
        outcomes = [
            Done(),
            Retry(timedelta(seconds=3), "failed"),
            Dead("the end"),
            Defer(timedelta(seconds=7)),
            Release(),
        ]
        for holding, outcome in zip(holdings, outcomes, strict=True):
            engine.settler.add(holding, outcome)
        await engine.settler.flush()
        assert sorted(due) == [0.0, 3.0, 7.0]
        for name in ("success", "failure", "dead", "deferred"):
            assert exporter.named(f"increment_dispatch_{name}") == [()], name
        assert engine.meter.counts()["released"] == 1
        assert facts(world, "status", "attempts") == [(1, 0), (2, 1), (3, 1), (2, 0), (0, 0)]
        assert {row["locked_by"] for row in world.rows()} == {None}

    with caplog.at_level(logging.WARNING, "aftercommit"):
        world.run(scenario)
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "is DEAD: the end" in record.getMessage()


# ---------------------------------------------------------------- the end


def test_finishing_repeats_until_the_time_is_over_and_says_what_is_left(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        engine, store, holdings = await hold(world, 3)
        fault = store.fail("settle", times=inf)
        for holding in holdings:
            engine.settler.add(holding, Done())
        started = engine.runtime.clock()
        await engine.settler.finish(0.3)
        assert engine.runtime.clock() - started < PATIENCE / 2
        assert fault.fired >= 2
        assert engine.settler.unsettled == 3
        store.heal()

    with caplog.at_level(logging.WARNING, "aftercommit"):
        world.run(scenario)
    assert "3 outcomes could not be written" in caplog.text


def test_finishing_writes_the_rest_when_the_store_comes_back(world: World) -> None:
    async def scenario() -> None:
        engine, store, holdings = await hold(world, 3)
        fault = store.fail("settle", times=2)
        for holding in holdings:
            engine.settler.add(holding, Done())
        await engine.settler.finish(PATIENCE)
        assert fault.fired == 2
        assert world.statuses() == [1, 1, 1]

    world.run(scenario)


def test_finishing_does_not_spin_while_another_write_hangs(world: World) -> None:
    """The loop is in the middle of a write that the store does not answer; finish() has to give up all the same."""

    async def scenario() -> None:
        engine, store, holdings = await hold(world, 2)
        settler: Settler = engine.settler
        stop, flush, flushes = settler.stop, settler.flush, Collector()

        async def stop_soon(timeout: float | None = 5.0) -> bool:
            return await stop(0.05)

        async def counted(*arguments: Any) -> None:
            flushes.add(None)
            await flush(*arguments)

        settler.stop = stop_soon  # type: ignore[method-assign]
        fault = store.hold("settle")
        settler.start()
        settler.add(holdings[0], Done())
        await fault.entered.wait()
        settler.flush = counted  # type: ignore[method-assign]
        settler.add(holdings[1], Done())
        await settler.finish(0.3)
        assert settler.unsettled == 2
        assert len(flushes) < 10
        fault.release.set()
        assert await stop(PATIENCE)

    world.run(scenario)


def test_two_that_flush_take_turns(world: World) -> None:
    """drain() flushes beside the loop. Whoever comes second waits; to turn round and round stops the event loop."""

    async def scenario() -> None:
        engine, store, holdings = await hold(world, 2)
        settler: Settler = engine.settler
        flush, flushes = settler.flush_group, Collector()

        async def counted(*arguments: Any) -> bool:
            flushes.add(None)
            if len(flushes) > 100:
                raise AssertionError("the settler turns round and round")
            return await flush(*arguments)

        settler.flush_group = counted  # type: ignore[method-assign]
        fault = store.hold("settle")
        settler.add(holdings[0], Done())

        async def first_flush() -> None:
            await flush()

        first = engine.runtime.spawn("first", first_flush)
        await fault.entered.wait()
        settler.add(holdings[1], Done())
        settler.start()
        await flushes.reach(1)
        assert settler.unsettled == 2
        await until(lambda: engine.runtime.clock() > settler._flushed_at + 0.05)
        assert len(flushes) == 1
        fault.release.set()
        assert await first.join(PATIENCE)
        await world.until_settled(2)
        assert await settler.stop(PATIENCE)
        assert [len(group) for (group,) in store.calls["settle"]] == [1, 1]

    world.run(scenario)


def test_a_cancelled_flush_is_written_to_its_end(tmp_path: Path) -> None:
    """F61: the cancellation comes when the mark is in the table."""
    world = World("asyncio", tmp_path)

    async def scenario() -> None:
        engine, store, holdings = await hold(world, 2)
        fault = store.hold("settle")
        for holding in holdings:
            engine.settler.add(holding, Done())
        flushing = asyncio.ensure_future(engine.settler.flush())
        await fault.entered.wait()
        flushing.cancel()
        fault.release.set()
        with pytest.raises(asyncio.CancelledError):
            await flushing
        assert world.statuses() == [1, 1]
        assert (len(engine.held), engine.settler.unsettled) == (0, 0)

    world.run(scenario)


def test_an_outcome_may_come_from_any_thread(world: World) -> None:
    async def scenario() -> None:
        engine, _, holdings = await hold(world, 20)
        engine.settler.start()
        threads = [threading.Thread(target=engine.settler.add, args=(holding, Done())) for holding in holdings]
        for thread in threads:
            thread.start()
        await world.until_settled(20)
        for thread in threads:
            thread.join()
        assert await engine.settler.stop(PATIENCE)
        assert keys_of(engine.held._rows.values()) == []

    world.run(scenario)


def test_a_settler_that_was_woken_for_what_another_has_written_wakes_again(world: World) -> None:
    """Outcomes reach it without a lock: it says anew what wakes it each time that it goes back to sleep."""

    async def scenario() -> None:
        engine, store, holdings = await hold(world, 2)
        settler: Settler = engine.settler
        settler.start()
        await until(lambda: settler._wakes_at == 1)
        with settler.monitor:  # it hears of the first one, and cannot look yet
            settler._pending.append(Unsettled(holdings[0], Done(), holdings[0].lease.epoch))
            settler._wakes_at = float("inf")
            settler.monitor.notify_all()
            taken = settler._turn()[0]
        await until(lambda: settler._wakes_at == 1)
        await settler._write(taken)
        settler._flushing = 0
        settler.add(holdings[1], Done())
        await world.until_settled(2)
        assert await settler.stop(PATIENCE)
        assert [len(group) for (group,) in store.calls["settle"]] == [1, 1]

    world.run(scenario)
