"""The executors of MySQL: transactions that are begun, committed, rolled back, and done again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from inspect import isawaitable
from typing import Any

import pytest

from aftercommit.errors import StoreBusy, TransactionEnded
from aftercommit.events.claims import NewEvent
from aftercommit.ports import Colour
from aftercommit.stores.mysql.link import LinkTx
from aftercommit.stores.sql.execution import Fault
from aftercommit.testing.kit import event, take
from tests.stores.kit import insert
from tests.stores.mysql_kit import DRIVERS, Scenario, Table, locked, made, opened, played, session_of


@pytest.fixture
def table(mysql_url: str) -> Iterator[Table]:
    table = made(mysql_url)
    table.clear()
    yield table
    table.close()


@pytest.fixture(params=DRIVERS)
def colour(request: pytest.FixtureRequest) -> Colour:
    return DRIVERS[request.param]


@pytest.fixture
def play(table: Table, colour: Colour) -> Callable[[Scenario], Any]:
    return partial(played, table, colour)


def test_a_transaction_is_committed_or_rolled_back(play: Any, table: Table) -> None:
    async def scenario(store: Any) -> None:
        for ends in ("commit", "end"):
            tx = await opened(store)
            assert tx.is_open
            await store.insert(tx, [NewEvent(event(event_id=ends), 0)])
            await getattr(tx, ends)()
            await tx.end()
            assert not tx.is_open

    play(scenario)
    assert [row["event_id"] for row in table.rows()] == ["commit"]


def test_own_transactions_read_what_is_committed_whatever_the_server_says(play: Any) -> None:
    async def scenario(store: Any) -> Any:
        level = "SELECT /*!80000 @@SESSION.transaction_isolation */ /*M! @@SESSION.tx_isolation */"
        assert await store.executor.fetch(level) == [("REPEATABLE-READ",)], "nothing stays on the session"

        async def look(tx: Any) -> list[int]:
            counts = [(await tx.fetch("SELECT COUNT(*) FROM outbox_event"))[0][0]]
            await insert(store, event())  # on another connection
            return [*counts, (await tx.fetch("SELECT COUNT(*) FROM outbox_event"))[0][0]]

        return await store.executor.transact(look)

    assert play(scenario) == [0, 1]


def test_what_a_user_sets_is_not_met_by_the_store(play: Any) -> None:
    async def scenario(store: Any) -> None:
        tx = await opened(store)
        users = await session_of(tx)
        await tx.query("SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'")
        await tx.commit()
        assert await store.executor.fetch("SELECT CONNECTION_ID() = %s", (users,)) == [(0,)]
        await insert(store, event(payload_bytes=b"\\'\x00"))
        assert (await take(store))[0].event.payload == b"\\'\x00"

    play(scenario)


def test_a_spoilt_connection_is_not_used_again(play: Any) -> None:
    async def scenario(store: Any) -> None:
        tx = await opened(store)
        users = await session_of(tx)
        await tx.query("SET autocommit = 0")
        await tx.end()
        again = await opened(store)
        assert await session_of(again) != users
        await again.end()

    play(scenario)


def test_a_users_query_gives_rows_and_takes_either_kind_of_parameter(play: Any) -> None:
    async def scenario(store: Any) -> None:
        tx = await opened(store)
        assert (await tx.query("SELECT 'a%' LIKE 'a%'")).rows == [(1,)]
        assert (await tx.query("SELECT %s, '%%'", ("x",))).fetchone() == ("x", "%")
        assert (await tx.query("SELECT %(a)s", {"a": 7})).fetchone() == (7,)
        found = await tx.query("INSERT INTO outbox_schema (name, value) VALUES ('t', 'x')")
        assert (found.rowcount, found.rows) == (1, [])
        assert (await tx.query("UPDATE outbox_schema SET value = 'x' WHERE name = 't'")).rowcount == 1, "matched"
        await tx.end()

    play(scenario)


@pytest.mark.parametrize("how", ["ddl", "raw rollback", "killed"])
def test_a_commit_of_what_the_server_has_not_raises(play: Any, table: Table, how: str) -> None:
    async def scenario(store: Any) -> None:
        tx = await opened(store)
        await store.insert(tx, [NewEvent(event(), 0)])
        if how == "ddl":
            await tx.query("CREATE TABLE left_over (n INT)")
        elif how == "killed":
            table.kill(await session_of(tx))
        else:
            done = tx.connection.rollback()
            if store.colour is Colour.ASYNC:
                await done
        with pytest.raises(Exception, match=r"no transaction|Lost connection|gone away|killed"):
            await tx.commit()
        await tx.end()
        await insert(store, event())

    play(scenario)


@pytest.mark.parametrize("through", ["query", "connection"])
def test_a_deadlock_ends_the_users_transaction(play: Any, table: Table, through: str) -> None:
    """What the user would do after it must not be saved by itself; nor may its commit pass, wherever it was met."""

    async def said(tx: Any, sql: str, *parameters: object) -> None:
        if through == "query":
            await tx.query(sql, parameters)
        elif isawaitable(running := tx.connection.cursor().execute(sql, parameters)):
            await running

    async def scenario(store: Any) -> None:
        await insert(store, event(event_id="a"), event(event_id="b"))
        tx = await opened(store)
        update = "UPDATE outbox_event SET attempts = 9 WHERE event_id = %s"
        await said(tx, update, "a")
        with locked(table.url, "UPDATE outbox_event SET attempts = 8 WHERE event_id = 'b'") as other:
            # The one who has changed more rows is spared.
            other.execute("INSERT INTO outbox_schema (name, value) SELECT CONCAT('x', position), '' FROM outbox_event")
            with ThreadPoolExecutor(1) as thread:
                waits = thread.submit(other.execute, "UPDATE outbox_event SET attempts = 7 WHERE event_id = 'a'")
                with pytest.raises(store.executor.driver_error) as caught:
                    await said(tx, update, "b")
                waits.result(20)
        assert store.executor.fault_of(caught.value) is Fault.CONFLICT
        assert through == "connection" or not tx.is_open
        with pytest.raises(TransactionEnded):
            await tx.commit()
        await tx.end()

    play(scenario)
    assert {row["attempts"] for row in table.rows()} == {0}


def test_a_transaction_that_loses_a_deadlock_is_done_again(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(store: Any) -> None:
        real, turns = LinkTx.execute, []

        async def losing(self: Any, sql: str, parameters: Any = ()) -> int:
            turns.append(sql)
            count = await real(self, sql, parameters)
            if len(turns) < 4:
                raise store.executor.driver_error(1213, "Deadlock found when trying to get lock")
            return count

        monkeypatch.setattr(LinkTx, "execute", losing)
        await insert(store, event())
        assert len(turns) == 4

    play(scenario)


def test_a_deadlock_without_end_is_told(play: Any, table: Table) -> None:
    async def scenario(store: Any) -> None:
        turns = []

        async def work(tx: Any) -> None:
            turns.append(tx)
            raise store.executor.driver_error(1213, "Deadlock found when trying to get lock")

        with pytest.raises(store.executor.driver_error, match="Deadlock"):
            await store.executor.transact(work)
        assert len(turns) == 10

    play(scenario)


def test_a_long_lock_wait_is_busy_and_leaves_the_connection_sound(play: Any, table: Table) -> None:
    async def scenario(store: Any) -> None:
        await insert(store, event(event_id="a"))
        (claimed,) = await take(store)
        await store.executor.fetch("SET SESSION innodb_lock_wait_timeout = 1")
        with locked(table.url, "SELECT * FROM outbox_event WHERE event_id = 'a' FOR UPDATE"):
            with pytest.raises(Exception, match="Lock wait timeout") as caught:
                await store.mark_suspect(claimed.lease)
            assert store.executor.fault_of(caught.value) is Fault.BUSY
            assert store.is_row_fault(caught.value)
            with pytest.raises(StoreBusy):
                await store._explained(store.executor.execute("UPDATE outbox_event SET attempts = 1"))
        assert await store.mark_suspect(claimed.lease)

    play(scenario)
