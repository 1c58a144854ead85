"""A tail delivers what is committed, in the order of commits, and leaves to the table what fails or waits."""

from __future__ import annotations

from typing import Any

import pytest

from aftercommit import EventEnvelope, EventMetadata, Fixed
from tests.support import Collector, Signal, painted
from tests.tail.kit import SELDOM, TailWorld, write

#: Rows as they were born.
UNTOUCHED = "SELECT count(*) FROM outbox_event WHERE status = 1 AND lease_epoch = 0 AND locked_by IS NULL"


def test_events_are_delivered_in_the_order_of_commits_and_no_row_is_changed(tail_world: TailWorld, colour: str) -> None:
    seen = Collector()

    async def scenario() -> None:
        tail, writer = tail_world.tail(worker_count=1, interval=SELDOM), tail_world.writer()
        tail.handler("Happened", id="h")(painted(colour, lambda event: seen.add(event.payload_json)))
        async with tail, writer:
            async with writer.transaction():
                await writer.write("Happened", "1")
                await write(tail_world.writer(), 2)  # another program's
                await writer.write("Happened", "3")
            undone = await writer.begin()
            await writer.write("Happened", "4", tx=undone)
            await undone.rollback()
            await write(writer, 5)
            await seen.reach(4)  # woken: nobody looks for an hour
            assert (await tail.drain("20s")).is_complete
        assert seen == ["2", "1", "3", "5"]
        assert tail_world.rows(UNTOUCHED)[0][0] == 4

    tail_world.run(scenario)


def test_an_event_is_what_was_written(tail_world: TailWorld) -> None:
    seen: list[tuple[EventEnvelope, EventMetadata]] = []
    text = '{"ä": "\\u00e4 €", "quote": "\\"\\\\", "long": "' + "x" * 200_000 + '"}'

    async def scenario() -> None:
        tail, writer = tail_world.tail(), tail_world.writer()

        @tail.handler("Happened", id="h")
        def h(event: EventEnvelope, meta: EventMetadata) -> None:
            seen.append((event, meta))

        sent = [
            EventEnvelope("Happened", payload_json=text, key="kß", headers={"h": "ü\n"}, tenant_id="t", aggregate_id=7),
            EventEnvelope("Happened", payload_bytes=bytes(range(256)), aggregate_type="Order"),
        ]
        async with tail, writer:
            async with writer.transaction():
                await writer.write_all(sent)
            await tail.drain("20s")
        assert [event for event, _ in seen] == sent
        assert [event.payload_bytes for event, _ in seen] == [text.encode(), bytes(range(256))]
        assert [meta.attempt for _, meta in seen] == [1, 1]

    tail_world.run(scenario)


def test_what_fails_is_retried_and_dies_in_the_table_and_can_be_replayed(tail_world: TailWorld) -> None:
    calls, is_mended = Collector(), Signal()

    async def scenario() -> None:
        tail, writer = tail_world.tail(), tail_world.writer()

        @tail.handler("Happened", id="h", retry=Fixed("1ms", max_attempts=3))
        def h(event: EventEnvelope, meta: EventMetadata) -> None:
            calls.add(meta.attempt)
            if not is_mended.is_set:
                raise ValueError("not yet")

        async with tail, writer:
            await write(writer, 1)
            await tail_world.until_settled(1, status=3)
            assert calls == [1, 2, 3]
            (dead,) = await tail.dead.query()
            assert (dead.attempts, dead.last_error) == (3, "ValueError: not yet")
            assert len(await tail.records.failures(dead.event_id)) == 3
            # Everything of the log is through: the slot does not wait for it.
            assert (await tail.drain("20s")).is_complete
            assert (await tail.lag()).waiting == 0
            is_mended.set()
            assert await tail.dead.replay(dead.event_id)
            await calls.reach(4)

    tail_world.run(scenario)


def test_delayed_events_come_when_they_are_due(tail_world: TailWorld) -> None:
    seen = Collector()

    async def scenario() -> None:
        tail, writer = tail_world.tail(poll_interval=SELDOM), tail_world.writer()
        tail.handler("Happened", id="h")(lambda event: seen.add(event.payload_json))
        async with tail, writer:
            await write(writer, 1, deliver_after="300ms")
            await write(writer, 2)
            await seen.reach(2)
        assert seen == ["2", "1"]

    tail_world.run(scenario)


def test_a_transaction_larger_than_memory_may_be_comes_piece_by_piece(
    tail_world: TailWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aftercommit.tail.reader.BATCH", 40)
    monkeypatch.setattr("aftercommit.tail.giving.WAITING", 30)
    monkeypatch.setattr("aftercommit.tail.reader.AHEAD", 50)
    seen, most = Collector(), [0]

    async def scenario() -> None:
        tail, writer = tail_world.tail(), tail_world.writer()

        @tail.handler("Happened", id="h")
        def h(event: EventEnvelope) -> None:
            most[0] = max(most[0], len(tail._engine.reader.progress))
            seen.add(event.payload_json)

        async with writer:
            async with writer.transaction():
                await writer.write_all([EventEnvelope.of_json("Happened", str(n)) for n in range(1000)])
            async with tail:
                assert (await tail.drain("60s")).is_complete
        assert sorted(map(int, seen)) == list(range(1000))
        assert most[0] < 1000 // 2  # by lanes and what waits, not by the transaction

    tail_world.run(scenario)


def test_a_slow_event_gets_its_row_and_holds_up_nothing(tail_world: TailWorld) -> None:
    """Else the server would keep its log until a handler has ended that may take an hour."""
    may_end, seen = Signal(), Collector()

    async def scenario() -> None:
        tail, writer = tail_world.tail(lock_timeout="600ms"), tail_world.writer()

        @tail.handler("Slow", id="slow")
        def slow(event: EventEnvelope) -> None:
            may_end.wait_here()
            seen.add("slow")

        tail.handler("Happened", id="h")(lambda event: seen.add(event.payload_json))
        async with tail, writer:
            await write(writer, 0, kind="Slow")
            await write(writer, 1)
            await tail_world.until("SELECT count(*) = 1 FROM outbox_event WHERE status = 0 AND locked_by IS NOT NULL")
            tail._engine.reader.call()
            await tail_world.until(
                "SELECT value LIKE '%\"passed\":0%' FROM outbox_schema WHERE name = 'tail:' || ?", tail_world.slot
            )
            may_end.set()
            await seen.reach(2)
            await tail_world.until_settled(2)
        assert seen == ["1", "slow"]

    tail_world.run(scenario)


def test_what_was_purged_before_it_failed_is_written_again(tail_world: TailWorld) -> None:
    may_fail, is_called = Signal(), Signal()

    async def scenario() -> None:
        tail, writer = tail_world.tail(), tail_world.writer()

        @tail.handler("Happened", id="h", retry=Fixed("1h"))
        def h(event: EventEnvelope) -> None:
            is_called.set()
            may_fail.wait_here()
            raise ValueError("too late")

        async with tail, writer:
            await write(writer, {"n": 1}, key="k")
            await is_called.wait()
            before = dict(tail_world.rows("SELECT event_id, position, payload, event_key FROM outbox_event")[0]._cells)
            assert tail_world.change("DELETE FROM outbox_event") == 1
            may_fail.set()
            await tail_world.until_settled(1, status=2)
        (row,) = tail_world.rows("SELECT event_id, position, payload, event_key FROM outbox_event")
        assert dict(row._cells) == before

    tail_world.run(scenario)


def test_what_a_session_of_sqlalchemy_writes_comes_from_the_log_too(tail_world: TailWorld) -> None:
    """Whoever writes: rows are born done by the table itself."""
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    from aftercommit import Outbox

    seen = Collector()

    async def scenario() -> None:
        tail = tail_world.tail()
        tail.handler("Happened", id="h")(lambda event: seen.add(event.payload_json))
        async with tail:
            engine = create_engine(tail_world.plain_url.replace("postgresql://", "postgresql+psycopg://"))
            writer = Outbox.writer_only(engine)
            with Session(engine) as session, session.begin():
                writer.write("Happened", {"from": "a session"}, tx=session)
            writer.close()
            engine.dispose()
            await seen.reach(1)
            await tail.drain("20s")
        assert tail_world.rows(UNTOUCHED)[0][0] == 1

    tail_world.run(scenario)


def test_what_another_outbox_delivers_from_memory_is_left_to_it(tail_world: TailWorld) -> None:
    """It is born leased, so a table may have both: while a fleet changes over, say."""
    seen = Collector()

    async def scenario() -> None:
        tail, other = tail_world.tail(), tail_world.outbox()
        tail.handler("Happened", id="h")(lambda event: seen.add(("tail", event.payload_json)))
        other.handler("Happened", id="h")(lambda event: seen.add(("other", event.payload_json)))
        async with tail, other:
            await write(other, 1)
            await seen.reach(1)
            await write(tail_world.writer(), 2)
            await seen.reach(2)
            await tail.drain("20s")
        assert seen == [("other", "1"), ("tail", "2")]

    tail_world.run(scenario)


def test_what_a_tail_writes_itself_comes_from_the_log_at_once(tail_world: TailWorld) -> None:
    seen = Collector()

    async def scenario() -> None:
        tail = tail_world.tail(interval=SELDOM)
        tail.handler("First", id="first")(lambda event: seen.add(event.event_type))
        tail.handler("Second", id="second")(lambda event: seen.add(event.event_type))
        async with tail:
            await write(tail, 1, kind="First")  # of this process, which nobody else wakes
            await seen.reach(1)
            await write(tail, 1, kind="Second")
            await seen.reach(2)
        assert seen == ["First", "Second"]
        assert tail_world.rows(UNTOUCHED)[0][0] == 2

    tail_world.run(scenario)


def test_what_has_to_be_unique_while_it_waits_is_left_to_the_table(tail_world: TailWorld) -> None:
    seen = Collector()

    async def scenario() -> None:
        tail, writer = tail_world.tail(), tail_world.writer()
        tail.handler("Happened", id="h")(lambda event: seen.add(event.payload_json))
        await tail.create_schema()
        await write(writer, 1, 2, unique_key="one at a time")
        assert tail_world.statuses() == [0]
        async with tail:
            await tail.drain("20s")
            await write(writer, 3, unique_key="one at a time")
            await seen.reach(2)
        assert seen == ["1", "3"]

    tail_world.run(scenario)


def test_a_transactional_handler_commits_its_change_with_the_mark_of_its_event(tail_world: TailWorld) -> None:
    calls = Collector()

    async def scenario() -> None:
        tail, writer = tail_world.tail(), tail_world.writer()
        tail_world.change("CREATE TABLE effects (event_id text PRIMARY KEY)")
        insert = "INSERT INTO effects VALUES ($1)" if "asyncpg" in tail_world.url else "INSERT INTO effects VALUES (%s)"

        def sync(event: EventEnvelope, tx: Any) -> None:
            calls.add(event.event_id)
            tx.execute(insert, [event.event_id])

        async def coroutine(event: EventEnvelope, tx: Any) -> None:
            calls.add(event.event_id)
            await tx.execute(insert, [event.event_id])

        tail.handler("Happened", id="h", transactional=True)(coroutine if tail_world.is_async else sync)
        async with tail, writer:
            await write(writer, *range(10))
            await calls.reach(10)
            await tail.drain("20s")
        assert len(calls) == len(set(calls)) == 10
        assert (
            tail_world.rows("SELECT count(*) FROM effects JOIN outbox_event USING (event_id) WHERE status = 1")[0][0]
            == 10
        )

    tail_world.run(scenario)
