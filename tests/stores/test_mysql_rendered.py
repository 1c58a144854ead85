"""Values in the statements that the store sends without a cursor: whatever they are, they stay values."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

import asyncmy
import pymysql
import pytest
from pymysql.cursors import Cursor

from aftercommit.errors import UnsupportedTransaction
from aftercommit.events.claims import NewEvent
from aftercommit.ports import Colour
from aftercommit.stores.mysql.link import rendered
from aftercommit.testing.kit import NOON, event
from tests.stores.kit import run_in
from tests.stores.mysql_kit import DRIVERS, Table, connect, made, opened, parts_of, played, store_at

#: What could end a text, begin something else, or be another text when it is read again.
TEXTS = {
    "quote": "'",
    "quotes": "''''",
    "double quote": '"',
    "backtick": "`",
    "backslash": "\\",
    "backslashes": "\\\\\\",
    "escaped quote": "\\'",
    "quote, then backslash": "'\\",
    "injection": "x', 'y'); DROP TABLE texts; -- ",
    "injection without backslash escapes": "\\', 'y'); DROP TABLE texts; -- ",
    "nul": "a\x00b",
    "control-z": "a\x1ab",
    "lines": "a\nb\r\nc\td",
    "placeholders": "%s %% %(a)s {0} {} :name ? $1",
    "comment": "/*! 1 */ -- # /*",
    "four bytes": "🙂'\\𝄞",
    "umlauts": "ß é 你'\\",
    "the end of an escape in another charset": "\u00bf\\'\u4f60'",
    "blanks": " a ",
    "empty": "",
    "null": "NULL",
    "number": "0x41",
}

MODES = ["", "NO_BACKSLASH_ESCAPES", "ANSI_QUOTES", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES"]


class Word(StrEnum):
    ONE = "it's"


#: Every type that a statement of the store's takes, and some more.
VALUES = [
    *TEXTS.values(),
    *(None, 0, -1, 2**63, 2**64, True, False, 1.5, Decimal("1.50"), Word.ONE),
    *(NOON, NOON.replace(microsecond=0), datetime(1, 1, 1, tzinfo=UTC)),
]


@pytest.fixture
def table(mysql_url: str) -> Iterator[Table]:
    table = made(mysql_url)
    table.clear()
    yield table
    table.close()


@pytest.fixture(params=DRIVERS)
def colour(request: pytest.FixtureRequest) -> Colour:
    return DRIVERS[request.param]


async def opened_by(colour: Colour, url: str, **settings: Any) -> Any:
    """A caller's own connection."""
    if colour is Colour.BLOCKING:
        return connect(url, **settings)
    return await asyncmy.connect(**{**parts_of(url), "charset": "utf8mb4", **settings})


@pytest.fixture
def joining(table: Table, colour: Colour) -> Callable[..., Any]:
    """Run a scenario in a transaction on a caller's own connection, and commit it."""

    def run_it(scenario: Callable[[Any, Any], Coroutine[Any, Any, None]], **settings: Any) -> None:
        async def whole() -> None:
            store = store_at(table.url, colour)
            await store.open()
            raw = await opened_by(colour, table.url, **settings)
            try:
                await scenario(store, raw)
                if colour is Colour.ASYNC:
                    await raw.commit()
                else:
                    raw.commit()
            finally:
                raw.close()
                await store.close()

        run_in(colour, whole())

    return run_it


@pytest.mark.parametrize("mode", MODES)
def test_every_text_is_stored_as_it_is_in_every_sql_mode(joining: Any, table: Table, mode: str) -> None:
    async def scenario(store: Any, raw: Any) -> None:
        tx = store.executor.adopt(raw)
        await tx.execute(f"SET SESSION sql_mode = '{mode}'")
        for name, text in TEXTS.items():
            assert await tx.execute("INSERT INTO texts (value, name) VALUES (%s, %s)", (text, name)) == 1

    table.execute("CREATE TABLE texts (name VARCHAR(99), value VARCHAR(99)) CHARACTER SET utf8mb4")
    joining(scenario)
    assert {row["name"]: row["value"] for row in table.read("SELECT name, value FROM texts")} == TEXTS


def test_an_sql_mode_that_changes_in_the_transaction_counts_from_there_on(joining: Any, table: Table) -> None:
    """Text that is escaped for one mode is another text in the other, or the end of the text."""
    text = "\\'; it's \\\\ \\"

    async def scenario(store: Any, raw: Any) -> None:
        tx = store.executor.adopt(raw)
        for mode in ("", "NO_BACKSLASH_ESCAPES", "", "ANSI,NO_BACKSLASH_ESCAPES"):
            await tx.execute(f"SET SESSION sql_mode = '{mode}'")
            given = event(payload_json=json.dumps(text), key=text, aggregate_type="a'\\", headers={text: text})
            await store.insert(tx, [NewEvent(given, 0)])

    joining(scenario)
    assert len(table.rows()) == 4
    for row in table.rows():
        assert (row["event_key"], row["aggregate_type"]) == (text, "a'\\")
        assert (json.loads(row["payload"]), json.loads(row["headers"])) == (text, {text: text})


@pytest.mark.parametrize("mode", MODES)
def test_a_statement_says_what_the_drivers_own_cursor_would_say(joining: Any, mode: str) -> None:
    async def scenario(store: Any, raw: Any) -> None:
        tx = store.executor.adopt(raw)
        await tx.execute(f"SET SESSION sql_mode = '{mode}'")
        sql = f"SELECT '100%%', {', '.join(['%s'] * len(VALUES))}"
        ours, theirs = rendered(sql, VALUES, raw), raw.cursor().mogrify(sql, tuple(VALUES))
        for said, meant in zip((await tx.fetch(ours))[0], (await tx.fetch(theirs))[0], strict=True):
            assert str(said).removesuffix(".000000") == str(meant)
        assert rendered("SELECT '100%'", (), raw) == "SELECT '100%'"

    joining(scenario)


@pytest.mark.parametrize("values", [(), ("a",), ("a", "b", "c")])
def test_a_statement_with_the_wrong_number_of_values_is_refused(joining: Any, table: Table, values: Any) -> None:
    async def scenario(store: Any, raw: Any) -> None:
        with pytest.raises((TypeError, store.executor.driver_error)):
            await store.executor.adopt(raw).execute("INSERT INTO outbox_schema (name, value) VALUES (%s, %s)", values)

    joining(scenario)
    assert not table.read("SELECT name FROM outbox_schema WHERE name = 'a'")


@pytest.mark.parametrize("charset", ["latin1", "gbk", "big5", "sjis"])
def test_in_another_charset_only_ascii_is_sent(joining: Any, table: Table, charset: str) -> None:
    """In some of them the second byte of a character may be a backslash, which would undo an escape."""
    text = "it's \\' \\"

    async def scenario(store: Any, raw: Any) -> None:
        tx = store.executor.adopt(raw)
        for beyond in ("é'", "你\\'", "表'", "🙂"):
            with pytest.raises(UnsupportedTransaction, match=charset):
                await store.insert(tx, [NewEvent(event(payload_json=json.dumps(beyond, ensure_ascii=False)), 0)])
        await store.insert(tx, [NewEvent(event(payload_json=json.dumps(text), key=text), 0)])

    joining(scenario, charset=charset)
    (row,) = table.rows()
    assert (row["event_key"], json.loads(row["payload"])) == (text, text)


def test_bytes_are_stored_as_they_are(table: Table, colour: Colour) -> None:
    every = bytes(range(256)) + b"\\'\"\x00"

    async def scenario(store: Any) -> None:
        tx = await opened(store)
        for mode in MODES:
            await tx.query(f"SET SESSION sql_mode = '{mode}'")
            await store.insert(tx, [NewEvent(event(payload_bytes=every), 0)])
        await tx.commit()

    played(table, colour, scenario)
    assert [row["payload_bytes"] for row in table.rows()] == [every] * len(MODES)


def test_what_a_statement_says_it_did_is_right(table: Table, colour: Colour) -> None:
    async def scenario(store: Any) -> None:
        tx = await opened(store)
        many = "INSERT INTO outbox_schema (name, value) VALUES (%s, 'x'), (%s, 'x')"
        assert await tx.execute(many, ("one", "two")) == 2
        assert await tx.execute("UPDATE outbox_schema SET value = 'x' WHERE value = %s", ("x",)) == 2, "matched"
        assert await tx.execute("DELETE FROM outbox_schema WHERE name = 'none'") == 0
        assert await tx.execute("SELECT name FROM outbox_schema WHERE value = %s", ("x",)) == 2
        assert await tx.fetch("SELECT 1, %s", ("a%s",)) == [(1, "a%s")], "in step"
        await tx.end()

    played(table, colour, scenario)


# ---------------------------------------------------------------- those who listen to a connection's cursors


def test_whoever_listens_to_the_cursors_of_asyncmy_hears_the_insert(table: Table) -> None:
    heard: list[str] = []

    async def whole() -> None:
        store = store_at(table.url, Colour.ASYNC)
        await store.open()
        raw = await opened_by(Colour.ASYNC, table.url, query_callback=lambda _, query, __: heard.append(query))
        await store.insert(store.executor.adopt(raw), [NewEvent(event(event_id="heard"), 0)])
        await raw.commit()
        raw.close()
        await store.close()

    run_in(Colour.ASYNC, whole())
    assert any("INSERT" in query and "'heard'" in query for query in heard)
    assert [row["event_id"] for row in table.rows()] == ["heard"]


def test_a_connection_class_of_the_users_lends_its_cursors(table: Table) -> None:
    """Such as one that traces what they run."""
    heard: list[str] = []

    class Heard(Cursor):
        def execute(self, query: Any, args: Any = None) -> int:
            heard.append(query)
            return int(super().execute(query, args))

    class Traced(pymysql.Connection):
        def cursor(self, cursor: Any = None) -> Any:
            return super().cursor(Heard)

    async def whole() -> None:
        store = store_at(table.url)
        await store.open()
        raw = Traced(**parts_of(table.url), charset="utf8mb4")
        await store.insert(store.executor.adopt(raw), [NewEvent(event(event_id="heard"), 0)])
        raw.commit()
        raw.close()
        await store.close()

    run_in(Colour.BLOCKING, whole())
    assert any("INSERT" in query for query in heard)
    assert [row["event_id"] for row in table.rows()] == ["heard"]
