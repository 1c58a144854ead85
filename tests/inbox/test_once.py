"""A message that comes again changes nothing: on every database and driver, in every kind of transaction."""

from __future__ import annotations

import asyncio
import os

import pytest

from aftercommit import NotInTransaction, TransactionEnded, UnsupportedTransaction
from tests.inbox.kit import WAYS, Billing, running
from tests.support import Signal, World
from tests.transactions.driver_kit import calling, is_asyncpg
from tests.transactions.kit import Deliberate, beside

every_way = pytest.mark.parametrize("way", WAYS)


@every_way
def test_a_message_that_comes_again_changes_nothing(any_world: World, way: str) -> None:
    async def scenario() -> None:
        billing = Billing(any_world)
        await billing.open()

        came = [await billing.consume(each, way) for each in ("o-1", "o-2", "o-1", "o-1")]
        elsewhere = await billing.consume("o-1", way, consumer="shipping")

        assert came == [True, True, False, False]
        assert elsewhere, "another consumer has not had it"
        assert billing.bills() == ["o-1", "o-1", "o-2"]
        assert billing.received() == [("billing", "o-1"), ("billing", "o-2"), ("shipping", "o-1")]
        assert await billing.inbox.seen("o-1", consumer="billing")
        assert not await billing.inbox.seen("o-3", consumer="billing")

    any_world.run(scenario)


@every_way
def test_an_error_that_leaves_the_block_takes_the_id_back_and_nothing_else(any_world: World, way: str) -> None:
    """Whoever swallows it and commits has not lost the message."""

    async def scenario() -> None:
        billing = Billing(any_world)
        await billing.open()

        async with billing.transaction(way) as (tx, run):
            if run is not None:
                await run("INSERT INTO bill VALUES ('before')")
            with pytest.raises(Deliberate):
                async with billing.inbox.once("o-1", consumer="billing", tx=tx) as first:
                    await (run or running(first))("INSERT INTO bill VALUES ('o-1')")
                    raise Deliberate
            if run is not None:
                await run("INSERT INTO bill VALUES ('behind')")

        assert billing.bills() == ([] if way == "own" else ["before", "behind"])
        assert billing.received() == []
        assert await billing.consume("o-1", way), "it is the first when it comes again"

    any_world.run(scenario)


@every_way
def test_a_statement_that_fails_in_the_block_leaves_the_transaction_to_its_owner(any_world: World, way: str) -> None:
    """Also where a database would refuse everything behind it."""

    async def scenario() -> None:
        billing = Billing(any_world)
        await billing.open()

        async with billing.transaction(way) as (tx, run):
            with pytest.raises(Exception, match="nowhere"):
                async with billing.inbox.once("o-1", consumer="billing", tx=tx) as first:
                    await (run or running(first))("INSERT INTO nowhere VALUES ('o-1')")
            if run is not None:
                await run("INSERT INTO bill VALUES ('behind')")

        assert billing.bills() == ([] if way == "own" else ["behind"])
        assert billing.received() == []

    any_world.run(scenario)


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
@pytest.mark.parametrize("way", ["own", "driver"])
def test_of_two_at_once_the_second_waits_and_knows_how_the_first_has_ended(
    any_world: World, way: str, commits: bool
) -> None:
    if way == "driver" and any_world.is_async and any_world.database == "sqlite":
        return  # that driver would wait on the loop, which the other one has to go on with

    async def scenario() -> None:
        billing = Billing(any_world)
        await billing.open()
        is_in, may_end, second_begins = Signal(), Signal(), Signal()
        ended: list[str] = []

        async def first() -> None:
            async with billing.transaction(way) as (tx, run):  # noqa: SIM117
                async with billing.inbox.once("o-1", consumer="billing", tx=tx) as it:
                    assert it
                    await (run or running(it))("INSERT INTO bill VALUES ('o-1')")
                    is_in.set()
                    await may_end.wait()
                    ended.append("first")
                    if not commits:
                        raise Deliberate

        async def second() -> bool:
            second_begins.set()
            came = await billing.consume("o-1", way)
            ended.append("second")
            return came

        join_first = beside(any_world, first)
        await is_in.wait()
        join_second = beside(any_world, second)
        await second_begins.wait()
        if any_world.database != "sqlite":  # where nobody can be asked who waits
            await any_world.until(WAITING[any_world.database])
        may_end.set()

        if commits:
            await join_first()
        else:
            with pytest.raises(Deliberate):
                await join_first()
        assert await join_second() is not commits
        assert ended == ["first", "second"]
        assert billing.bills() == ["o-1"]

    any_world.run(scenario)


WAITING = {
    "postgres": "SELECT count(*) > 0 FROM pg_stat_activity"
    " WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%inbox%'",
    "mariadb": "SELECT count(*) > 0 FROM information_schema.processlist"
    " WHERE db = DATABASE() AND left(info, 13) = 'INSERT IGNORE'",
}


def test_outside_of_a_transaction_nothing_is_changed(any_world: World) -> None:
    async def scenario() -> None:
        billing = Billing(any_world)
        await billing.open()

        async with calling(any_world, autocommit=True) as caller:
            with pytest.raises(NotInTransaction, match="no transaction"):
                async with billing.inbox.once("o-1", consumer="billing", tx=caller.raw):
                    raise AssertionError("the block has begun")

        assert billing.received() == []

    any_world.run(scenario)


def test_a_transaction_that_was_begun_by_hand_is_one(any_world: World) -> None:
    async def scenario() -> None:
        billing = Billing(any_world)
        await billing.open()

        async with calling(any_world, autocommit=True) as caller:
            await caller.run("BEGIN")
            async with billing.inbox.once("o-1", consumer="billing", tx=caller.raw) as first:
                assert first
            await caller.run("ROLLBACK")
            assert billing.received() == []

    any_world.run(scenario)


def test_the_end_of_the_transaction_inside_the_block_is_told(any_world: World) -> None:
    """What follows it would be saved without the id."""

    async def scenario() -> None:
        billing = Billing(any_world)
        await billing.open()

        async with calling(any_world, autocommit=True) as caller:
            await caller.run("BEGIN")
            with pytest.raises(TransactionEnded):
                async with billing.inbox.once("o-1", consumer="billing", tx=caller.raw):
                    await caller.run("ROLLBACK")

        assert billing.received() == []
        assert await billing.consume("o-1")

    any_world.run(scenario)


def test_blocks_inside_of_each_other_are_undone_apart(any_world: World) -> None:
    async def scenario() -> None:
        billing = Billing(any_world)
        await billing.open()

        async with billing.transaction("driver") as (tx, _):  # noqa: SIM117
            async with billing.inbox.once("outer", consumer="billing", tx=tx):
                with pytest.raises(Deliberate):
                    async with billing.inbox.once("inner", consumer="billing", tx=tx):
                        raise Deliberate
                async with billing.inbox.once("kept", consumer="billing", tx=tx) as first:
                    assert first
        async with billing.inbox.once("a", consumer="billing"):  # noqa: SIM117
            async with billing.inbox.once("b", consumer="billing") as first:
                assert first, "a part of the transaction around it"

        assert [each for _, each in billing.received()] == ["a", "b", "kept", "outer"]

    any_world.run(scenario)


def test_an_inbox_of_an_outbox_writes_events_with_the_id(any_world: World) -> None:
    """A consumer's own events are part of its transaction, without being told of it."""

    async def scenario() -> None:
        billing = Billing(any_world)
        await billing.open()
        inbox = billing.new_inbox(getattr(billing.outbox, "plain", billing.outbox))

        for _ in range(2):
            async with inbox.once("o-1", consumer="billing") as first:
                if first:
                    await billing.outbox.write("BillWritten", {"order": "o-1"})
        with pytest.raises(Deliberate):
            async with inbox.once("o-2", consumer="billing"):
                await billing.outbox.write("BillWritten", {"order": "o-2"})
                raise Deliberate

        assert [row["payload"] for row in any_world.rows()] == ['{"order":"o-1"}']
        assert billing.received() == [("billing", "o-1")]

    any_world.run(scenario)


def test_another_database_is_refused_and_its_transaction_goes_on(any_world: World) -> None:
    async def scenario() -> None:
        billing = Billing(any_world)
        await billing.open()
        other = billing.new_inbox(table="other_inbox")  # another table of another mark is as good as another database
        await other.create_schema()
        if any_world.database == "sqlite":
            other = billing.new_inbox(f"sqlite:///{any_world.folder}/other.db")
        else:
            await _forge(any_world)

        async with billing.transaction("driver") as (tx, run):
            await run("INSERT INTO bill VALUES ('before')")
            with pytest.raises(UnsupportedTransaction, match="another database"):
                async with other.once("o-1", consumer="billing", tx=tx):
                    raise AssertionError("the block has begun")

        assert billing.bills() == ["before"]

    any_world.run(scenario)


async def _forge(world: World) -> None:
    """The inbox of that name has another mark now, as that of another server would have."""
    world.change("UPDATE other_inbox SET message_id = 'another' WHERE consumer = ''")


def test_a_connection_of_another_kind_is_refused(world: World) -> None:
    async def scenario() -> None:
        billing = Billing(world)
        with pytest.raises(UnsupportedTransaction, match="object"):
            async with billing.inbox.once("o-1", consumer="billing", tx=object()):
                raise AssertionError("the block has begun")
        assert is_asyncpg(world) is False

    world.run(scenario)


def test_a_cancelled_block_is_undone(any_world: World) -> None:
    """And its connection serves the next one."""
    if not any_world.is_async:
        return

    async def scenario() -> None:
        billing = Billing(any_world)
        await billing.open()
        is_in = asyncio.Event()

        async def consume(way: str) -> None:
            async with billing.transaction(way) as (tx, run), billing.inbox.once("o-1", consumer="x", tx=tx) as first:
                await (run or running(first))("INSERT INTO bill VALUES ('o-1')")
                is_in.set()
                await asyncio.Event().wait()

        for way in WAYS:
            is_in.clear()
            task = asyncio.create_task(consume(way))
            await is_in.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert billing.bills() == billing.received() == []
        assert await billing.consume("o-1")

    any_world.run(scenario)


def test_a_forked_child_has_connections_of_its_own(server_world: World) -> None:
    if server_world.is_async:
        return

    async def scenario() -> None:
        billing = Billing(server_world)
        await billing.open()
        inbox = billing.inbox.plain
        with inbox.once("parent", consumer="billing"):
            pass
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with inbox.once("child", consumer="billing") as first:
                    status = 0 if first else 1
                inbox.close()
            finally:
                os._exit(status)
        with inbox.once("parent again", consumer="billing") as first:
            assert first
        assert os.waitpid(child, 0)[1] == 0
        assert [each for _, each in billing.received()] == ["child", "parent", "parent again"]

    server_world.run(scenario)
