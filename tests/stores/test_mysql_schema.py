"""The tables on MySQL and MariaDB: made once by many, made again after a crash, and as the contract needs them."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from shutil import which
from typing import Any

import pytest

from aftercommit.errors import SchemaMismatch, StoreBusy
from aftercommit.events.claims import NewEvent, RowKey
from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.stores.mysql.link import LinkTx
from aftercommit.stores.sql.statements import Statements
from aftercommit.testing.kit import LEASE, event, ids, take
from aftercommit.testing.runs import lay, run_of
from tests.stores.kit import insert, run_in
from tests.stores.mysql_kit import Table, is_mariadb, made, parts_of, store_at


@pytest.fixture
def table(mysql_url: str) -> Iterator[Table]:
    table = made(mysql_url)
    table.clear()
    yield table
    table.clear()
    table.close()


def facts(table: Table, name: str) -> dict[str, str]:
    return {row["name"]: row["value"] for row in table.read(f"SELECT * FROM {name}_schema")}


def columns(table: Table, name: str) -> list[dict[str, Any]]:
    return table.read(f"SHOW FULL COLUMNS FROM `{name}`")


@pytest.mark.parametrize("colour", Colour)
def test_many_processes_make_the_tables_once(table: Table, colour: Colour) -> None:
    barrier = threading.Barrier(6)
    name = f"many_{colour.value}"

    def make(_: int) -> str:
        store = store_at(table.url, colour, table=name)
        barrier.wait(20)

        async def whole() -> str:
            await store.open()
            found = await store.executor.fetch(f"SELECT value FROM {name}_schema WHERE name = 'store_id'")
            await store.close()
            return found[0][0]

        return run_in(colour, whole())

    with ThreadPoolExecutor(6) as threads:
        assert len(set(threads.map(make, range(6)))) == 1


@pytest.mark.parametrize("crash", range(2, 26))
def test_a_crash_between_statements_is_mended_by_the_next(
    table: Table, crash: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DDL commits by itself: whatever was there is found, whatever was not is made."""
    real, turns = LinkTx._run, []

    async def dying(self: Any, means: Any, sql: str, parameters: Any) -> Any:
        turns.append(sql)
        if len(turns) == crash:
            self._link.drop()
        return await real(self, means, sql, parameters)

    with monkeypatch.context() as patched:
        patched.setattr(LinkTx, "_run", dying)
        with pytest.raises(Exception, match=r"."):
            run(store_at(table.url, table="crashed").open())
    store = store_at(table.url, table="crashed")
    run(store.open())
    run(insert(store, event()))
    assert len(run(take(store))) == 1
    run(store.close())
    assert facts(table, "crashed")["version"] == str(store._schema.version)
    assert columns(table, "crashed") == columns(table, "outbox_event")
    assert indexes(table, "crashed") == indexes(table, "outbox_event")
    assert table.value("SELECT COUNT(*) FROM crashed_partition") == 256
    table.clear()


def indexes(table: Table, name: str) -> list[tuple[str, str]]:
    found = table.read(f"SHOW INDEX FROM `{name}`")
    return [(row["Key_name"].removeprefix(name), row["Column_name"]) for row in found]


def first_version(table: Table, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A store of the first release, with one event of each status."""
    with monkeypatch.context() as patched:
        real = Statements.migrations
        patched.setattr(Statements, "migrations", lambda self: real(self)[:1])
        store = store_at(table.url, table="old")
        run(store.open())
    given = [event(key="a") for _ in range(4)]
    run(lay(store, *given))
    for status, each in enumerate(given):
        table.execute("UPDATE old SET status = %s WHERE event_id = %s", status, each.event_id)
    run(store.close())
    return given


def test_an_old_table_is_upgraded_with_its_rows(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    new, _, failed, _ = first_version(table, monkeypatch)
    store = store_at(table.url, table="old")
    run(store.create_schema())
    run(store.create_schema())
    assert facts(table, "old")["version"] == str(store._schema.version)
    assert columns(table, "old") == columns(table, "outbox_event")
    assert indexes(table, "old") == indexes(table, "outbox_event")
    found = table.read("SELECT status, is_dead, order_key FROM old ORDER BY position")
    assert [(row["is_dead"], row["order_key"]) for row in found] == [(0, "a"), (None, None), (0, "a"), (1, "a")]
    assert run(run_of(store)) == ids([new, failed])
    table.execute("UPDATE old SET status = 1 WHERE event_id = %s", new.event_id)
    assert table.value("SELECT order_key FROM old WHERE event_id = %s", new.event_id) is None
    assert run(store.executor.fetch("SELECT @@lock_wait_timeout > 10")) == [(1,)]
    run(store.close())


@pytest.mark.parametrize("text", ["ADD COLUMN", "ADD INDEX"])
def test_an_upgrade_lets_writers_write(table: Table, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The server is asked to refuse if it must copy the table or keep writers out; neither of the two need."""
    first_version(table, monkeypatch)
    real, seen = LinkTx._run, list[str]()
    if is_mariadb(table):
        demands = {"ADD COLUMN": "ALGORITHM=INSTANT, LOCK=NONE", "ADD INDEX": "ALGORITHM=NOCOPY, LOCK=NONE"}
    else:  # which takes no word about locks beside INSTANT
        demands = {"ADD COLUMN": "ALGORITHM=INSTANT", "ADD INDEX": "ALGORITHM=INPLACE, LOCK=NONE"}

    async def demanding(self: Any, means: Any, sql: str, parameters: Any) -> Any:
        if f"\n    {text}" in sql or f" {text} " in sql or f" {text.replace('ADD', 'ADD UNIQUE')} " in sql:
            seen.append(sql)
            sql = sql[: sql.rindex("'")] + f", {demands[text]}')"
        return await real(self, means, sql, parameters)

    monkeypatch.setattr(LinkTx, "_run", demanding)
    store = store_at(table.url, table="old")
    run(store.create_schema())
    run(store.close())
    assert len(seen) == 3
    assert indexes(table, "old") == indexes(table, "outbox_event")


def test_a_half_made_schema_is_refused_until_it_is_made_whole(table: Table) -> None:
    run(store_at(table.url, table="half").open())
    table.execute("DELETE FROM half_schema")
    with pytest.raises(SchemaMismatch, match="is there, but half_schema does not say"):
        run(store_at(table.url, table="half", create_schema=False).open())
    run(store_at(table.url, table="half", create_schema=False).create_schema())


def test_the_lock_is_given_back(table: Table) -> None:
    store = store_at(table.url, table="x" * 48)
    run(store.open())
    other = store_at(table.url, table="x" * 48)
    statement = other._sql["schema_lock"]
    name = other.names.qualified(other.names.table)
    assert run(other.executor.fetch(statement.sql.replace("60", "0"), statement.bind(name=name))) == [(1,)]
    run(other.close())
    run(store.close())


@pytest.mark.parametrize("colour", Colour)
def test_who_waits_in_vain_makes_nothing(table: Table, colour: Colour) -> None:
    """The lock is another's: two who change a table at once get in each other's way."""
    store = store_at(table.url, colour, table="taken")
    statement = store._sql["schema_lock"]
    hasty = store._sql["schema_lock"] = replace(statement, sql=statement.sql.replace("60", "0"))
    name = store.names.qualified(store.names.table)
    assert list(table.read(hasty.sql, *hasty.bind(name=name))[0].values()) == [1]

    async def refused() -> None:
        with pytest.raises(StoreBusy, match="another process holds the lock for changes of taken"):
            await store.create_schema()
        await store.close()

    run_in(colour, refused())
    unlock = store._sql["schema_unlock"]
    table.read(unlock.sql, *unlock.bind(name=name))
    assert not table.read("SHOW TABLES LIKE 'taken%%'")


@pytest.mark.skipif(which("mysql") is None, reason="the command line client is not installed")
def test_the_script_makes_the_same_tables_by_hand(table: Table) -> None:
    parts = parts_of(table.url)
    script = store_at(table.url, table="by_hand").schema_sql()
    done = subprocess.run(
        ["mysql", "-h", parts["host"], "-P", str(parts["port"]), "-u", parts["user"], parts["database"]],
        input=script.encode(),
        env={"MYSQL_PWD": parts["password"], "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    store = store_at(table.url, table="by_hand", create_schema=False)
    run(store.open())
    run(store.close())
    assert columns(table, "by_hand") == columns(table, "outbox_event")


def test_ids_and_keys_compare_byte_by_byte(table: Table) -> None:
    """Case, accents and blanks at the end make another id."""
    names = ["a", "A", "a ", " a", "á", "a\u0301", "\uff41", "ß", "ss"]
    store = store_at(table.url)
    run(store.open())
    given = [event(event_id=name) for name in names]
    run(insert(store, *given))
    run(insert(store, *given, handler_id="h"))
    run(insert(store, *given, handler_id="h "))
    assert len(run(take(store, limit=100))) == 3 * len(given)
    opened = run(store.executor.begin())
    found = run(store.surviving(opened, [RowKey("a ", ""), RowKey("A", "")]))
    assert {key.event_id for key in found} == {"a ", "A"}
    run(opened.end())
    run(store.close())


def test_the_longest_names_fit(table: Table) -> None:
    store = store_at(table.url)
    run(store.open())
    fields = {"aggregate_type": "😀" * 64, "aggregate_id": "😀" * 128, "tenant_id": "😀" * 64, "key": "😀" * 255}
    given = event("😀" * 128, event_id="😀" * 36, **fields)
    row = NewEvent(given, 0, "😀" * 128, handler_id="😀" * 255)
    run(store.executor.transact(lambda tx: store.insert(tx, [row])))
    table.execute("UPDATE outbox_event SET lease_until = locked_at")
    (claimed,) = run(take(store, "😀" * 128))
    assert claimed.event == given
    assert claimed.lease.key == ("😀" * 36, "😀" * 255)
    assert run(store.renew([claimed.lease], LEASE)) == {claimed.lease.key}
    run(store.close())


def test_tables_are_transactional_whatever_the_server_prefers(table: Table) -> None:
    status = table.read("SHOW TABLE STATUS WHERE Name LIKE 'outbox%'")
    assert {row["Engine"] for row in status} == {"InnoDB"}
