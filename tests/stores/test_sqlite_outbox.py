"""The store under a whole outbox: nodes that share a table, failures of the store, upkeep."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from aftercommit import Fixed, Outbox, OutboxConfig, RetryAfter
from aftercommit.errors import OutboxError
from aftercommit.events.envelope import EventEnvelope, EventStatus
from aftercommit.runtime.threads import run
from aftercommit.testing.kit import DAY, event, ids, take
from tests.stores.kit import alter, insert, read, store_at
from tests.support import Collector, World

NOW = "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000"


# ---------------------------------------------------------------- nodes


def test_claims_at_once_take_every_row_once(tmp_path: Path) -> None:
    """TC-107 to TC-109, with four claimers that really run beside each other."""
    path = tmp_path / "outbox.db"
    store = store_at(path)
    run(store.open())
    given = [event() for _ in range(200)]
    run(insert(store, *given))
    start, taken = threading.Barrier(4), Collector()

    def claim(owner: str) -> None:
        own = store_at(path)
        start.wait()
        while rows := run(take(own, owner, limit=7)):
            for row in rows:
                taken.add((row.event.event_id, owner))
        run(own.close())

    threads = [threading.Thread(target=claim, args=(f"node-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run(store.close())
    assert sorted(event_id for event_id, _ in taken) == ids(given)
    assert {(row["event_id"], row["locked_by"]) for row in read(path, "SELECT * FROM outbox_event")} == set(taken)


def test_two_nodes_deliver_every_event_once(world: World, colour: Any) -> None:
    """TC-117, with a count for each id: a set would hide what came twice."""

    async def scenario() -> None:
        seen = Collector()
        writer = world.outbox(wiring="writer_only")
        async with writer.transaction():
            written = await writer.write_all([EventEnvelope.of_json("UserCreated", "{}") for _ in range(10)])
        options: dict[str, Any] = {"batch_size": 5, "poll_interval": "50ms", "lock_timeout": "5m"}
        nodes = [world.outbox(wiring="multi_node", **options) for _ in range(2)]
        for node in nodes:
            node.register("UserCreated", colour(lambda each: seen.add(each.event_id)))
        async with nodes[0], nodes[1]:
            await seen.reach(10)
            await world.until_settled(10)
        assert Counter(seen) == Counter(written)

    world.run(scenario)


@pytest.mark.parametrize("lock_timeout", [0, -1, "0s"])
def test_a_lease_of_no_time_is_refused(lock_timeout: Any) -> None:
    """TC-118"""
    with pytest.raises(OutboxError, match="lock_timeout"):
        OutboxConfig(lock_timeout=lock_timeout)


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_error_that_is_no_exception_is_an_attempt(world: World, error: type[BaseException]) -> None:
    """TC-480: it is counted, and the worker goes on."""

    async def scenario() -> None:
        seen = Collector()

        def listener(each: EventEnvelope) -> None:
            seen.add(each.payload_json)
            if each.payload_json == "1":
                raise error("stop it")

        outbox = world.outbox(worker_count=1, retry_policy=Fixed("1h"))
        outbox.register("A", listener)
        async with outbox:
            async with outbox.transaction():
                await outbox.write_all([EventEnvelope.of_json("A", text) for text in ("1", "2")])
            await seen.reach(2)
            await world.until_settled(1)
            await world.until_settled(1, EventStatus.RETRY)
        failed, done = world.rows()
        assert (failed["attempts"], failed["status"]) == (1, EventStatus.RETRY)
        assert error.__name__ in failed["last_error"]
        assert done["status"] == EventStatus.DONE

    world.run(scenario)


def test_an_outcome_that_cannot_be_written_is_no_failure_of_the_handler(
    world: World, colour: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """TC-481, F19: written when the store is back; the handler is called once."""

    async def scenario() -> None:
        calls, failed = Collector(), Collector()
        outbox = world.outbox(worker_count=1)
        store = outbox._store
        settle = store.settle

        async def flaky(settlements: Any) -> Any:
            if len(failed) < 3:
                failed.add(len(settlements))
                raise sqlite3.OperationalError("disk I/O error")
            return await settle(settlements)

        store.settle = flaky
        outbox.register("A", colour(lambda each: calls.add(each.event_id)))
        with caplog.at_level(logging.CRITICAL, logger="aftercommit"):
            async with outbox:
                async with outbox.transaction():
                    await outbox.write("A", {})
                await failed.reach(3)
                await world.until_settled(1)
        row = world.rows()[0]
        assert (row["attempts"], row["last_error"], len(calls)) == (0, None, 1)

    world.run(scenario)


@pytest.mark.parametrize(
    "damage",
    ["payload = CAST(x'ff' AS TEXT)", "headers = '[1]'", "occurred_at = 'yesterday'"],
    ids=["payload", "headers", "time"],
)
def test_a_damaged_row_ends_dead_and_the_others_are_delivered(world: World, colour: Any, damage: str) -> None:
    """TC-482, promise 11: once, and not round in circles."""

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox()
        outbox.register("A", colour(lambda each: seen.add(each.payload_json)))
        async with outbox.transaction():
            await outbox.write_all([EventEnvelope.of_json("A", text) for text in ("1", "2", "3")])
        world.change(f"UPDATE outbox_event SET {damage} WHERE payload = '2'")
        result = await outbox.drain("20s")
        assert (result.delivered, result.dead, result.is_complete) == (2, 1, True)
        assert sorted(seen) == ["1", "3"]
        assert [row[0] for row in world.rows("SELECT status FROM outbox_event ORDER BY position")] == [1, 3, 1]
        (dead,) = await outbox.dead.query()
        assert dead.attempts == 0
        assert dead.last_error

    world.run(scenario)


@pytest.mark.parametrize("delay", [timedelta(days=365_000), timedelta.max], ids=["long", "longest"])
def test_a_handler_that_asks_for_a_delay_without_end_gets_it(world: World, colour: Any, delay: timedelta) -> None:
    """An outcome that could never be written would be tried for ever."""

    async def scenario() -> None:
        outbox = world.outbox()
        outbox.register("A", colour(lambda each: RetryAfter(delay)))
        async with outbox.transaction():
            await outbox.write("A", {})
        result = await outbox.drain("20s")
        assert (result.deferred, result.is_complete) == (1, True)
        assert world.statuses() == [EventStatus.RETRY]

    world.run(scenario)


# ---------------------------------------------------------------- dead letters


def make_dead(world: World, *types: str) -> None:
    """Rows that ran out of attempts, in this order."""
    store = store_at(world.path)
    run(store.open())
    run(insert(store, *[event(each) for each in types]))
    run(store.close())
    world.change(f"UPDATE outbox_event SET status = 3, attempts = 10, last_error = 'no', done_at = {NOW}")


@pytest.mark.parametrize(("batch_size", "count"), [(1, 3), (2, 3), (3, 3), (100, 3)])
def test_replaying_all_replays_each_once(world: World, batch_size: int, count: int) -> None:
    """TC-215"""
    make_dead(world, *["A"] * count)

    async def scenario() -> None:
        outbox = world.outbox()
        assert await outbox.dead.replay_all(batch_size=batch_size) == count
        assert world.statuses() == [EventStatus.NEW] * count
        assert await outbox.dead.replay_all(batch_size=batch_size) == 0

    world.run(scenario)


def test_replaying_all_ends_when_everything_dies_again_at_once(world: World) -> None:
    """TC-218: the interleaving is forced; each batch is dead again before the next is asked for."""
    make_dead(world, *["A"] * 5)

    async def scenario() -> None:
        outbox = world.outbox()
        records = outbox._store.records
        replay_after, asked = records.replay_after, Collector()

        async def dying(*arguments: Any) -> Any:
            asked.add(arguments)
            assert len(asked) < 10, "it goes round in circles"
            answer = await replay_after(*arguments)
            world.change("UPDATE outbox_event SET status = 3")
            return answer

        records.replay_after = dying
        assert await outbox.dead.replay_all(batch_size=2) == 5
        assert len(asked) == 3

    world.run(scenario)


@pytest.mark.parametrize("batch_size", [0, -1, True, 1.5, None])
def test_a_batch_of_nothing_is_refused(world: World, batch_size: Any) -> None:
    """TC-216"""
    make_dead(world, "A")

    async def scenario() -> None:
        with pytest.raises(OutboxError, match="batch_size"):
            await world.outbox().dead.replay_all(batch_size=batch_size)

    world.run(scenario)
    assert world.statuses() == [EventStatus.DEAD]


@pytest.mark.parametrize("call", ["query", "count", "replay", "replay_all", "discard"])
@pytest.mark.parametrize("problem", ["connection", "statement"])
def test_a_store_that_fails_fails_in_the_callers_hands(world: World, call: str, problem: str) -> None:
    """TC-217"""
    make_dead(world, "A")

    async def scenario() -> None:
        outbox = world.outbox()
        assert await outbox.dead.count() == 1
        await outbox.close()
        if problem == "statement":
            world.change("ALTER TABLE outbox_event RENAME TO elsewhere")
        else:
            world.path.rename(world.folder / "elsewhere.db")
            world.path.mkdir()
        arguments = ["some-id"] if call in ("replay", "discard") else []
        with pytest.raises((sqlite3.Error, OutboxError)):
            await getattr(outbox.dead, call)(*arguments)

    world.run(scenario)


# ---------------------------------------------------------------- purge


def make_old(world: World, count: int = 1, status: int = 1) -> None:
    """Rows that ended ten days ago."""
    store = store_at(world.path)
    run(store.open())
    run(insert(store, *[event() for _ in range(count)]))
    run(store.close())
    old = f"{NOW} - {10 * DAY}"
    done_at = old if status in (1, 3) else "NULL"
    alter(
        world.path,
        f"UPDATE outbox_event SET status = ?, created_at = {old}, done_at = {done_at} WHERE created_at > {old} + 1",
        status,
    )


def test_a_purge_by_hand_removes_what_is_done_and_old(world: World) -> None:
    """TC-205"""
    for status in EventStatus:
        make_old(world, status=status)

    async def scenario() -> None:
        outbox = world.outbox(purge_retention="7d")
        assert await outbox.purge() == 1
        assert sorted(world.statuses()) == [EventStatus.NEW, EventStatus.RETRY, EventStatus.DEAD]
        assert await outbox.purge("30d", dead=True) == 0
        assert await outbox.purge("1d", dead=True) == 1
        assert sorted(world.statuses()) == [EventStatus.NEW, EventStatus.RETRY]

    world.run(scenario)


def test_a_purge_goes_on_until_nothing_old_is_left(world: World) -> None:
    """TC-206: three full batches, and one to see that there is no more."""
    make_old(world, count=1500)

    async def scenario() -> None:
        outbox = world.outbox(purge_retention="7d", purge_batch_size=500)
        assert await outbox.purge() == 1500
        assert world.rows() == []

    world.run(scenario)


def test_a_started_outbox_purges_by_itself_also_after_it_was_closed(world: World) -> None:
    """TC-207, but that start() after close() works again."""

    async def scenario() -> None:
        outbox = world.outbox(purge_retention="7d", purge_interval="1h")
        for _ in range(2):
            make_old(world)
            await outbox.start()
            await outbox.start()
            await world.until("SELECT count(*) = 0 FROM outbox_event")
            await outbox.close()
            await outbox.close()

    world.run(scenario)


def test_a_writer_purges_by_age_alone(world: World) -> None:
    """TC-203"""
    for status in EventStatus:
        make_old(world, status=status)

    async def scenario() -> None:
        outbox = world.outbox(wiring="writer_only", purge_retention="7d")
        assert await outbox.purge() == 4

    world.run(scenario)


@pytest.mark.parametrize(
    "options",
    [
        {"purge_batch_size": 0},
        {"purge_retention": "-1d"},
        {"purge_retention": "7d", "purge_interval": 0},
        {"purge_interval": "1h"},
    ],
    ids=str,
)
def test_a_purge_that_makes_no_sense_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    """TC-208"""
    with pytest.raises(OutboxError, match="purge"):
        Outbox(f"sqlite:///{tmp_path}/outbox.db", **options)
