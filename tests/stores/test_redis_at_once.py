"""A write outside of any block goes a shorter way than one in a block of its own. Nobody can tell them apart: the same
errors, counters, hooks and slots, and cancelled it is committed and delivered, or has never been."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from aftercommit import EventEnvelope, InvalidEvent, OutboxError, StoreUnavailable, WriterHook
from tests.promises.waiting import until
from tests.redis_servers import PrivateRedis, connected
from tests.stores.redis_kit import Keys
from tests.support import Collector, Signal, World
from tests.transactions.kit import all_at_once, elsewhere, engine_of, free_slots, hot_count, payloads
from tests.transactions.test_cancellation import CancelledAt

CAPACITY = 20

#: Both ways, which have to be alike.
WAYS = pytest.mark.parametrize("way", ["by itself", "in a block"])


@pytest.fixture(params=["threads", "asyncio"])
def private_world(request: pytest.FixtureRequest, tmp_path: Path, private_redis: PrivateRedis) -> Iterator[World]:
    """Either runtime over a Redis of its own."""
    made = World(request.param, tmp_path, "redis", private_redis.url)
    yield made
    made.somebody.close()


def listening(world: World, keys: Keys, **options: Any) -> tuple[Any, Collector]:
    """An outbox whose only way to deliver is the hot path, and what its handler of "T" saw."""
    seen = Collector()
    options = {"poller_enabled": False, "hot_queue_capacity": CAPACITY} | options
    outbox = world.outbox(keys.url, table=keys.table, **options)
    outbox.register("T", seen.add)
    return outbox, seen


async def written(outbox: Any, way: str, events: Sequence[EventEnvelope]) -> list[str]:
    if way == "by itself":
        return list(await outbox.write_all(events))
    async with outbox.transaction():
        return list(await outbox.write_all(events))


def event(number: int) -> EventEnvelope:
    return EventEnvelope.of_json("T", str(number))


# ---------------------------------------------------------------- errors


@WAYS
@pytest.mark.parametrize("is_there", [True, False])
def test_a_duplicate_is_refused_in_the_same_words_and_holds_no_slot(
    world: World, redis_keys: Keys, way: str, is_there: bool
) -> None:
    """By the server, when it is there already; or before anything is sent."""

    async def scenario() -> None:
        outbox, seen = listening(world, redis_keys)
        async with outbox:
            first = event(1)
            if is_there:
                await outbox.write(first)
                await seen.reach(1)
                first = event(2)
                await written(outbox, "in a block", [first.replace(deliver_after="1h")])
            before = redis_keys.rows()
            with pytest.raises(InvalidEvent) as caught:
                await written(outbox, way, [event(3), first] if is_there else [first, first])
            until(lambda: free_slots(outbox) == CAPACITY, what="all slots are free")
            assert len(redis_keys.rows()) <= len(before)
        assert "is a duplicate: it is there already\n  Fix: give each event an id of its own" in str(caught.value)
        assert "event " + first.event_id in str(caught.value) if is_there else "written twice" in str(caught.value)
        assert payloads(seen) == (["1"] if is_there else [])

    world.run(scenario)


def test_an_outage_is_told_in_the_same_words_and_holds_no_slot(
    private_world: World, private_redis: PrivateRedis
) -> None:
    """It ends while nobody uses the connection that is kept."""
    world, keys = private_world, Keys(private_redis.url)

    async def scenario() -> None:
        outbox, seen = listening(world, keys)
        async with outbox:
            await outbox.write("T", "1")
            await seen.reach(1)
            private_redis.stop()
            with pytest.raises(StoreUnavailable):  # the loop may not have heard yet that the connection has ended
                await outbox.write("T", "2")
            told = []
            for way in ("by itself", "in a block"):
                with pytest.raises(StoreUnavailable) as caught:
                    await written(outbox, way, [event(2)])
                told.append(str(caught.value))
                assert free_slots(outbox) == CAPACITY
            assert told[0] == told[1]
            assert "cannot be reached" in told[0]
            assert hot_count(outbox) == 1
            private_redis.start()
            await outbox.write("T", "3")
            await seen.reach(2)
        assert payloads(seen) == ["1", "3"]

    world.run(scenario)
    keys.client.close()


# ---------------------------------------------------------------- counters


@WAYS
def test_what_finds_no_slot_is_silent_to_the_writer_and_counted(world: World, redis_keys: Keys, way: str) -> None:
    async def scenario() -> None:
        entered, leave, seen = Signal(), Signal(), Collector()

        def slow(given: EventEnvelope) -> None:
            entered.set()
            leave.wait_here()
            seen.add(given)

        outbox = world.outbox(
            redis_keys.url, table=redis_keys.table, hot_queue_capacity=1, worker_count=1, poll_interval="1h"
        )
        outbox.register("T", slow)
        async with outbox:
            await outbox.poll()
            await written(outbox, way, [event(0)])
            await entered.wait()
            assert len(await written(outbox, way, [event(1), event(2), event(3)])) == 3
            counted = engine_of(outbox).meter.counts()
            assert (counted["hot_enqueued"], counted["hot_dropped"]) == (2, 2)
            assert sum(row["locked_by"] is not None for row in redis_keys.rows()) >= 2
            leave.set()
            await seen.reach(4)  # the poller was woken, although its interval is an hour
        assert payloads(seen) == ["0", "1", "2", "3"]

    world.run(scenario)


@WAYS
def test_an_event_that_waits_for_its_time_is_born_free_and_counted(world: World, redis_keys: Keys, way: str) -> None:
    async def scenario() -> None:
        outbox, seen = listening(world, redis_keys)
        async with outbox:
            await written(outbox, way, [EventEnvelope("T", payload_json="1", deliver_after="1h"), event(2)])
            await seen.reach(1)
            counted = engine_of(outbox).meter.counts()
            assert (counted["hot_enqueued"], counted["hot_skipped_delayed"]) == (1, 1)
            assert counted.get("hot_dropped", 0) == 0
        assert payloads(seen) == ["2"]

    world.run(scenario)


@WAYS
def test_an_outbox_that_is_not_started_writes_free_rows_and_counts_nothing(
    world: World, redis_keys: Keys, way: str
) -> None:
    async def scenario() -> None:
        outbox, _ = listening(world, redis_keys)
        await written(outbox, way, [event(1), event(2)])
        assert [row["locked_by"] for row in redis_keys.rows()] == [None, None]
        assert engine_of(outbox).meter.counts() == {}
        await outbox.close()

    world.run(scenario)


# ---------------------------------------------------------------- hooks


class Telling(WriterHook):
    """Tells of its phases, and writes an event of its own beside each "T"."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, list[str]]] = []
        self.also: Any = None

    def _tell(self, phase: str, events: Sequence[EventEnvelope]) -> None:
        self.phases.append((phase, [each.event_type for each in events]))

    def before_write(self, events: Sequence[EventEnvelope]) -> Sequence[EventEnvelope]:
        self._tell("before_write", events)
        if self.also is not None and events[0].event_type == "T":
            self.also("Audited", "{}")
        return events

    def after_write(self, events: Sequence[EventEnvelope]) -> None:
        self._tell("after_write", events)

    def after_commit(self, events: Sequence[EventEnvelope]) -> None:
        self._tell("after_commit", events)

    def after_rollback(self, events: Sequence[EventEnvelope]) -> None:
        self._tell("after_rollback", events)


@WAYS
def test_a_hook_hears_of_its_phases_in_the_same_order(world: World, redis_keys: Keys, way: str) -> None:
    hook = Telling()

    async def scenario() -> None:
        outbox, seen = listening(world, redis_keys, writer_hook=hook)
        async with outbox:
            first = event(1)
            await written(outbox, way, [first.replace(deliver_after="1h")])
            with pytest.raises(InvalidEvent):
                await written(outbox, way, [first])
            assert free_slots(outbox) == CAPACITY
        assert seen == []

    world.run(scenario)
    assert [phase for phase, _ in hook.phases] == [
        "before_write", "after_write", "after_commit", "before_write", "after_write", "after_rollback",
    ]  # fmt: skip


def test_what_a_hook_writes_beside_an_event_shares_its_fate(redis_keys: Keys, tmp_path: Path) -> None:
    """Under threads, where a hook, which is no coroutine, can write."""
    world, hook = World("threads", tmp_path), Telling()

    async def scenario() -> None:
        outbox, _ = listening(world, redis_keys, writer_hook=hook)
        hook.also = outbox.plain.write
        first = event(1)
        await outbox.write(first)
        with pytest.raises(InvalidEvent):
            await outbox.write(first)
        assert sorted(row["event_type"] for row in redis_keys.rows()) == ["Audited", "T"]

    world.run(scenario)


# ---------------------------------------------------------------- cancelled


@pytest.mark.parametrize("moment", ["early", "late"])
def test_a_cancelled_write_is_committed_and_delivered_or_has_never_been(
    redis_keys: Keys, tmp_path: Path, moment: str
) -> None:
    """At each of its awaits."""
    world = World("asyncio", tmp_path)

    async def scenario() -> None:
        outbox, seen = listening(world, redis_keys, delete_completed=False)
        async with outbox:
            suspension, outcomes = 0, []
            while not outcomes or outcomes[-1] != "not cancelled":
                suspension += 1
                cancelled = CancelledAt(outbox.write("T", str(suspension)), suspension, moment)
                task = asyncio.ensure_future(_awaited(cancelled))
                await asyncio.wait({task})
                is_there = len(redis_keys.rows()) == len(outcomes) + 1 - outcomes.count("never")
                if is_there:
                    await seen.reach(len(outcomes) + 1 - outcomes.count("never"))
                until_free = asyncio.to_thread(until, lambda: free_slots(outbox) == CAPACITY, what="all slots are free")
                await until_free
                if not task.cancelled():
                    assert is_there
                    outcomes.append("not cancelled")
                else:
                    outcomes.append("committed" if is_there else "never")
            assert "committed" in outcomes
            assert hot_count(outbox) == len(seen) == len(outcomes) - outcomes.count("never")

    world.run(scenario)


async def _awaited(work: Any) -> Any:
    return await work


def test_a_write_that_is_cancelled_while_the_server_stands_still_is_delivered_once(
    private_redis: PrivateRedis, tmp_path: Path
) -> None:
    world, keys = World("asyncio", tmp_path), Keys(private_redis.url)

    async def scenario() -> None:
        outbox, seen = listening(world, keys)
        async with outbox:
            await outbox.write("T", "1")
            await seen.reach(1)
            private_redis.ask("CLIENT", "PAUSE", 60_000, "WRITE")
            task = asyncio.ensure_future(outbox.write("T", "2"))
            await asyncio.to_thread(until, lambda: waits(private_redis), what="a write that waits")
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(0)
            assert not task.done(), "nobody knows yet whether it is committed"
            private_redis.ask("CLIENT", "UNPAUSE")
            with pytest.raises(asyncio.CancelledError):
                await task
            await seen.reach(2)
            await outbox.write("T", "3")
            await seen.reach(3)
            assert hot_count(outbox) == 3
        assert payloads(seen) == ["1", "2", "3"]

    world.run(scenario)
    keys.client.close()


def waits(server: PrivateRedis) -> bool:
    with connected(server.url) as client:
        return any("b" in each["flags"] for each in client.client_list())


# ---------------------------------------------------------------- given up


def test_a_transaction_that_nobody_can_end_any_more_is_ended_by_the_next_write(world: World, redis_keys: Keys) -> None:
    async def scenario() -> None:
        outbox, _ = listening(world, redis_keys)
        async with outbox:

            async def lose() -> None:
                tx = await outbox.begin()
                await outbox.write("T", "1", tx=tx)

            await elsewhere(world, lose)
            gc.collect()
            assert free_slots(outbox) == CAPACITY - 1
            await outbox.write("Unheard", "2")
            assert free_slots(outbox) == CAPACITY
            assert [row["event_type"] for row in redis_keys.rows()] == ["Unheard"]

    world.run(scenario)


# ---------------------------------------------------------------- connections


def test_a_connection_that_was_cut_while_nobody_used_it_is_opened_again(
    private_world: World, private_redis: PrivateRedis
) -> None:
    world, keys = private_world, Keys(private_redis.url)

    async def scenario() -> None:
        outbox = world.outbox(keys.url, table=keys.table)
        for number in range(10):
            await outbox.write("T", str(number))
            with connected(private_redis.url) as client:
                assert client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") >= 1
            if world.is_async:
                await asyncio.sleep(0.001)  # in which the loop hears of it
        assert len(keys.rows()) == 10
        await outbox.close()

    world.run(scenario)
    keys.client.close()


@pytest.mark.parametrize("largest", [1, 3])
def test_many_writers_take_turns_on_few_connections(
    private_world: World, private_redis: PrivateRedis, largest: int
) -> None:
    """No more than were asked for, and nobody waits for one that is idle."""
    world, keys = private_world, Keys(private_redis.url)

    async def scenario() -> None:
        outbox = world.outbox(f"{keys.url}/0?max_connections={largest}", table=keys.table)
        await outbox.write("T", "0")

        async def work() -> None:
            for number in range(25):
                await outbox.write("T", str(number))

        before = int(keys.client.info("stats")["total_connections_received"])
        await all_at_once(world, [work] * 8)
        assert int(keys.client.info("stats")["total_connections_received"]) - before < largest
        assert len(keys.rows()) == 201
        await outbox.close()

    world.run(scenario)
    keys.client.close()


def test_what_is_larger_than_a_buffer_of_the_loop_is_written_too(world: World, redis_keys: Keys) -> None:
    async def scenario() -> None:
        outbox, seen = listening(world, redis_keys)
        async with outbox:
            await outbox.write("T", '"' + "x" * 300_000 + '"')
            await outbox.write("T", "2")
            await seen.reach(2)
        assert sorted(map(len, payloads(seen))) == [1, 300_002]

    world.run(scenario)


def test_an_error_of_a_driver_is_never_that_of_somebody_else(world: World, redis_keys: Keys) -> None:
    """An answer that nobody waited for would be heard by the next one that takes the connection."""

    async def scenario() -> None:
        outbox = world.outbox(redis_keys.url, table=redis_keys.table)
        first = event(1)
        await outbox.write(first)
        for number in range(2, 12):
            with pytest.raises(OutboxError):
                await outbox.write(first)
            assert await outbox.write(event(number)) is not None
        assert len(redis_keys.rows()) == 11

    world.run(scenario)
