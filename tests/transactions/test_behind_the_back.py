"""What is undone on the connection itself reaches neither the table nor a handler, and the caller hears of it."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from aftercommit import EventEnvelope, NotInTransaction, TransactionEnded, UnsupportedTransaction, WriterHook
from tests.support import World
from tests.transactions.kit import Fates, free_slots, hot_count, listening, payloads, write_followed

CAPACITY = 10


async def with_business(outbox: Any) -> None:
    """A table of the user's with one row, and a trigger that rolls the transaction back."""
    async with outbox.transaction() as tx:
        await tx.execute("CREATE TABLE business (number INTEGER UNIQUE)")
        await tx.execute("INSERT INTO business VALUES (1)")
        await tx.execute(
            "CREATE TRIGGER no_negatives BEFORE INSERT ON business WHEN new.number < 0 "
            "BEGIN SELECT RAISE(ROLLBACK, 'no negative numbers'); END"
        )


async def raw(tx: Any, sql: str) -> None:
    tx.connection.execute(sql)


async def through_execute(tx: Any, sql: str) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        await tx.execute(sql)


async def raw_failing(tx: Any, sql: str) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        tx.connection.execute(sql)


UNDOINGS = [
    pytest.param(raw, "ROLLBACK", id="ROLLBACK"),
    pytest.param(through_execute, "INSERT INTO business VALUES (-1)", id="RAISE(ROLLBACK)"),
    pytest.param(raw_failing, "INSERT INTO business VALUES (-1)", id="raw-RAISE(ROLLBACK)"),
    pytest.param(through_execute, "INSERT OR ROLLBACK INTO business VALUES (1)", id="INSERT-OR-ROLLBACK"),
]


@pytest.mark.parametrize(("undo", "sql"), UNDOINGS)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_transaction_that_was_rolled_back_unseen_delivers_nothing(
    world: World, undo: Any, sql: str, depth: int
) -> None:
    """F05: at any depth; the next transaction works, and is no savepoint of the dead one."""

    async def scenario() -> None:
        outbox, seen = listening(world, hot_queue_capacity=CAPACITY)
        fates = Fates()

        async def level(number: int) -> None:
            async with outbox.transaction() as tx:
                await write_followed(outbox, tx, fates, f"level {number}")
                if number < depth:
                    await level(number + 1)
                else:
                    await undo(tx, sql)
                    assert not tx.is_transaction_active()
                    with pytest.raises(NotInTransaction):
                        await outbox.write("T", '"too late"')

        async with outbox:
            await with_business(outbox)
            with pytest.raises(TransactionEnded, match=r"Fix: use tx\.commit\(\) and tx\.rollback\(\)"):
                await level(1)
            assert world.rows() == []
            assert hot_count(outbox) == 0
            assert free_slots(outbox) == CAPACITY
            assert (fates.committed, len(fates.rolled_back)) == ([], depth)
            async with outbox.transaction():
                await outbox.write("T", '"next"')
            await seen.reach(1)
            await world.until_settled(1)
        assert payloads(seen) == ['"next"']

    world.run(scenario)


@pytest.mark.parametrize(("undo", "sql"), UNDOINGS)
def test_after_it_was_rolled_back_unseen_no_statement_is_saved_by_itself(world: World, undo: Any, sql: str) -> None:
    """The connection is in autocommit mode then: a statement, or a savepoint, would be a transaction of its own."""

    async def scenario() -> None:
        outbox = world.outbox()
        await with_business(outbox)
        with pytest.raises(TransactionEnded):
            async with outbox.transaction() as tx:
                await undo(tx, sql)
                with pytest.raises(TransactionEnded):
                    await tx.execute("INSERT INTO business VALUES (2)")
                with pytest.raises(TransactionEnded):
                    async with outbox.transaction():
                        await outbox.write("T", '"in a savepoint"')
        assert world.rows() == []
        assert [row["number"] for row in world.rows("SELECT number FROM business")] == [1]

    world.run(scenario)


def test_an_error_of_the_caller_goes_before_the_news_that_the_transaction_is_gone(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        await with_business(outbox)
        with pytest.raises(sqlite3.IntegrityError, match="no negative numbers"):
            async with outbox.transaction(), outbox.transaction() as tx:
                await outbox.write("T", "{}")
                await tx.execute("INSERT INTO business VALUES (-1)")
        assert world.rows() == []
        async with outbox.transaction():
            await outbox.write("T", "{}")
        assert len(world.rows()) == 1

    world.run(scenario)


def test_events_behind_a_savepoint_of_the_callers_own_are_dropped(world: World) -> None:
    """F05: ROLLBACK TO on the raw connection; the transaction goes on, with what is left of it."""

    async def scenario() -> None:
        hook = Recording()
        outbox, seen = listening(world, hot_queue_capacity=CAPACITY, writer_hook=hook)
        async with outbox:
            async with outbox.transaction() as tx:
                await outbox.write("T", '"before"')
                tx.connection.execute("SAVEPOINT mine")
                await outbox.write("T", '"undone"')
                await outbox.write_all([_event("undone too"), _event("and this")])
                tx.connection.execute("ROLLBACK TO mine")
                await outbox.write("T", '"after"')
            await seen.reach(2)
            await world.until_settled(2)
            assert free_slots(outbox) == CAPACITY
            assert hot_count(outbox) == 2
        assert payloads(seen) == ['"after"', '"before"']
        assert [row["payload"] for row in world.rows()] == ['"before"', '"after"']
        assert sorted(hook.committed) == ['"after"', '"before"']
        assert sorted(hook.rolled_back) == ['"and this"', '"undone too"', '"undone"']

    world.run(scenario)


def test_a_part_of_a_batch_that_was_deleted_is_not_delivered(world: World) -> None:
    async def scenario() -> None:
        outbox, seen = listening(world, hot_queue_capacity=CAPACITY)
        async with outbox:
            async with outbox.transaction() as tx:
                _, second, _ = await outbox.write_all([_event("1"), _event("2"), _event("3")])
                tx.connection.execute("DELETE FROM outbox_event WHERE event_id = ?", (second,))
            await seen.reach(2)
            await world.until_settled(2)
            assert free_slots(outbox) == CAPACITY
        assert payloads(seen) == ['"1"', '"3"']

    world.run(scenario)


def test_a_hook_is_not_told_of_events_that_were_undone_unseen(world: World) -> None:
    """Also where nothing would have been hot: no handler, and not started."""

    async def scenario() -> None:
        hook = Recording()
        outbox = world.outbox(writer_hook=hook)
        async with outbox.transaction() as tx:
            tx.connection.execute("SAVEPOINT mine")
            await outbox.write("T", '"undone"')
            tx.connection.execute("ROLLBACK TO mine")
            await outbox.write("T", '"kept"')
        assert (hook.committed, hook.rolled_back) == (['"kept"'], ['"undone"'])

    world.run(scenario)


def test_a_rollback_and_a_new_begin_on_the_raw_connection_drop_what_was_before(world: World) -> None:
    async def scenario() -> None:
        outbox, seen = listening(world, hot_queue_capacity=CAPACITY)
        async with outbox:
            async with outbox.transaction() as tx:
                await outbox.write("T", '"before"')
                tx.connection.execute("ROLLBACK")
                tx.connection.execute("BEGIN IMMEDIATE")
                await outbox.write("T", '"after"')
            await seen.reach(1)
            await world.until_settled(1)
            assert free_slots(outbox) == CAPACITY
        assert payloads(seen) == ['"after"']
        assert [row["payload"] for row in world.rows()] == ['"after"']

    world.run(scenario)


def test_a_rollback_and_a_new_begin_inside_an_inner_block_end_in_an_error(world: World) -> None:
    """The savepoint is gone although a transaction is open: nothing of either is delivered."""

    async def scenario() -> None:
        outbox, _ = listening(world, hot_queue_capacity=CAPACITY)
        async with outbox:
            with pytest.raises(sqlite3.OperationalError, match="no such savepoint"):
                async with outbox.transaction() as tx, outbox.transaction():
                    await outbox.write("T", '"before"')
                    tx.connection.execute("ROLLBACK")
                    tx.connection.execute("BEGIN IMMEDIATE")
                    await outbox.write("T", '"after"')
            assert hot_count(outbox) == 0
            assert free_slots(outbox) == CAPACITY
            async with outbox.transaction():
                await outbox.write("T", '"next"')
        assert [row["payload"] for row in world.rows()] == ['"next"']

    world.run(scenario)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_commit_on_the_raw_connection_is_delivered_by_the_poller_only(world: World, depth: int) -> None:
    """The row is saved, so it must arrive; but nobody saw the commit, so not from memory and not before its lease."""

    async def scenario() -> None:
        outbox, seen = listening(world, hot_queue_capacity=CAPACITY, poll_interval="20ms", poller_enabled=True)
        fates = Fates()
        async with outbox:
            with pytest.raises(TransactionEnded):
                async with outbox.transaction() as tx:
                    await write_followed(outbox, tx, fates, "saved")
                    if depth == 2:
                        async with outbox.transaction():
                            tx.connection.execute("COMMIT")
                    else:
                        tx.connection.execute("COMMIT")
            assert len(world.rows()) == 1
            assert free_slots(outbox) == CAPACITY
            assert (fates.committed, fates.rolled_back) == ([], ["saved"])
            assert world.change("UPDATE outbox_event SET lease_until = 0") == 1
            await seen.reach(1)
            await world.until_settled(1)
            assert hot_count(outbox) == 0
        assert payloads(seen) == ['"saved"']

    world.run(scenario)


# ---------------------------------------------------------------- through tx.execute


CONTROL = ["COMMIT", "commit;", "END", "\n  ROLLBACK", "BEGIN", "SAVEPOINT x", "RELEASE x", "ROLLBACK TO x"]

#: What SQLite takes for the same.
DISGUISED = [
    "/* all is well */ COMMIT",
    "-- all is well\nCOMMIT",
    "COMMIT/**/",
    "COMMIT--",
    "ROLLBACK/**/TO x",
    ";COMMIT",
    "\ufeffCOMMIT",
    'RELEASE"x"',
]


@pytest.mark.parametrize("sql", [*CONTROL, *DISGUISED])
def test_transaction_control_through_execute_is_refused(world: World, sql: str) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        async with outbox.transaction() as tx:
            await outbox.write("T", "{}")
            with pytest.raises(UnsupportedTransaction, match=r"Fix: use tx\.commit\(\), tx\.rollback\(\)"):
                await tx.execute(sql)
            assert tx.is_transaction_active()
        assert len(world.rows()) == 1

    world.run(scenario)


def test_transaction_control_is_refused_on_every_driver(any_world: World) -> None:
    async def scenario() -> None:
        outbox = any_world.outbox()
        async with outbox.transaction() as tx:
            await outbox.write("T", "{}")
            for sql in ("COMMIT", " rollback ", "/* x */ SAVEPOINT a"):
                with pytest.raises(UnsupportedTransaction):
                    await tx.execute(sql)
            assert tx.is_transaction_active()
        assert len(any_world.rows()) == 1

    any_world.run(scenario)


def test_a_hidden_savepoint_delivers_nothing_that_it_undid(world: World) -> None:
    """Promise 1: the hot path never delivers an event whose row is not committed."""

    async def scenario() -> None:
        outbox, seen = listening(world)
        async with outbox:
            async with outbox.transaction() as tx:
                try:
                    await tx.execute("/* mine */ SAVEPOINT mine")
                    await outbox.write("T", '"undone"')
                    await tx.execute("/* mine */ ROLLBACK TO mine")
                except UnsupportedTransaction:
                    pass
                await outbox.write("T", '"kept"')
            await seen.reach(1)
            await world.until_settled(1)
        assert payloads(seen) == ['"kept"']

    world.run(scenario)


def test_words_that_only_begin_alike_are_run(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        async with outbox.transaction() as tx:
            await tx.execute("CREATE TABLE ends (commits TEXT)")
            await tx.execute("INSERT INTO ends VALUES (?)", ("COMMIT",))
            found = await tx.execute("SELECT commits FROM ends WHERE commits = :word", {"word": "COMMIT"})
            assert found.fetchone() == ("COMMIT",)
            assert list(found) == [("COMMIT",)]
            assert (await tx.execute("UPDATE ends SET commits = 'x'")).rowcount == 1

    world.run(scenario)


class Recording(WriterHook):
    def __init__(self) -> None:
        self.committed: list[str] = []
        self.rolled_back: list[str] = []

    def after_commit(self, events: list[EventEnvelope]) -> None:
        self.committed += [event.payload_json for event in events]

    def after_rollback(self, events: list[EventEnvelope]) -> None:
        self.rolled_back += [event.payload_json for event in events]


def _event(name: str) -> EventEnvelope:
    return EventEnvelope("T", payload_json=f'"{name}"')
