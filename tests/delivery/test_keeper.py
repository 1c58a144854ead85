"""The lease keeper: what is held stays held, and what could not be renewed is not started."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from aftercommit import EventEnvelope, EventStatus
from aftercommit.delivery.leases import Held, Keeper, Unsettled
from aftercommit.events.claims import USABLE, Lease, RowKey, deadline_of
from aftercommit.events.outcome import DONE, Done
from tests.delivery.faulty import (
    Unreachable,
    claimed,
    faulty_store,
    held_of,
    keys_of,
    lanes_of,
    short_pauses,  # noqa: F401  (used by every test here)
    with_runtime,
)
from tests.support import PATIENCE, Collector, Signal, World

HALF_A_MINUTE = timedelta(seconds=30)


class Renewals:
    """A store that renews what it is told to."""

    def __init__(self, *, refuses: set[RowKey] | None = None) -> None:
        self.refuses = refuses or set()
        self.asked = Collector()
        self.errors: list[Exception] = []

    async def renew(self, leases: Any, lock_timeout: timedelta) -> set[RowKey]:
        self.asked.add(list(leases))
        if self.errors:
            raise self.errors.pop(0)
        return {lease.key for lease in leases} - self.refuses


def keeper_of(runtime: Any, store: Any, held: Held, lock_timeout: timedelta = HALF_A_MINUTE) -> Keeper:
    return Keeper(runtime, store, held, lanes_of(runtime), lock_timeout=lock_timeout)


def leases_of(held: Held) -> dict[str, Lease]:
    return {holding.lease.key.event_id: holding.lease for holding in held._rows.values()}


async def write(outbox: Any, count: int = 1) -> None:
    async with outbox.transaction():
        for number in range(count):
            await outbox.write("Happened", {"number": number})


# ---------------------------------------------------------------- renewing


def test_a_deadline_is_a_fifth_before_the_end_of_the_lease() -> None:
    assert deadline_of(100.0, HALF_A_MINUTE) == 100.0 + 24.0
    assert USABLE == 0.8


def test_what_was_renewed_has_a_new_deadline_and_fresh_leases_are_not_asked_for(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        now = [1000.0]
        runtime.clock = lambda: now[0]
        old, young = claimed(runtime, valid_for=10), claimed(runtime, valid_for=24)
        held, store = held_of(runtime, old, young), Renewals()
        await keeper_of(runtime, store, held).work()
        assert [keys_of(leases) for leases in store.asked] == [keys_of([old])]
        leases = leases_of(held)
        assert leases[old.event.event_id].deadline == 1024.0
        assert leases[old.event.event_id].epoch == old.lease.epoch
        assert leases[young.event.event_id] == young.lease

    with_runtime(world, scenario)


def test_what_could_not_be_renewed_may_not_be_started(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        kept, lost = claimed(runtime, valid_for=1), claimed(runtime, valid_for=1)
        held = held_of(runtime, kept, lost)
        await keeper_of(runtime, Renewals(refuses={lost.lease.key}), held).work()
        leases = leases_of(held)
        assert leases[lost.event.event_id].deadline == float("-inf")
        assert leases[kept.event.event_id].deadline > runtime.clock()

    with_runtime(world, scenario)


def test_a_renewal_that_was_overtaken_by_a_claim_changes_nothing(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        first = claimed(runtime, valid_for=1, epoch=1)
        held = held_of(runtime, first)
        again = claimed(runtime, first.event, epoch=2, valid_for=5)
        for refuses in (set(), {first.lease.key}):
            held.admit([again])
            held.renew([first.lease], {first.lease.key} - refuses, runtime.clock() + 99)
            assert leases_of(held) == {first.event.event_id: again.lease}

    with_runtime(world, scenario)


def test_a_row_that_was_let_go_is_not_brought_back(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        row = claimed(runtime, valid_for=1)
        held = Held(runtime)
        (holding,) = held.admit([row])
        held.let_go([Unsettled(holding, DONE, holding.lease.epoch)])
        held.renew([row.lease], {row.lease.key}, runtime.clock() + 99)
        assert len(held) == 0

    with_runtime(world, scenario)


def test_many_leases_are_renewed_in_portions(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        held, store = held_of(runtime, *(claimed(runtime, valid_for=1) for _ in range(1001))), Renewals()
        await keeper_of(runtime, store, held).work()
        assert [len(leases) for leases in store.asked] == [500, 500, 1]

    with_runtime(world, scenario)


def test_without_leases_nothing_is_asked(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        store = Renewals()
        await keeper_of(runtime, store, Held(runtime)).work()
        assert store.asked == []

    with_runtime(world, scenario)


def test_it_renews_at_a_third_of_the_lease(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        keeper = keeper_of(runtime, Renewals(), Held(runtime))
        pauses = []

        async def watched(predicate: Any, timeout: float | None = None) -> bool:
            pauses.append(timeout)
            return False

        keeper.monitor.wait_for = watched  # type: ignore[method-assign]
        await keeper.step()
        assert pauses == [10.0]

    with_runtime(world, scenario)


def test_a_renewal_that_failed_is_repeated_soon(world: World) -> None:
    """Not after another third of the lease: two of them may be all that it has."""

    async def scenario(runtime: Any) -> None:
        row = claimed(runtime, valid_for=1)
        held, store = held_of(runtime, row), Renewals()
        store.errors = [Unreachable("once"), Unreachable("twice")]
        keeper = keeper_of(runtime, store, held, lock_timeout=timedelta(hours=1))
        keeper.interval = 0.001
        keeper.start()
        await store.asked.reach(1)
        keeper.interval = 3600.0
        await store.asked.reach(3)
        assert await keeper.stop(PATIENCE)
        assert leases_of(held)[row.event.event_id].deadline > runtime.clock() + 1800

    with_runtime(world, scenario)


# ---------------------------------------------------------------- with a real store


def test_a_handler_longer_than_the_lease_runs_once(world: World) -> None:
    """TC-476: renewed all the time, its row is nobody else's."""

    async def scenario() -> None:
        store, seen, entered, release = faulty_store(world), Collector(), Signal(), Signal()

        def listener(event: EventEnvelope) -> None:
            seen.add(event)
            entered.set()
            release.wait_here()

        first = world.outbox(store, lock_timeout="1500ms", poll_interval="1h")
        first.register("Happened", listener)
        second = world.outbox(lock_timeout="1500ms")
        second.register("Happened", seen.add)
        async with first:
            await write(first)
            await entered.wait()
            started = first._engine.runtime.clock()
            await store.calls["renew"].reach(4)
            assert await second.poll() == 0
            assert first._engine.runtime.clock() - started > 1.5, "the lease as it was born is over"
            release.set()
            await world.until_settled(1)
            assert "lease_lost" not in (await first.stats()).counters
        assert len(seen) == 1

    world.run(scenario)


def test_an_event_whose_lease_was_lost_while_it_waited_is_not_started(world: World) -> None:
    """F20"""

    async def scenario() -> None:
        seen, entered, release = Collector(), Signal(), Signal()

        async def async_listener(event: EventEnvelope) -> None:
            seen.add(event.event_id)
            entered.set()
            await release.wait()

        outbox = world.outbox(poll_interval="1h", worker_count=1)
        outbox.register("Happened", async_listener)
        async with outbox:
            await write(outbox, 2)
            await entered.wait()
            waiting = next(row["event_id"] for row in world.rows() if row["event_id"] not in seen)
            world.change("UPDATE outbox_event SET locked_by = 'another', lease_epoch = 9 WHERE event_id = ?", waiting)
            engine = outbox._engine
            clock = engine.runtime.clock
            engine.runtime.clock = lambda: clock() + 15.0  # half of a lease later; its deadline is not over
            await engine.keeper.work()
            release.set()
            await world.until_settled(1)
            assert await engine.dispatcher.lanes.quiet(PATIENCE)
            await engine.settler.flush()
        assert len(seen) == 1
        assert waiting not in seen
        row = world.rows("SELECT * FROM outbox_event WHERE event_id = ?", waiting)[0]
        assert (row["status"], row["locked_by"], row["lease_epoch"]) == (EventStatus.NEW, "another", 9)

    world.run(scenario)


def test_a_store_that_was_away_for_too_long_costs_the_right_to_start(world: World) -> None:
    """The deadline passes without a renewal: what waits goes back, although nobody has taken it."""

    async def scenario() -> None:
        seen, entered, release = Collector(), Signal(), Signal()

        def listener(event: EventEnvelope) -> None:
            seen.add(event.event_id)
            entered.set()
            release.wait_here()

        outbox = world.outbox(poll_interval="1h", worker_count=1, poller_enabled=False)
        outbox.register("Happened", listener)
        async with outbox:
            await write(outbox, 2)
            await entered.wait()
            engine = outbox._engine
            clock = engine.runtime.clock
            engine.runtime.clock = lambda: clock() + 25.0
            release.set()
            await world.until("SELECT count(*) = 1 FROM outbox_event WHERE status = 0 AND locked_by IS NULL")
            await world.until_settled(1)
        assert len(seen) == 1

    world.run(scenario)


def test_a_renewal_after_the_settle_changes_nothing(world: World) -> None:
    async def scenario() -> None:
        store = faulty_store(world)
        outbox = world.outbox(store)
        outbox.register("Happened", lambda event: None)
        await write(outbox)
        engine = outbox._current()
        (run,) = engine.poller.deliverable((await engine.poller.claim(1)).claim)
        engine.settler.add(*engine.held.admit(run), Done())
        await engine.settler.flush()
        before = [tuple(each) for each in world.rows()]
        assert list(await store.renew([run[0].lease], HALF_A_MINUTE)) == []
        assert [tuple(each) for each in world.rows()] == before

    world.run(scenario)


def test_a_renewal_moves_the_end_of_the_lease_on_the_database_clock(world: World) -> None:
    async def scenario() -> None:
        store = faulty_store(world)
        outbox = world.outbox(store)
        outbox.register("Happened", lambda event: None)
        await write(outbox)
        engine = outbox._current()
        ((row,),) = engine.poller.deliverable((await engine.poller.claim(1)).claim)
        world.change("UPDATE outbox_event SET lease_until = 1")
        assert list(await store.renew([row.lease], HALF_A_MINUTE)) == [row.lease.key], "nobody has taken it"
        left = world.rows("SELECT (lease_until - locked_at) / 1e6 FROM outbox_event")[0][0]
        assert 30 <= left < 30 + PATIENCE

    world.run(scenario)


def test_the_keeper_of_a_drain_ends_with_it(world: World) -> None:
    """Not started, drain() keeps leases alive while it delivers one after the other, and leaves no task behind."""

    async def scenario() -> None:
        store, seen = faulty_store(world), Collector()

        async def listener(event: EventEnvelope) -> None:
            seen.add(event)
            await asyncio.to_thread(store.calls["renew"]._wait, 2, PATIENCE)

        outbox = world.outbox(store, lock_timeout="150ms")
        outbox.register("Happened", listener)
        await write(outbox)
        assert (await outbox.drain()).delivered == 1
        assert len(seen) == 1
        assert world.statuses() == [1]

    world.run(scenario)
