"""The connections of MySQL stores: they die, tasks on them are cancelled, and the pools stay sound."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from aftercommit.errors import StoreBusy, StoreUnavailable
from aftercommit.events.claims import NewEvent
from aftercommit.ports import Colour
from aftercommit.runtime.process import here
from aftercommit.stores.sql import connections
from aftercommit.testing.kit import event, take
from tests.servers import PrivateMariadb
from tests.stores.kit import insert, run_in
from tests.stores.mysql_kit import DRIVERS, Scenario, Table, gone, locked, made, opened, played, session_of, store_at


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


async def asyncio_turn(store: Any) -> None:
    """An event loop closes sockets when it comes round to them."""
    if store.colour is Colour.ASYNC:
        await asyncio.sleep(0)


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
    monkeypatch.setattr(connections, "PATIENCE", 0.05)

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


def test_a_forked_child_leaves_the_parents_connections_alone(
    play: Any, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the child sees it: abandoned, neither closed nor used, and opened anew. It has no copies of sockets here."""
    monkeypatch.setattr(connections, "cut", lambda link: None)

    async def scenario(store: Any) -> None:
        await insert(store, event())
        tx = await opened(store)
        before = set(table.sessions())
        links = [lent.link for lent in (*store.executor._own._idle, *store.executor._lent._lent)]
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
    table.until_no_transaction()


@pytest.mark.parametrize("colour", [Colour.ASYNC], ids=["asyncmy"])
@pytest.mark.parametrize("by", ["query", "execute"])
def test_a_statement_that_is_cancelled_while_it_runs_gives_up_its_connection(
    play: Any, table: Table, colour: Colour, by: str
) -> None:
    async def scenario(store: Any) -> None:
        await insert(store, event(event_id="a"))
        with locked(table.url, "SELECT * FROM outbox_event WHERE event_id = 'a' FOR UPDATE"):
            tx = await opened(store)
            task = asyncio.ensure_future(getattr(tx, by)("UPDATE outbox_event SET attempts = 1"))
            await waiting(table)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert not tx._link.is_open
            await tx.end()
            again = await opened(store)
            assert await again.fetch("SELECT 1") == [(1,)]
            await again.end()

    play(scenario)
    assert table.rows()[0]["attempts"] == 0


async def waiting(table: Table) -> None:
    """Until the server runs an UPDATE, which then waits for the lock."""
    for _ in range(2000):
        await asyncio.sleep(0.005)
        if table.value(
            "SELECT COUNT(*) FROM information_schema.processlist"
            " WHERE db = DATABASE() AND info LIKE 'UPDATE outbox%%' AND 1 = %s",
            1,
        ):
            return
    raise AssertionError("nobody waits")


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
