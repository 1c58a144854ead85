"""How a transaction ends: by commit, by rollback, by being left, by an error, by the death of its process."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from aftercommit import EventStatus, NotInTransaction, Outbox, TransactionEnded, UnknownStore
from tests.support import PATIENCE, World
from tests.transactions.kit import (
    Deliberate,
    Fates,
    elsewhere,
    free_slots,
    hot_count,
    listening,
    payloads,
    write_followed,
)

CAPACITY = 10


# ---------------------------------------------------------------- by hand


def test_a_commit_saves_business_and_event_together(world: World) -> None:
    """TC-069."""

    async def scenario() -> None:
        outbox = world.outbox()
        tx = await outbox.begin()
        await tx.execute("CREATE TABLE business (number INTEGER)")
        await tx.execute("INSERT INTO business VALUES (7)")
        await outbox.write("T", "{}")
        await tx.commit()
        assert len(world.rows()) == len(world.rows("SELECT * FROM business")) == 1

    world.run(scenario)


def test_a_rollback_discards_business_and_event_together(world: World) -> None:
    """TC-070, TC-181."""

    async def scenario() -> None:
        outbox = world.outbox()
        tx = await outbox.begin()
        await tx.execute("CREATE TABLE business (number INTEGER)")
        await outbox.write("T", "{}")
        await tx.rollback()
        assert world.rows() == []
        assert world.rows("SELECT name FROM sqlite_master WHERE name = 'business'") == []

    world.run(scenario)


@pytest.mark.parametrize("raises", [False, True])
def test_a_manual_transaction_that_is_left_without_a_commit_is_rolled_back(world: World, raises: bool) -> None:
    """TC-071: and it is no longer the ambient one."""

    async def scenario() -> None:
        outbox = world.outbox()
        try:
            async with await outbox.begin() as tx:
                await outbox.write("T", "{}")
                if raises:
                    raise Deliberate
        except Deliberate:
            assert raises
        assert not tx.is_transaction_active()
        with pytest.raises(NotInTransaction):
            await outbox.write("T", "{}")
        assert world.rows() == []

    world.run(scenario)


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_the_same_end_twice_is_fine_and_the_other_one_is_refused(world: World, ending: str) -> None:
    """TC-072: nobody may believe that a rolled-back transaction was committed, nor the other way round."""
    other = {"commit": "rollback", "rollback": "commit"}[ending]

    async def scenario() -> None:
        outbox = world.outbox()
        fates = Fates()
        async with await outbox.begin() as tx:
            await write_followed(outbox, tx, fates, "once")
            await getattr(tx, ending)()
            await getattr(tx, ending)()
            with pytest.raises(NotInTransaction, match={"commit": "committed", "rollback": "rolled back"}[ending]):
                await getattr(tx, other)()
        assert len(world.rows()) == (ending == "commit")
        assert len(fates.committed) + len(fates.rolled_back) == 1

    world.run(scenario)


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_the_connection_is_given_back(world: World, ending: str) -> None:
    """TC-073: clean, and to be used again."""

    async def scenario() -> None:
        outbox = world.outbox()
        used = []
        for _ in range(3):
            tx = await outbox.begin()
            await outbox.write("T", "{}")
            used.append(tx.connection)
            await getattr(tx, ending)()
            assert not used[-1].in_transaction
        assert used[0] is used[1] is used[2]

    world.run(scenario)


def test_an_outbox_needs_something_to_open_transactions_on() -> None:
    """TC-075."""
    with pytest.raises(UnknownStore, match="Fix: pass a URL"):
        Outbox(None)


# ---------------------------------------------------------------- a commit that fails


def strict(world: World) -> Any:
    """A connection factory whose foreign keys are checked at COMMIT."""

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(world.path, check_same_thread=False)
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    return connect


async def with_children(outbox: Any) -> None:
    async with outbox.transaction() as tx:
        await tx.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)")
        await tx.execute("CREATE TABLE child (parent REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")


@pytest.mark.parametrize("way", ["leave", "commit", "nested"])
def test_a_commit_that_the_database_refuses_delivers_nothing(world: World, way: str) -> None:
    """F04, TC-074: the error reaches the caller, slots and connection come back, the next transaction works."""

    async def scenario() -> None:
        outbox, seen = listening(world, target=strict(world), hot_queue_capacity=CAPACITY)
        fates = Fates()
        async with outbox:
            await with_children(outbox)
            for _ in range(2):  # a retry of the whole does not register anything twice
                with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
                    async with outbox.transaction() as tx:
                        connection = tx.connection
                        await write_followed(outbox, tx, fates, "refused")
                        if way == "nested":
                            async with outbox.transaction():
                                await tx.execute("INSERT INTO child VALUES (1)")
                        else:
                            await tx.execute("INSERT INTO child VALUES (1)")
                        if way == "commit":
                            await tx.commit()
                assert not connection.in_transaction
                await tx.rollback()  # it is rolled back already
            assert world.rows() == []
            assert hot_count(outbox) == 0
            assert free_slots(outbox) == CAPACITY
            assert (fates.committed, fates.rolled_back) == ([], ["refused", "refused"])

            async with outbox.transaction() as tx:
                assert tx.connection is connection
                await tx.execute("INSERT INTO parent VALUES (1)")
                await tx.execute("INSERT INTO child VALUES (1)")
                await outbox.write("T", '"accepted"')
            await seen.reach(1)
        assert payloads(seen) == ['"accepted"']

    world.run(scenario)


def test_an_error_of_a_callback_does_not_hide_the_error_of_the_commit(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox(strict(world))
        await with_children(outbox)
        with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY") as caught:
            async with outbox.transaction() as tx:
                tx.after_rollback(_raising("from a callback"))
                await tx.execute("INSERT INTO child VALUES (1)")
        assert "from a callback" in caught.value.__notes__[0]

    world.run(scenario)


def test_a_commit_whose_answer_is_lost_counts_as_a_rollback_until_the_poller_finds_the_row(world: World) -> None:
    """F03, TC-077: committed, and the driver says that it was not. Nothing comes from memory, nothing is lost."""

    async def scenario() -> None:
        outbox, seen = listening(world, hot_queue_capacity=CAPACITY, poller_enabled=True, poll_interval="20ms")
        fates = Fates()
        async with outbox:
            with pytest.raises(sqlite3.OperationalError, match="the line went dead"):
                async with outbox.transaction() as tx:
                    opened = (tx if world.is_async else tx.plain).tx
                    commit = opened.commit

                    async def commit_and_lose_the_answer() -> None:
                        await commit()
                        raise sqlite3.OperationalError("the line went dead")

                    opened.commit = commit_and_lose_the_answer
                    await write_followed(outbox, tx, fates, "unknown")
            assert len(world.rows()) == 1, "the fault came before the commit"
            assert (fates.committed, fates.rolled_back) == ([], ["unknown"])
            assert free_slots(outbox) == CAPACITY
            assert world.change("UPDATE outbox_event SET lease_until = 0") == 1
            await seen.reach(1)
            await world.until_settled(1)
            assert hot_count(outbox) == 0
        assert payloads(seen) == ['"unknown"']

    world.run(scenario)


def test_a_connection_that_dies_before_the_commit_is_an_error_and_is_given_up(world: World) -> None:
    """TC-074: nothing is delivered, and the next transaction has another connection."""

    async def scenario() -> None:
        outbox, _ = listening(world, hot_queue_capacity=CAPACITY)
        fates = Fates()
        async with outbox:
            with pytest.raises(TransactionEnded):
                async with outbox.transaction() as tx:
                    await write_followed(outbox, tx, fates, "lost")
                    tx.connection.close()
            assert (fates.committed, fates.rolled_back) == ([], ["lost"])
            assert free_slots(outbox) == CAPACITY
            async with outbox.transaction():
                await outbox.write("T", '"next"')
        assert [row["payload"] for row in world.rows()] == ['"next"']

    world.run(scenario)


@pytest.mark.parametrize("way", ["raise", "rollback", "refused commit"])
def test_a_rollback_that_fails_is_only_logged(world: World, caplog: pytest.LogCaptureFixture, way: str) -> None:
    """TC-074: the error that led to it is the one that the caller hears of."""

    async def scenario() -> None:
        outbox, _ = listening(world, hot_queue_capacity=CAPACITY)
        fates = Fates()
        async with outbox:
            try:
                async with outbox.transaction() as tx:
                    opened = (tx if world.is_async else tx.plain).tx
                    end = opened.end

                    async def end_and_fail() -> None:
                        await end()
                        raise sqlite3.OperationalError("the line went dead")

                    async def refuse() -> None:
                        raise Deliberate

                    opened.end = end_and_fail
                    opened.commit = refuse
                    await write_followed(outbox, tx, fates, "lost")
                    if way == "raise":
                        raise Deliberate
                    if way == "rollback":
                        await tx.rollback()
            except Deliberate:
                assert way != "rollback"
            assert "the rollback failed; the connection is given up: OperationalError: the line went" in caplog.text
            assert (fates.committed, fates.rolled_back) == ([], ["lost"])
            assert free_slots(outbox) == CAPACITY
        assert world.rows() == []

    world.run(scenario)


# ---------------------------------------------------------------- the process dies

WRITER = """
    import os, sys
    from aftercommit import Outbox

    outbox = Outbox(sys.argv[1])
    outbox.register("T", lambda event: print("delivered by the writer", flush=True))
    outbox.start()
    with outbox.transaction() as tx:
        tx.execute("CREATE TABLE business (number INTEGER)")
        if sys.argv[2] == "after the commit":
            tx.after_commit(lambda: os._exit(9))  # registered first, so it runs before the hot path hears of it
        outbox.write("T", {})
        if sys.argv[2] == "before the commit":
            os._exit(9)
"""


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_a_writer_that_dies_leaves_both_or_neither(world: World, moment: str) -> None:
    """F01, F02: between COMMIT and the hot lane the event is found by a poller; before COMMIT there is nothing."""

    async def scenario() -> None:
        died = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(WRITER), world.url, moment],
            capture_output=True,
            check=False,
            text=True,
            timeout=PATIENCE,
        )
        assert (died.returncode, died.stdout) == (9, ""), died.stderr
        business = world.rows("SELECT name FROM sqlite_master WHERE name = 'business'")
        assert len(world.rows()) == len(business) == (moment == "after the commit")
        world.change("UPDATE outbox_event SET lease_until = 0")  # lock_timeout later

        outbox, seen = listening(world)
        assert await outbox.poll() == len(business)
        assert len(seen) == len(business)
        assert world.statuses() == [EventStatus.DONE] * len(business)

    world.run(scenario)


# ---------------------------------------------------------------- the outbox itself ends


def test_a_transaction_that_outlives_its_outbox_still_commits(world: World) -> None:
    """close() while it is open: the event is saved, and delivered by whoever comes next."""

    async def scenario() -> None:
        first, seen = listening(world)
        await first.start()
        tx = await first.begin()
        event_id = await first.write("T", '"late"')
        await first.close()
        await tx.commit()
        assert [row["event_id"] for row in world.rows()] == [event_id]
        assert len(seen) == 0
        world.change("UPDATE outbox_event SET lease_until = 0")

        second, seen = listening(world, poller_enabled=True)
        async with second:
            await seen.reach(1)
        assert payloads(seen) == ['"late"']

    world.run(scenario)


def test_a_block_that_fails_to_begin_leaves_no_trace(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        await outbox.create_schema()
        executor = (outbox if world.is_async else outbox.plain)._store.executor

        async def fail(_: object) -> None:
            raise sqlite3.OperationalError("disk I/O error")

        with monkeypatch.context() as patched:
            patched.setattr(executor, "begin", fail)
            with pytest.raises(sqlite3.OperationalError, match="disk"):
                async with outbox.transaction():
                    raise AssertionError("the block must not run")
        with pytest.raises(NotInTransaction):
            await outbox.write("T", "{}")
        async with outbox.transaction():
            await outbox.write("T", "{}")
        assert len(world.rows()) == 1

    world.run(scenario)


def test_a_savepoint_that_cannot_be_undone_is_not_taken_for_undone(world: World) -> None:
    """The rows are still in the transaction, so an explicit rollback() of the block must not look like a success."""

    async def scenario() -> None:
        outbox = world.outbox()
        with pytest.raises(sqlite3.OperationalError, match="no such savepoint"):
            async with outbox.transaction() as tx:
                inner = await outbox.begin()
                await outbox.write("T", "{}")
                tx.connection.execute('RELEASE "aftercommit_1"')
                await inner.rollback()
        assert world.rows() == []
        with pytest.raises(NotInTransaction):
            await outbox.write("T", "{}")

    world.run(scenario)


def _raising(message: str) -> Any:
    def callback() -> None:
        raise Deliberate(message)

    return callback


# ---------------------------------------------------------------- by hand, and by nobody


def test_a_transaction_that_nobody_can_end_any_more_waits_for_its_own_outbox(world: World) -> None:
    """Another one that begins meanwhile neither ends it nor forgets it: it would keep its locks for good."""

    async def scenario() -> None:
        outbox, other = world.outbox(), world.outbox("sqlite://")

        async def forgets() -> None:
            tx = await outbox.begin()
            await outbox.write("T", '"lost"', tx=tx)

        await forgets()
        async with other.transaction():
            await other.write("T", '"of another"')
        async with outbox.transaction():
            await outbox.write("T", '"kept"')
        assert [row["payload"] for row in world.rows()] == ['"kept"']

    world.run(scenario)


def test_a_transaction_that_nobody_can_end_any_more_takes_nothing_with_it(
    any_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The handle that begin() gave is gone: what comes behind it is no savepoint of it, and is saved."""

    async def scenario() -> None:
        outbox, seen = listening(any_world, hot_queue_capacity=CAPACITY)

        async def forgets() -> None:
            tx = await outbox.begin()
            await outbox.write("T", '"lost"', tx=tx)
            await outbox.write("T", '"lost as well"')

        async with outbox:
            await forgets()
            with pytest.raises(NotInTransaction):
                await outbox.write("T", '"outside"')
            async with outbox.transaction():
                await outbox.write("T", '"kept"')
            await elsewhere(any_world, forgets)
            async with outbox.transaction():
                await outbox.write("T", '"next"')
            await seen.reach(2)
            await any_world.until_settled(2)
            assert free_slots(outbox) == CAPACITY
        assert [row["payload"] for row in any_world.rows()] == ['"kept"', '"next"']

    any_world.run(scenario)
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(said) == 2
    assert all("begin()" in line and "NOT saved" in line and "Fix: with outbox.begin()" in line for line in said)


def test_a_handle_that_is_kept_is_still_the_transaction_around(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        tx = await outbox.begin()
        async with outbox.transaction():
            await outbox.write("T", "{}")
        assert world.rows() == []
        await tx.commit()
        del tx
        assert len(world.rows()) == 1

    world.run(scenario)
    assert caplog.records == []
