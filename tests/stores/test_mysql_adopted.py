"""Writing through a caller's own PyMySQL or asyncmy connection, in whatever state it is."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from inspect import isawaitable
from typing import Any

import asyncmy
import pytest
from asyncmy.cursors import DictCursor as AsyncDictCursor
from pymysql.cursors import DictCursor

from aftercommit.errors import NotInTransaction, PayloadTooLarge, UnsupportedTransaction
from aftercommit.events.claims import NewEvent
from aftercommit.ports import Colour
from aftercommit.stores.sql.execution import Fault
from aftercommit.testing.kit import HOUR, SECOND, event, take
from tests.stores.kit import run_in
from tests.stores.mysql_kit import DRIVERS, Table, connect, locked, made, parts_of, store_at

Scenario = Callable[[Any, "Caller"], Coroutine[Any, Any, Any]]


class Caller:
    """Somebody with a connection of his own, of either colour."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    async def run(self, sql: str, *parameters: object) -> Any:
        cursor = self.raw.cursor()
        await done(cursor.execute(sql, parameters or None))
        rows = await done(cursor.fetchall())
        await done(cursor.close())
        return rows

    async def commit(self) -> None:
        await done(self.raw.commit())

    async def close(self) -> None:
        if self.raw.open if hasattr(self.raw, "open") else self.raw.connected:
            await done(self.raw.close() if hasattr(self.raw, "open") else self.raw.ensure_closed())


async def done(value: Any) -> Any:
    return await value if isawaitable(value) else value


@pytest.fixture
def table(mysql_url: str) -> Iterator[Table]:
    table = made(mysql_url)
    table.clear()
    yield table
    table.close()


@pytest.fixture(params=DRIVERS)
def play(request: pytest.FixtureRequest, table: Table) -> Callable[..., Any]:
    """Run a scenario with a store and a caller's connection."""
    colour = DRIVERS[request.param]

    def played(scenario: Scenario, *, is_dict: bool = False, **settings: Any) -> Any:
        if is_dict:
            settings |= {"cursorclass": DictCursor} if colour is Colour.BLOCKING else {"cursor_cls": AsyncDictCursor}

        async def whole() -> Any:
            store = store_at(table.url, colour)
            await store.open()
            caller = Caller(
                connect(table.url, **settings)
                if colour is Colour.BLOCKING
                else await asyncmy.connect(**{**parts_of(table.url), "charset": "utf8mb4", **settings})
            )
            try:
                return await scenario(store, caller)
            finally:
                await caller.close()
                await store.close()

        return run_in(colour, whole())

    return played


def test_a_row_is_part_of_the_callers_transaction(play: Any, table: Table) -> None:
    async def scenario(store: Any, caller: Caller) -> None:
        tx = store.executor.adopt(caller.raw)
        assert (tx.is_active, tx.is_begun) == (True, False), "without autocommit the server begins by itself"
        await store.insert(tx, [NewEvent(event(event_id="kept"), 0)])
        assert tx.is_begun
        assert table.rows() == []
        await caller.commit()
        await store.insert(tx, [NewEvent(event(event_id="undone"), 0)])
        await done(caller.raw.rollback())

    play(scenario)
    assert [row["event_id"] for row in table.rows()] == ["kept"]


def test_with_autocommit_only_a_transaction_that_was_begun_counts(play: Any) -> None:
    async def scenario(store: Any, caller: Caller) -> None:
        tx = store.executor.adopt(caller.raw)
        assert (tx.is_active, tx.is_begun) == (False, False)
        await caller.run("BEGIN")
        assert (tx.is_active, tx.is_begun) == (True, True)
        await caller.run("ROLLBACK")
        await done(caller.raw.autocommit(False))
        assert (tx.is_active, tx.is_begun) == (True, False)
        await caller.close()
        assert (tx.is_active, tx.is_begun) == (False, False)

    play(scenario, autocommit=True)


def test_after_a_deadlock_nothing_is_saved_by_itself(play: Any, table: Table) -> None:
    """The driver still believes that the transaction is open."""

    async def scenario(store: Any, caller: Caller) -> None:
        first, second = event(event_id="a"), event(event_id="b")
        await store.executor.transact(lambda tx: store.insert(tx, [NewEvent(first, 0), NewEvent(second, 0)]))
        await caller.run("BEGIN")
        await caller.run("UPDATE outbox_event SET attempts = 9 WHERE event_id = 'a'")
        with (
            locked(table.url, "UPDATE outbox_event SET attempts = 8 WHERE event_id = 'b'") as other,
            ThreadPoolExecutor(1) as thread,
        ):
            other.execute("INSERT INTO outbox_schema (name, value) SELECT CONCAT('x', position), '' FROM outbox_event")
            waits = thread.submit(other.execute, "UPDATE outbox_event SET attempts = 7 WHERE event_id = 'a'")
            with pytest.raises(store.executor.driver_error, match="Deadlock"):
                await caller.run("UPDATE outbox_event SET attempts = 9 WHERE event_id = 'b'")
            waits.result(20)
        tx = store.executor.adopt(caller.raw)
        with pytest.raises(NotInTransaction, match="rolled the transaction back"):
            await store.insert(tx, [NewEvent(event(), 0)])
        assert not tx.is_active

    play(scenario, autocommit=True)
    assert len(table.rows()) == 2


@pytest.mark.parametrize(
    "mode", ["", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "ANSI", "TRADITIONAL", "PIPES_AS_CONCAT,HIGH_NOT_PRECEDENCE"]
)
@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_any_sql_mode_writes_the_same(play: Any, mode: str, many: bool) -> None:
    text, binary = '{"a": "it\'s \\\\ \\" 😀 %s"}', bytes(range(256))
    given = [event(payload_json=text, headers={"a'\\": "b\\\\'"}), event(payload_bytes=binary)]

    async def scenario(store: Any, caller: Caller) -> None:
        await caller.run(f"SET SESSION sql_mode = '{mode}'")
        tx = store.executor.adopt(caller.raw)
        rows = [NewEvent(each, 0) for each in given]
        for group in [rows] if many else [[row] for row in rows]:
            await store.insert(tx, group)
        await caller.commit()
        assert [claimed.event for claimed in await take(store)] == given
        assert dict(given[0].headers) == {"a'\\": "b\\\\'"}

    play(scenario)


@pytest.mark.parametrize("zone", ["+12:45", "-11:30", "SYSTEM"])
def test_times_are_of_the_statement_and_in_utc_in_every_zone(play: Any, table: Table, zone: str) -> None:
    async def scenario(store: Any, caller: Caller) -> None:
        await caller.run(f"SET SESSION time_zone = '{zone}'")
        await caller.run("SELECT 1")
        before = table.now()
        tx = store.executor.adopt(caller.raw)
        await store.insert(tx, [NewEvent(event(), 0), NewEvent(event(deliver_after="1h"), 0)])
        after = table.now()
        await caller.commit()
        now, later = table.rows()
        assert before <= now["created_at"] <= after
        assert now["available_at"] == now["created_at"]
        assert abs(later["available_at"] - now["created_at"] - HOUR) < SECOND
        assert len(await take(store)) == 1

    play(scenario)


def test_the_callers_cursor_class_is_the_callers(play: Any) -> None:
    async def scenario(store: Any, caller: Caller) -> None:
        tx = store.executor.adopt(caller.raw)
        assert await tx.fetch("SELECT 1 AS one") == [(1,)]
        assert await caller.run("SELECT 1 AS one") == [{"one": 1}]

    play(scenario, is_dict=True)


@pytest.mark.parametrize("charset", ["latin1", "utf8"])
def test_a_connection_that_cannot_say_everything_is_refused_when_it_matters(
    play: Any, table: Table, charset: str
) -> None:
    """In a lax mode the server would cut the text at the first character that it does not know."""

    async def scenario(store: Any, caller: Caller) -> None:
        await caller.run("SET SESSION sql_mode = ''")
        tx = store.executor.adopt(caller.raw)
        with pytest.raises(UnsupportedTransaction, match=charset):
            await store.insert(tx, [NewEvent(event(payload_json='"😀"'), 0)])
        await store.insert(tx, [NewEvent(event(payload_json='"ascii"'), 0)])
        await caller.commit()

    play(scenario, charset=charset)
    assert [row["payload"] for row in table.rows()] == ['"ascii"']


def test_a_batch_is_written_whole_or_not_at_all(play: Any, table: Table) -> None:
    """Although it takes several statements."""
    large = '"' + "x" * 200_000 + '"'

    async def scenario(store: Any, caller: Caller) -> None:
        tx = store.executor.adopt(caller.raw)
        batch = [NewEvent(event(payload_json=large), 0) for _ in range(6)]
        await store.insert(tx, [NewEvent(event(event_id="kept"), 0)])
        with pytest.raises(store.executor.driver_error, match="Duplicate"):
            await store.insert(tx, [*batch, batch[0]])
        await caller.commit()

    play(scenario)
    assert [row["event_id"] for row in table.rows()] == ["kept"]


def test_a_statement_that_the_server_does_not_take_is_refused_before_it_is_sent(play: Any, table: Table) -> None:
    limit = table.value("SELECT @@max_allowed_packet")

    async def scenario(store: Any, caller: Caller) -> None:
        tx = store.executor.adopt(caller.raw)
        await store.insert(tx, [NewEvent(event(event_id="kept"), 0)])
        with pytest.raises(PayloadTooLarge, match="max_allowed_packet") as caught:
            await tx.execute("SELECT LENGTH(%s)", ("x" * limit,))
        assert store.executor.fault_of(caught.value) is Fault.ROW
        await caller.commit()

    play(scenario)
    assert len(table.rows()) == 1


@pytest.mark.parametrize("other", [object(), None, "mysql://"])
def test_what_is_no_connection_of_this_driver_is_not_adopted(play: Any, other: object) -> None:
    async def scenario(store: Any, caller: Caller) -> None:
        assert store.executor.adopt(other) is None

    play(scenario)
