"""A write goes into an open transaction of the one who writes, or nowhere."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
from contextvars import copy_context
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from aftercommit import NotAwaited, NotInTransaction, TransactionEnded, UnsupportedTransaction
from aftercommit.stores.sqlite.write_lock import WriteLock
from aftercommit.transactions import owned
from tests.support import PATIENCE, Signal, World
from tests.transactions.kit import Deliberate, beside, elsewhere, watched


@dataclass
class Thing:
    number: int = 0


@pytest.fixture(
    params=[
        pytest.param(lambda outbox, **tx: outbox.write("T", {}, **tx), id="write"),
        pytest.param(lambda outbox, **tx: outbox.write_all([Thing()], **tx), id="write_all"),
        pytest.param(lambda outbox, **tx: outbox.write_all([], **tx), id="write_all-of-nothing"),
    ]
)
def write(request: pytest.FixtureRequest) -> Any:
    """Each way to write."""
    return request.param


# ---------------------------------------------------------------- no transaction


def test_a_write_outside_a_transaction_is_refused(world: World, write: Any) -> None:
    """TC-039, TC-040, F08."""

    async def scenario() -> None:
        outbox = world.outbox()
        await outbox.create_schema()
        with pytest.raises(NotInTransaction, match=r"Fix: (async )?with outbox\.transaction\(\) as tx"):
            await write(outbox)
        assert world.rows() == []

    world.run(scenario)


@pytest.mark.parametrize("ending", ["commit", "rollback", "leave", "raise"])
def test_a_write_after_the_end_of_its_transaction_is_refused(world: World, write: Any, ending: str) -> None:
    """TC-064: neither the ambient transaction nor the object can be used again."""

    async def scenario() -> None:
        outbox = world.outbox()
        tx = None
        try:
            async with outbox.transaction() as tx:
                if ending == "raise":
                    raise Deliberate
                if ending != "leave":
                    await getattr(tx, ending)()
                    with pytest.raises(NotInTransaction):  # still inside the block
                        await write(outbox)
        except Deliberate:
            pass
        with pytest.raises(NotInTransaction, match="Fix: "):
            await write(outbox)
        with pytest.raises(NotInTransaction, match=r"has ended.*\n.*Fix: write inside the block"):
            await write(outbox, tx=tx)
        with pytest.raises(NotInTransaction):
            tx.connection  # noqa: B018
        with pytest.raises(NotInTransaction):
            await tx.execute("SELECT 1")
        assert not tx.is_transaction_active()
        assert world.rows() == []

    world.run(scenario)


def test_a_transaction_that_was_not_begun_takes_nothing(world: World) -> None:
    """TC-059."""

    async def scenario() -> None:
        outbox = world.outbox()
        tx = outbox.transaction()
        assert not tx.is_transaction_active()
        with pytest.raises(NotInTransaction, match="was not begun"):
            tx.current_connection()
        with pytest.raises(NotInTransaction):
            await outbox.write("T", {}, tx=tx)

    world.run(scenario)


def test_a_transaction_object_is_used_once(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        tx = outbox.transaction()
        async with tx:
            await outbox.write("T", {})
        with pytest.raises(TransactionEnded, match=r"Fix: call outbox\.transaction\(\) for each block"):
            async with tx:
                pass
        assert len(world.rows()) == 1

    world.run(scenario)


# ---------------------------------------------------------------- the one who opened it


def test_the_one_who_opened_it_writes_into_it(world: World) -> None:
    """TC-060: the ambient transaction and the object are the same place, on the same connection."""

    async def scenario() -> None:
        outbox = world.outbox()
        async with outbox.transaction() as tx:
            assert tx.is_transaction_active()
            assert tx.current_connection() is tx.connection
            first = await outbox.write("T", {})
            second = await outbox.write("T", {}, tx=tx)
            seen = (await tx.execute("SELECT event_id FROM outbox_event ORDER BY position")).fetchall()
            assert [row[0] for row in seen] == [first, second]
            assert world.rows() == []
        assert [row["event_id"] for row in world.rows()] == [first, second]

    world.run(scenario)


def test_another_thread_or_task_cannot_write_into_it(world: World, write: Any) -> None:
    """TC-065: it inherits the context, not the right; neither does it get it by the object."""

    async def scenario() -> None:
        outbox = world.outbox()
        async with outbox.transaction() as tx:
            with watched(tx.connection) as statements:
                with pytest.raises(NotInTransaction, match=r"Fix: (async )?with outbox\.transaction\(\)"):
                    await elsewhere(world, lambda: _called(lambda: write(outbox)))
                with pytest.raises(NotInTransaction, match=r"another thread or task.*\n.*Fix: "):
                    await elsewhere(world, lambda: _called(lambda: write(outbox, tx=tx)))
                assert statements == []
            assert not await elsewhere(world, lambda: _now(tx.is_transaction_active))
            assert tx.is_transaction_active()
        assert world.rows() == []

    world.run(scenario)


def test_another_thread_with_a_copied_context_cannot_write_into_it(world: World) -> None:
    """What asyncio.to_thread and run_in_executor helpers do: contextvars.copy_context().run in a thread."""

    async def scenario() -> None:
        outbox = world.outbox()
        plain = outbox if world.is_async else outbox.plain
        async with outbox.transaction() as tx:
            for keywords in ({}, {"tx": tx if world.is_async else tx.plain}):
                outcome = await asyncio.to_thread(_in_thread, plain, keywords) if world.is_async else None
                outcome = outcome or _in_thread(plain, keywords)
                assert isinstance(outcome, NotInTransaction), outcome
        assert world.rows() == []

    def _in_thread(outbox: Any, keywords: dict[str, Any]) -> BaseException | None:
        errors: list[BaseException] = []

        def main() -> None:
            try:
                outbox.write("T", {}, **keywords)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=copy_context().run, args=(main,))
        thread.start()
        thread.join(PATIENCE)
        return errors[0] if errors else None

    world.run(scenario)


def test_a_write_made_here_and_awaited_in_another_task_is_refused(tmp_path) -> None:
    world = World("asyncio", tmp_path)

    async def scenario() -> None:
        outbox = world.outbox()
        with pytest.raises(NotAwaited, match="in another task"):  # its task may be one that nobody listens to
            async with outbox.transaction() as tx:
                pending = outbox.write("T", {})
                with watched(tx.connection) as statements:
                    with pytest.raises(NotInTransaction, match="another thread or task"):
                        await elsewhere(world, lambda: _awaited(pending))
                    assert statements == []
        assert world.rows() == []

    world.run(scenario)


def test_a_thread_that_comes_after_the_opener_cannot_write_into_it(tmp_path) -> None:
    world = World("threads", tmp_path)

    async def scenario() -> None:
        outbox = world.outbox()
        opened: list[Any] = []

        async def begin() -> None:
            opened.append((await outbox.begin(), threading.get_ident()))

        async def write() -> bool:
            if threading.get_ident() != opened[0][1]:
                return False
            with pytest.raises(NotInTransaction):
                await outbox.write("T", {}, tx=opened[0][0])
            return True

        await elsewhere(world, begin)
        has_the_same_number = [await elsewhere(world, write) for _ in range(20)]
        await opened[0][0].rollback()
        if not any(has_the_same_number):
            pytest.skip("this platform gives no number twice")

    world.run(scenario)


def test_others_have_transactions_of_their_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The inherited one is not taken for an outer block: what is begun elsewhere is no savepoint of it."""
    in_line, wait = Signal(), WriteLock.wait

    async def scenario() -> None:
        outbox = world.outbox()

        async def independent() -> None:
            async with outbox.transaction():
                await outbox.write("T", '"theirs"')

        with pytest.raises(Deliberate):
            async with outbox.transaction():
                monkeypatch.setattr(WriteLock, "wait", lambda lock: (in_line.set(), wait(lock)))
                theirs = beside(world, independent)
                await in_line.wait()
                await outbox.write("T", '"ours"')
                raise Deliberate
        await theirs()
        assert [row["payload"] for row in world.rows()] == ['"theirs"']

    world.run(scenario)


# ---------------------------------------------------------------- the ambient transaction is restored by value


def test_transactions_of_two_outboxes_may_end_in_any_order(world: World) -> None:
    async def scenario() -> None:
        left, right = world.outbox(), world.outbox(f"sqlite:///{world.folder}/right.db")
        first = await left.begin()
        second = await right.begin()
        await left.write("T", {})
        await first.commit()
        await right.write("T", {})  # its own is still the ambient one
        with pytest.raises(NotInTransaction):
            await left.write("T", {})
        await second.commit()
        with pytest.raises(NotInTransaction):
            await right.write("T", {})

    world.run(scenario)


def test_a_transaction_that_was_ended_elsewhere_leaves_nothing_behind(world: World) -> None:
    """Ended in a context of its own, it is forgotten when the next one is entered."""

    async def scenario() -> None:
        outbox = world.outbox()
        for _ in range(5):
            tx = await outbox.begin()
            await elsewhere(world, lambda tx=tx: _awaited(tx.commit()))
            with pytest.raises(NotInTransaction):
                await outbox.write("T", {})
        async with outbox.transaction():
            assert len(owned._open.get()) == 1

    world.run(scenario)


# ---------------------------------------------------------------- connections of the caller's own


def test_an_autocommit_connection_is_refused(world: World, write: Any) -> None:
    """TC-039: isolation_level=None without BEGIN would save the event by itself."""

    async def scenario() -> None:
        outbox = world.outbox()
        await outbox.create_schema()
        connection = sqlite3.connect(world.path, isolation_level=None)
        with watched(connection) as statements:
            with pytest.raises(NotInTransaction, match=r"autocommit(.|\n)*Fix: conn\.execute"):
                await write(outbox, tx=connection)
            assert statements == []
        connection.execute("BEGIN")
        await outbox.write("T", {}, tx=connection)
        connection.execute("COMMIT")
        with pytest.raises(NotInTransaction):
            await write(outbox, tx=connection)
        connection.close()
        assert len(world.rows()) == 1

    world.run(scenario)


class _Autocommit(sqlite3.Connection):
    """Python before 3.12 has no such attribute; there it is only asked for."""

    autocommit = True


class _Pep249(sqlite3.Connection):
    autocommit = False


def _connect(path: Any, *, autocommit: bool) -> sqlite3.Connection:
    if sys.version_info >= (3, 12):
        return sqlite3.connect(path, autocommit=autocommit)
    return sqlite3.connect(path, factory=_Autocommit if autocommit else _Pep249)


def test_the_autocommit_attribute_goes_before_the_isolation_level(world: World) -> None:
    """Since Python 3.12: True refuses although there is an isolation level, False is always in a transaction."""

    async def scenario() -> None:
        outbox = world.outbox()
        await outbox.create_schema()
        connection = _connect(world.path, autocommit=True)
        assert connection.isolation_level is not None
        with pytest.raises(NotInTransaction):
            await outbox.write("T", {}, tx=connection)
        connection.close()
        connection = _connect(world.path, autocommit=False)
        await outbox.write("T", {}, tx=connection)
        assert world.rows() == []
        connection.commit()
        connection.close()
        assert len(world.rows()) == 1

    world.run(scenario)


@pytest.mark.parametrize("mode", ["", "IMMEDIATE", "EXCLUSIVE"])
def test_an_implicit_mode_connection_is_in_a_transaction(world: World, mode: str) -> None:
    """The driver begins before the INSERT; the event is saved with the caller's commit and not without it."""

    async def scenario() -> None:
        outbox = world.outbox()  # the table is made on the way
        connection = sqlite3.connect(world.path, isolation_level=mode)
        lost = await outbox.write("T", {}, tx=connection)
        assert connection.in_transaction
        assert world.rows() == []
        connection.rollback()
        kept = await outbox.write("T", {}, tx=connection)
        connection.commit()
        connection.close()
        assert [row["event_id"] for row in world.rows()] == [kept] != [lost]

    world.run(scenario)


def test_a_closed_connection_is_refused(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        connection = sqlite3.connect(world.path)
        connection.close()
        with pytest.raises(NotInTransaction, match="Fix: "):
            await outbox.write("T", {}, tx=connection)

    world.run(scenario)


def test_callbacks_on_a_plain_connection_are_refused(world: World) -> None:
    """TC-076: they could never fire."""
    from aftercommit.stores.sqlite.executor import SqliteTx
    from aftercommit.transactions.joined import DbapiTransaction

    connection = sqlite3.connect(world.path)
    context = DbapiTransaction(connection, SqliteTx(connection))
    assert context.current_connection() is connection
    for register in (context.after_commit, context.after_rollback):
        with pytest.raises(UnsupportedTransaction, match=r"Fix: use outbox\.transaction\(\)"):
            register(print)
    connection.close()


# ---------------------------------------------------------------- what is no transaction


def test_what_is_no_transaction_is_refused(world: World, write: Any) -> None:
    """A cursor, names, factories, engines, and what only looks like a connection."""

    async def scenario() -> None:
        outbox = world.outbox()
        await outbox.create_schema()
        connection = sqlite3.connect(world.path)
        for wrong in (
            connection.cursor(),
            str(world.path),
            7,
            False,
            object(),
            sqlite3.Connection,
            lambda: connection,
            SimpleNamespace(connect=lambda: connection, begin=lambda: connection),
            SimpleNamespace(execute=connection.execute, in_transaction=True),
        ):
            with pytest.raises(UnsupportedTransaction, match=f"(?s){type(wrong).__qualname__}.*Fix: "):
                await write(outbox, tx=wrong)
        connection.close()
        assert world.rows() == []

    world.run(scenario)


def test_a_transaction_of_another_outbox_is_refused(world: World, write: Any) -> None:
    """Also when it is on the same database: its own hooks and hot path would not see the event."""

    async def scenario() -> None:
        outbox, other = world.outbox(), world.outbox()
        async with other.transaction() as tx:
            with watched(tx.connection) as statements:
                with pytest.raises(UnsupportedTransaction, match=r"another outbox(.|\n)*Fix: "):
                    await write(outbox, tx=tx)
                with pytest.raises(NotInTransaction):  # nor is it this one's ambient transaction
                    await write(outbox)
                assert statements == []
        assert world.rows() == []

    world.run(scenario)


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


async def _called(function: Any) -> Any:
    """The call itself is made there, too."""
    return await function()


async def _now(function: Any) -> Any:
    return function()
