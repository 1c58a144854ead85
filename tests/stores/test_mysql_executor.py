"""The executors of MySQL: connections die, tasks are cancelled, pools stay sound."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from aftercommit.claims import NewEvent
from aftercommit.errors import StoreBusy, StoreUnavailable, TransactionEnded, UnsupportedTransaction
from aftercommit.ports import Colour, Fault
from aftercommit.runtime.process import here
from aftercommit.stores.mysql import asyncmy_driver, pool, pymysql_driver
from aftercommit.stores.mysql.link import LinkTx
from aftercommit.testing.kit import event, insert, take
from tests.servers import PrivateMariadb
from tests.stores.kit import run_in
from tests.stores.mysql_kit import DRIVERS, Table, locked, made, store_at

Scenario = Callable[[Any], Coroutine[Any, Any, Any]]


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
    """Run a scenario with an open store, close it, and see that nothing of it is left on the server."""

    def played(scenario: Scenario, **options: Any) -> Any:
        store = store_at(table.url, colour, **options)

        async def whole() -> Any:
            await store.open()
            try:
                return await scenario(store)
            finally:
                await store.close()

        found = run_in(colour, whole())
        gone(table)
        return found

    return played


def gone(table: Table) -> None:
    """No session but this one; a server sees a closed connection a moment later."""
    for _ in range(2000):
        if not table.sessions():
            return
    raise AssertionError("a connection was left open")


async def asyncio_turn(store: Any) -> None:
    """An event loop closes sockets when it comes round to them."""
    if store.colour is Colour.ASYNC:
        await asyncio.sleep(0)


async def opened(store: Any) -> Any:
    return await store.executor.begin()


async def session_of(tx: Any) -> int:
    return (await tx.fetch("SELECT CONNECTION_ID()"))[0][0]


# ---------------------------------------------------------------- transactions


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
        level = "SELECT VARIABLE_VALUE FROM information_schema.SESSION_VARIABLES WHERE VARIABLE_NAME = 'TX_ISOLATION'"
        assert await store.executor.fetch(level) == [("REPEATABLE-READ",)], "nothing stays on the session"

        async def look(tx: Any) -> Any:
            await tx.fetch("SELECT COUNT(*) FROM outbox_event")
            return await tx.fetch(
                "SELECT trx_isolation_level FROM information_schema.innodb_trx"
                " WHERE trx_mysql_thread_id = CONNECTION_ID()"
            )

        return await store.executor.transact(look)

    assert play(scenario) == [("READ COMMITTED",)]


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


@pytest.mark.parametrize("sql", ["COMMIT", " rollback ", "/* x */ SAVEPOINT a"])
def test_sql_text_does_not_steer_the_transaction(play: Any, sql: str) -> None:
    async def scenario(store: Any) -> None:
        tx = await opened(store)
        with pytest.raises(UnsupportedTransaction):
            await tx.query(sql)
        assert tx.is_open
        await tx.end()

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


def test_a_deadlock_ends_the_users_transaction(play: Any, table: Table) -> None:
    """What the user would do after it must not be saved by itself."""

    async def scenario(store: Any) -> None:
        await insert(store, event(event_id="a"), event(event_id="b"))
        tx = await opened(store)
        update = "UPDATE outbox_event SET attempts = 9 WHERE event_id = %s"
        await tx.query(update, ("a",))
        with locked(table.url, "UPDATE outbox_event SET attempts = 8 WHERE event_id = 'b'") as other:
            # The one who has changed more rows is spared.
            other.execute("INSERT INTO outbox_schema (name, value) SELECT CONCAT('x', position), '' FROM outbox_event")
            with ThreadPoolExecutor(1) as thread:
                waits = thread.submit(other.execute, "UPDATE outbox_event SET attempts = 7 WHERE event_id = 'a'")
                with pytest.raises(store.executor.driver_error) as caught:
                    await tx.query(update, ("b",))
                waits.result(20)
        assert store.executor.fault_of(caught.value) is Fault.CONFLICT
        assert not tx.is_open
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


# ---------------------------------------------------------------- connections die


def test_an_idle_connection_that_was_killed_is_replaced(play: Any, table: Table) -> None:
    """Both the store's own and those for users, each of several."""

    async def scenario(store: Any) -> None:
        first, second = await opened(store), await opened(store)
        await first.end()
        await second.end()
        await insert(store, event())
        before = table.sessions()
        assert len(before) == 3
        for session in before:
            table.kill(session)
        await insert(store, event())
        tx = await opened(store)
        await store.insert(tx, [NewEvent(event(), 0)])
        await tx.commit()
        assert not set(table.sessions()) & set(before)
        assert len(await take(store)) == 3

    play(scenario)


def test_a_connection_that_dies_in_a_transaction_is_told_and_replaced(play: Any, table: Table) -> None:
    async def scenario(store: Any) -> None:
        async def work(tx: Any) -> None:
            await store.insert(tx, [NewEvent(event(), 0)])
            table.kill(await session_of(tx))
            await store.insert(tx, [NewEvent(event(), 0)])

        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await store._explained(store.executor.transact(work))
        tx = await opened(store)
        table.kill(await session_of(tx))
        with pytest.raises(StoreUnavailable):
            await store._explained(tx.fetch("SELECT 1"))
        assert not tx.is_open
        await tx.end()
        assert table.rows() == []
        await insert(store, event())

    play(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("immediate", [False, True], ids=["shut down", "killed"])
def test_a_server_that_restarts_is_found_again(
    private_mariadb: PrivateMariadb, colour: Colour, immediate: bool
) -> None:
    async def scenario() -> None:
        store = store_at(private_mariadb.url, colour)
        await store.open()
        await insert(store, event())
        tx = await opened(store)
        private_mariadb.stop(immediate=immediate)
        with pytest.raises(StoreUnavailable):
            await take(store)
        await tx.end()
        private_mariadb.start()
        assert len(await take(store)) == 1
        await (await opened(store)).commit()
        await store.close()

    run_in(colour, scenario())


# ---------------------------------------------------------------- pools


def test_close_leaves_no_connection_and_the_next_use_opens_one(play: Any, table: Table) -> None:
    async def scenario(store: Any) -> None:
        tx = await opened(store)
        await store.close()
        await store.close()
        await tx.commit()
        await asyncio_turn(store)
        gone(table)
        await insert(store, event())

    play(scenario)


def test_whoever_finds_no_connection_free_is_told(
    table: Table, colour: Colour, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (pool, pymysql_driver, asyncmy_driver):
        monkeypatch.setattr(module, "PATIENCE", 0.05)

    async def scenario() -> None:
        store = store_at(f"{table.url}?pool_size=2", colour)
        await store.open()
        held = [await opened(store), await opened(store)]
        with pytest.raises(StoreBusy, match="pool_size"):
            await opened(store)
        await insert(store, event())
        await held[0].end()
        await (await opened(store)).end()
        await held[1].end()
        await store.close()

    run_in(colour, scenario())


def test_a_forked_child_leaves_the_parents_connections_alone(play: Any, table: Table) -> None:
    """As the child sees it: abandoned, neither closed nor used, and opened anew."""

    async def scenario(store: Any) -> None:
        await insert(store, event())
        tx = await opened(store)
        before = set(table.sessions())
        links = [*store.executor._own._idle, *store.executor._lent._lent]
        parent = here.token
        here.begin_anew()
        try:
            store.abandon()
            await insert(store, event())
            for link in links:
                link.drop()
                await link.close()
                assert link.is_open
            assert before < set(table.sessions())
            await store.close()
        finally:
            here.token, here.is_forked = parent, False
        await tx.end()
        for link in links:
            await link.close()

    play(scenario)


# ---------------------------------------------------------------- cancellation


@pytest.mark.parametrize("colour", [Colour.ASYNC], ids=["asyncmy"])
@pytest.mark.parametrize("where", ["transact", "begin", "query", "commit", "end", "insert"])
def test_cancelled_anywhere_nothing_is_left_open(play: Any, table: Table, colour: Colour, where: str) -> None:
    """In every await there is, one after the other."""

    async def work(store: Any) -> None:
        if where == "transact":
            await insert(store, event())
            return
        tx = await opened(store)
        try:
            if where == "query":
                await tx.query("SELECT * FROM outbox_event")
            elif where == "insert":
                await store.insert(tx, [NewEvent(event(), 0) for _ in range(3)])
            elif where == "commit":
                await tx.commit()
        finally:
            await tx.end()

    async def scenario(store: Any) -> None:
        for turn in range(100):
            task = asyncio.ensure_future(work(store))
            for _ in range(turn):
                await asyncio.sleep(0)
            if task.done():
                break
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert not store.executor._own._lent
            assert not store.executor._lent._lent
        await insert(store, event())
        tx = await opened(store)
        assert (await tx.fetch("SELECT 41 + 1")) == [(42,)], "in step"
        await tx.end()

    play(scenario)
    assert table.open_transactions() == 0


@pytest.mark.parametrize("colour", [Colour.ASYNC], ids=["asyncmy"])
def test_a_statement_that_is_cancelled_while_it_runs_gives_up_its_connection(
    play: Any, table: Table, colour: Colour
) -> None:
    async def scenario(store: Any) -> None:
        await insert(store, event(event_id="a"))
        with locked(table.url, "SELECT * FROM outbox_event WHERE event_id = 'a' FOR UPDATE"):
            tx = await opened(store)
            task = asyncio.ensure_future(tx.query("UPDATE outbox_event SET attempts = 1"))
            await waiting(table)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert not tx.is_open
            await tx.end()
            again = await opened(store)
            assert await again.fetch("SELECT 1") == [(1,)]
            await again.end()

    play(scenario)
    assert table.rows()[0]["attempts"] == 0


async def waiting(table: Table) -> None:
    """Until the server runs an UPDATE, which then waits for the lock."""
    for _ in range(2000):
        await asyncio.sleep(0)
        if table.value(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'UPDATE outbox%%' AND 1 = %s", 1
        ):
            return
    raise AssertionError("nobody waits")


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("colour", [Colour.ASYNC], ids=["asyncmy"])
def test_connections_of_an_event_loop_that_has_ended_are_not_used(table: Table, colour: Colour) -> None:
    store = store_at(table.url, colour)

    async def use(*, closes: bool = False) -> None:
        await store.open()
        await insert(store, event())
        if closes:
            await store.close()

    asyncio.run(use())
    asyncio.run(use())
    asyncio.run(use(closes=True))
    assert len(table.rows()) == 3
    gc.collect()
