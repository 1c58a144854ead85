"""From the commit to the handler: not before the row can be seen, soon after it, and once."""

from __future__ import annotations

import sqlite3
import threading
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from aftercommit import EventEnvelope, EventStatus, Outbox, WriterHook
from tests.support import Collector, Signal, World
from tests.transactions.kit import engine_of, free_slots, hot_count, listening, payloads, until_clock


def counters(outbox: Any) -> dict[str, int]:
    return engine_of(outbox).meter.counts()


# ---------------------------------------------------------------- not before


class Delaying(WriterHook):
    """Gives a handler that starts too early all the time it needs to be caught."""

    def __init__(self, started: threading.Event) -> None:
        self.started = started
        self.early: list[str] = []

    def look(self, phase: str) -> None:
        if self.started.wait(0.02):
            self.early.append(phase)

    def before_write(self, events: list[EventEnvelope]) -> list[EventEnvelope]:
        self.look("before_write")
        return events

    def after_write(self, events: list[EventEnvelope]) -> None:
        self.look("after_write")


@pytest.mark.parametrize("depth", [1, 2])
def test_no_handler_starts_before_another_connection_can_see_the_row(world: World, colour: Any, depth: int) -> None:
    """F06, TC-182: looked at from inside the handler, with a hook that holds the writer up."""

    async def scenario() -> None:
        seen, started = Collector(), threading.Event()
        hook = Delaying(started)

        def handler(event: EventEnvelope) -> None:
            started.set()
            connection = sqlite3.connect(world.path)
            seen.add(connection.execute("SELECT event_id FROM outbox_event").fetchall() == [(event.event_id,)])
            connection.close()

        outbox = world.outbox(writer_hook=hook, poll_interval="1h")
        outbox.register("T", colour(handler))
        async with outbox:
            async with outbox.transaction():
                if depth == 2:
                    async with outbox.transaction():
                        await outbox.write("T", {})
                else:
                    await outbox.write("T", {})
                hook.look("before the commit")
                assert hot_count(outbox) == 0
            await seen.reach(1)
            await world.until_settled(1)
        assert seen == [True]
        assert hook.early == []

    world.run(scenario)


# ---------------------------------------------------------------- soon, from memory


def test_a_committed_batch_is_delivered_from_memory(world: World, colour: Any) -> None:
    """TC-182, TC-185, TC-187: no poll is needed for it."""

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(wiring="single_node", poll_interval="60s")
        outbox.register("T", colour(seen.add))
        async with outbox:
            await outbox.poll()  # the first look of the poller is over
            async with outbox.transaction():
                ids = await outbox.write_all([EventEnvelope.of_json("T", str(number)) for number in range(3)])
            await seen.reach(3)
            await world.until_settled(3)
            assert counters(outbox)["hot_enqueued"] == 3
            assert "cold_enqueued" not in counters(outbox)
        assert sorted(event.event_id for event in seen) == sorted(ids)
        assert world.statuses() == [EventStatus.DONE] * 3

    world.run(scenario)


def test_a_rolled_back_event_is_never_delivered(world: World) -> None:
    """TC-078, TC-181: what was written after it is, so there was time for both."""

    async def scenario() -> None:
        outbox, seen = listening(world, poller_enabled=True, poll_interval="5ms", worker_count=1)
        async with outbox:
            tx = await outbox.begin()
            await outbox.write("T", '"rolled back"')
            await tx.rollback()
            async with outbox.transaction():
                await outbox.write("T", '"committed"')
            await seen.reach(1)
            await world.until_settled(1)
            await outbox.poll()
        assert payloads(seen) == ['"committed"']

    world.run(scenario)


@pytest.mark.parametrize("schedule", ["absolute", "relative"])
def test_a_delayed_event_never_takes_the_hot_path(world: World, schedule: str) -> None:
    """TC-158, TC-159, TC-186: also when its time has come already."""
    if schedule == "absolute":
        before = datetime.now(UTC) - timedelta(hours=1)
        event = EventEnvelope("T", payload_json="1", occurred_at=before, available_at=before + timedelta(seconds=1))
    else:
        event = EventEnvelope("T", payload_json="1", deliver_after="1ms")

    async def scenario() -> None:
        outbox, seen = listening(world)
        async with outbox:
            async with outbox.transaction():
                await outbox.write(event)
                await outbox.write("T", "2")
            await seen.reach(1)
            await world.until_settled(1)
            assert payloads(seen) == ["2"]
            assert {name: counters(outbox).get(name, 0) for name in ("hot_enqueued", "hot_dropped")} == {
                "hot_enqueued": 1,
                "hot_dropped": 0,
            }
            assert counters(outbox)["hot_skipped_delayed"] == 1
        row = world.rows()[0]
        assert (row["status"], row["locked_by"]) == (EventStatus.NEW, None)

        second, seen = listening(world, poller_enabled=True, poll_interval="5ms")
        async with second:
            await seen.reach(1)
        assert (seen[0].event_id, seen[0].is_delayed) == (event.event_id, True)
        assert seen[0].available_at == event.available_at

    world.run(scenario)


# ---------------------------------------------------------------- no slot


def test_what_finds_no_slot_is_left_to_the_poller(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """TC-157, TC-183: the writer notices nothing, the row is free, and it is counted and said."""

    async def scenario() -> None:
        entered, release, seen = Signal(), Signal(), Collector()

        def handler(event: EventEnvelope) -> None:
            entered.set()
            release.wait_here()
            seen.add(event)

        outbox = world.outbox(hot_queue_capacity=1, worker_count=1, poll_interval="1h", cold_queue_capacity=1)
        outbox.register("T", handler)
        async with outbox:
            await outbox.poll()
            async with outbox.transaction():
                await outbox.write("T", '"running"')
            await entered.wait()
            async with outbox.transaction():
                ids = await outbox.write_all([EventEnvelope.of_json("T", str(number)) for number in range(3)])
            assert len(ids) == 3
            rows = world.rows("SELECT * FROM outbox_event WHERE payload IN ('0', '1', '2') ORDER BY position")
            assert rows[0]["locked_by"] == engine_of(outbox).owner
            assert (counters(outbox)["hot_enqueued"], counters(outbox)["hot_dropped"]) == (2, 2)
            assert sum("the hot lane is full" in record.getMessage() for record in caplog.records) == 1
            release.set()
            await seen.reach(4)  # the poller was woken, although its interval is an hour
            await world.until_settled(4)
        assert len({event.event_id for event in seen}) == len(seen) == 4

    world.run(scenario)


@pytest.mark.parametrize("observed", [True, False])
def test_a_large_batch_is_written_in_chunks_and_takes_the_slots_that_there_are(world: World, observed: bool) -> None:
    """F13: several times what one statement could bind; no error, no wrong order, no more slots than there are."""
    count = 5_000

    async def scenario() -> None:
        outbox, _ = listening(world, hot_queue_capacity=100, worker_count=1)
        events = [EventEnvelope.of_json("T", "0") for _ in range(count)]
        connection = sqlite3.connect(world.path, isolation_level=None)
        async with outbox:
            if observed:
                async with outbox.transaction() as tx:
                    tx.connection  # noqa: B018  (handed out, so that all of them are looked for again)
                    ids = await outbox.write_all(events)
                    assert free_slots(outbox) == 0
            else:
                connection.execute("BEGIN IMMEDIATE")
                ids = await outbox.write_all(events, tx=connection)
                connection.execute("COMMIT")
            hot = 100 if observed else 0
            await world.until_settled(hot)
            assert free_slots(outbox) == 100
            assert (counters(outbox).get("hot_enqueued", 0), counters(outbox).get("hot_dropped", 0)) == (
                hot,
                count - 100 if observed else 0,
            )
        connection.close()
        assert ids == [event.event_id for event in events]
        assert [row[0] for row in world.rows("SELECT event_id FROM outbox_event ORDER BY position")] == ids
        assert world.rows("SELECT count(*) FROM outbox_event WHERE status = 0 AND locked_by IS NULL")[0][0] == (
            count - hot
        )

    world.run(scenario)


@pytest.mark.slow
def test_fifty_thousand_events_of_one_transaction_are_delivered_once_each(world: World) -> None:
    """F13: what does not fit into memory comes through the poller, as fast as there is room."""
    count = 50_000

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(batch_size=1000, poll_interval="1h")
        outbox.register("T", seen.add)
        async with outbox:
            async with outbox.transaction():
                await outbox.write_all([EventEnvelope.of_json("T", "0") for _ in range(count)])
            await seen.reach(count, timeout=90)
            await world.until_settled(count)
        assert len({event.event_id for event in seen}) == len(seen) == count

    world.run(scenario)


# ---------------------------------------------------------------- a transaction that outlives its lease


def test_a_transaction_longer_than_its_lease_is_delivered_once_and_by_the_poller(world: World) -> None:
    """B11: what was leased at write() may be somebody else's at the commit, so it is not delivered from memory."""

    async def scenario() -> None:
        outbox, seen = listening(
            world, poller_enabled=True, poll_interval="1h", lock_timeout="1s", hot_queue_capacity=3
        )
        async with outbox:
            await outbox.poll()
            async with outbox.transaction():
                await outbox.write("T", '"slow"')
                await until_clock(world, 1010)
            await seen.reach(1)
            await world.until_settled(1)
            await outbox.poll()
            assert (hot_count(outbox), counters(outbox)["cold_enqueued"]) == (0, 1)
            assert free_slots(outbox) == 3
        assert payloads(seen) == ['"slow"']

    world.run(scenario)


def test_a_poller_that_is_faster_than_the_callback_of_a_slow_transaction_delivers_alone(world: World) -> None:
    """B11: the other process claims between the COMMIT and its callback; both orders give one delivery."""
    other, theirs = Outbox(world.url), Collector()
    other.register("T", theirs.add)

    async def scenario() -> None:
        outbox, seen = listening(world, poller_enabled=True, poll_interval="1h", lock_timeout="1s")
        async with outbox:
            await outbox.poll()
            async with outbox.transaction() as tx:
                tx.after_commit(lambda: claimed.append(other.poll()))
                await outbox.write("T", '"slow"')
                await until_clock(world, 1010)
            assert claimed == [1], "the other one was not faster"
            await world.until_settled(1)
            await outbox.poll()
            assert (len(seen), len(theirs)) == (0, 1)

    claimed: list[int] = []
    world.run(scenario)
    other.close()


# ---------------------------------------------------------------- commits that nobody sees


def test_an_event_of_a_plain_connection_is_found_soon(world: World) -> None:
    """Although the poller comes by once an hour: it looks 5, 10, 20 … ms after such a write."""

    async def scenario() -> None:
        outbox, seen = listening(world, poller_enabled=True, poll_interval="1h")
        connection = sqlite3.connect(world.path)
        async with outbox:
            await outbox.poll()
            lost = await outbox.write("T", '"rolled back"', tx=connection)
            connection.rollback()
            kept = await outbox.write("T", '"committed"', tx=connection)
            connection.commit()
            await seen.reach(1)
            await world.until_settled(1)
            await outbox.poll()
            assert hot_count(outbox) == 0
        connection.close()
        assert [event.event_id for event in seen] == [kept] != [lost]

    world.run(scenario)


def test_the_poller_looks_again_and_again_for_what_was_written_unseen(world: World) -> None:
    """Less and less often: each pause is twice the one before."""

    async def scenario() -> None:
        outbox, seen = listening(world, poller_enabled=True, poll_interval="1h")
        connection = sqlite3.connect(world.path)
        looks = Collector()
        async with outbox:
            await outbox.poll()
            engine = engine_of(outbox)
            claim = engine.poller.claim

            async def counted(limit: int) -> Any:
                looks.add(engine.runtime.clock())
                return await claim(limit)

            engine.poller.claim = counted
            await outbox.write("T", '"rolled back"', tx=connection)
            connection.rollback()
            await looks.reach(5)
            await outbox.write("T", '"committed"', tx=connection)
            connection.commit()
            await seen.reach(1)
        connection.close()
        assert payloads(seen) == ['"committed"']
        pauses = [after - before for before, after in pairwise(looks[:5])]
        assert all(pause >= least for pause, least in zip(pauses, (0.009, 0.019, 0.039, 0.079), strict=True)), pauses

    world.run(scenario)


def test_a_plain_transaction_that_keeps_the_database_busy_is_found_after_its_commit(world: World) -> None:
    """The poller gives up waiting for the write lock, and has to come again although its interval is an hour."""

    def impatient() -> sqlite3.Connection:
        return sqlite3.connect(world.path, timeout=0.01, check_same_thread=False)

    async def scenario() -> None:
        outbox, seen = listening(world, impatient, poller_enabled=True, poll_interval="1h")
        connection = sqlite3.connect(world.path)
        async with outbox:
            await outbox.poll()
            poller, failed = engine_of(outbox).poller, Signal()
            survive = poller._survive

            async def noticed(error: Exception) -> None:
                failed.set()
                await survive(error)

            poller._survive = noticed
            await outbox.write("T", "{}", tx=connection)
            await failed.wait()
            connection.commit()
            try:
                await seen.reach(1)
            finally:
                connection.close()

    world.run(scenario)


def test_an_unseen_write_of_an_outbox_that_does_not_run_is_left_in_peace(world: World) -> None:
    async def scenario() -> None:
        outbox, seen = listening(world)
        connection = sqlite3.connect(world.path)
        await outbox.write("T", "1", tx=connection)
        connection.commit()
        connection.close()
        row = world.rows()[0]
        assert (row["status"], row["locked_by"], row["lease_epoch"]) == (EventStatus.NEW, None, 0)
        assert await outbox.poll() == 1
        assert payloads(seen) == ["1"]

    world.run(scenario)
