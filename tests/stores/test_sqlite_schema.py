"""The tables: made on first use, once, under the names that were asked for, and checked before they are used."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aftercommit import Outbox
from aftercommit.errors import InvalidOption, OutboxError, SchemaMismatch, SchemaMissing
from aftercommit.events.claims import HASH_NAME, PARTITION_COUNT
from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.stores.sql.statements import TableNames, checked_name
from aftercommit.testing.kit import event, ids, take
from tests.stores.kit import alter, insert, read, run_in, store_at

either_colour = pytest.mark.parametrize("colour", list(Colour), ids=lambda colour: colour.value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


def opened(path: Path, **options: Any) -> Any:
    store = store_at(path, **options)
    try:
        run(store.open())
    finally:
        run(store.close())
    return store


def objects(path: Path) -> set[str]:
    """Tables and indexes that somebody named."""
    return {row[0] for row in read(path, "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'")}


def settings(path: Path, table: str = "outbox_schema") -> dict[str, str]:
    return dict(tuple(row) for row in read(path, f"SELECT name, value FROM {table}"))


DEFAULT_NAMES = {
    "outbox_event",
    *(f"outbox_{side}" for side in ("schema", "instance", "partition", "failure", "pause")),
    *(
        f"outbox_event_{index}"
        for index in ("event", "pending", "ended", "dead", "order", "blocking", "failed", "unique")
    ),
}


# ---------------------------------------------------------------- made


@either_colour
def test_the_tables_are_made_on_first_use(path: Path, colour: Colour) -> None:
    store = store_at(path, colour)
    assert not path.exists(), "nothing happens before"

    async def scenario() -> None:
        await store.open()
        await store.close()

    run_in(colour, scenario())
    assert objects(path) == DEFAULT_NAMES
    made = settings(path)
    assert len(made.pop("store_id")) == 36
    assert made == {
        "version": "5",
        "oldest_code": "1",
        "partitions": str(PARTITION_COUNT),
        "hash": HASH_NAME,
        "ordered": "0",
        "on_dead": "block",
    }


def test_the_outbox_makes_the_tables_when_it_first_needs_them(path: Path) -> None:
    """By transaction(), and by write() on a connection that has not begun."""
    with closing(sqlite3.connect(path)) as connection, closing(Outbox(f"sqlite:///{path}")) as outbox:
        outbox.write("A", {}, tx=connection)
        connection.commit()
    assert len(read(path, "SELECT * FROM outbox_event")) == 1


def test_making_them_again_changes_nothing(path: Path) -> None:
    store = opened(path)
    run(insert(store, event()))
    before = settings(path), objects(path), [tuple(row) for row in read(path, "SELECT * FROM outbox_event")]
    run(store.create_schema())
    run(store.close())
    opened(path)
    with closing(Outbox(f"sqlite:///{path}")) as outbox:
        outbox.create_schema()
    assert before == (settings(path), objects(path), [tuple(row) for row in read(path, "SELECT * FROM outbox_event")])


def test_every_store_has_an_id_of_its_own(tmp_path: Path) -> None:
    """By which two handles know whether they reach the same database."""
    first, second = tmp_path / "first.db", tmp_path / "second.db"
    opened(first)
    opened(second)
    assert settings(first)["store_id"] != settings(second)["store_id"]


def test_a_table_of_the_users_own_is_left_alone(path: Path) -> None:
    alter(path, "CREATE TABLE orders (id)")
    opened(path)
    assert objects(path) == {"orders", *DEFAULT_NAMES}


def test_a_failed_migration_leaves_nothing_half_made(path: Path) -> None:
    """Everything is made in one transaction; a view of the name stands in the way of the second table."""
    alter(path, "CREATE VIEW outbox_event AS SELECT 1")
    with pytest.raises(sqlite3.OperationalError, match="outbox_event"):
        opened(path)
    assert objects(path) == {"outbox_event"}
    alter(path, "DROP VIEW outbox_event")
    opened(path)
    assert objects(path) == DEFAULT_NAMES


def test_threads_that_make_the_tables_at_once_make_them_once(path: Path) -> None:
    start, problems = threading.Barrier(6), []

    def make() -> None:
        store = store_at(path)
        start.wait()
        try:
            run(store.open())
            run(insert(store, event()))
            run(store.close())
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(read(path, "SELECT * FROM outbox_event")) == 6
    assert objects(path) == DEFAULT_NAMES


def test_processes_that_make_the_tables_at_once_make_them_once(path: Path) -> None:
    program = (
        "import sys; from aftercommit import Outbox; outbox = Outbox(sys.argv[1]);"
        "print('ready', flush=True); sys.stdin.readline();"
        "tx = outbox.begin(); outbox.write('A', {}); tx.commit()"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, f"sqlite:///{path}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(read(path, "SELECT * FROM outbox_event")) == 3
    assert objects(path) == DEFAULT_NAMES


# ---------------------------------------------------------------- not made


@either_colour
def test_a_store_that_may_not_create_says_that_the_tables_are_missing(path: Path, colour: Colour) -> None:
    store = store_at(path, colour, create_schema=False)

    async def scenario() -> None:
        with pytest.raises(SchemaMissing, match="outbox_event") as caught:
            await store.open()
        assert "create_schema()" in caught.value.fix
        assert objects(path) == set()
        await store.create_schema()
        await store.open()
        await insert(store, event())
        await store.close()

    run_in(colour, scenario())
    assert len(read(path, "SELECT * FROM outbox_event")) == 1


def test_an_outbox_that_may_not_create_says_so_at_start_and_in_a_transaction(path: Path) -> None:
    outbox = Outbox(f"sqlite:///{path}", create_schema=False)
    for use in (outbox.start, outbox.begin, outbox.stats, outbox.dead.count):
        with pytest.raises(SchemaMissing, match=r"create_schema\(\)"):
            use()
    outbox.create_schema()
    assert outbox.stats().backlog.new == 0
    outbox.close()


def test_tables_that_were_made_by_somebody_are_enough(path: Path) -> None:
    opened(path)
    store = opened(path, create_schema=False)
    run(insert(store, event()))
    run(store.close())


def test_a_write_into_a_database_without_the_table_says_what_is_missing(path: Path) -> None:
    """The caller's transaction is open, so nobody can make it; the driver's own words stay as the cause."""
    outbox = Outbox(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (n)")
        connection.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(SchemaMissing, match="outbox_event") as caught:
            outbox.write("A", {}, tx=connection)
        assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
        assert connection.in_transaction, "the caller's change is still there"
    outbox.close()


# ---------------------------------------------------------------- checked


@pytest.mark.parametrize(
    ("changes", "message", "fix"),
    [
        ({"version": "0"}, "at version 0, this release needs 5", "create_schema()"),
        ({"version": "7", "oldest_code": "6"}, "serves releases from 6 on; this one is 5", "upgrade aftercommit"),
        ({"partitions": "64"}, f"64 partitions by {HASH_NAME}", "the release that the table was made with"),
        ({"hash": "fnv1a"}, f"fnv1a, this release uses {PARTITION_COUNT} by {HASH_NAME}", "the release that"),
    ],
    ids=["too old", "too new", "other partitions", "other hash"],
)
def test_tables_of_another_make_are_refused_with_the_fix(
    path: Path, changes: dict[str, str], message: str, fix: str
) -> None:
    opened(path)
    for name, value in changes.items():
        assert alter(path, "UPDATE outbox_schema SET value = ? WHERE name = ?", value, name) == 1
    before = settings(path)
    store = store_at(path, create_schema=False)
    with pytest.raises(SchemaMismatch) as caught:
        run(store.open())
    run(store.close())
    assert message in caught.value.message
    assert "outbox_event" in caught.value.message
    assert fix in caught.value.fix
    run(store.close())
    assert settings(path) == before, "nothing is changed by looking"


@pytest.mark.parametrize(
    "changes", [{"version": "7", "oldest_code": "6"}, {"partitions": "64"}, {"hash": "fnv1a"}], ids=str
)
def test_a_store_that_may_create_refuses_them_too(path: Path, changes: dict[str, str]) -> None:
    opened(path)
    for name, value in changes.items():
        alter(path, "UPDATE outbox_schema SET value = ? WHERE name = ?", value, name)
    before = settings(path)
    for _ in range(2):  # a refused store stays refused
        with pytest.raises(SchemaMismatch):
            opened(path)
    assert settings(path) == before


def test_a_newer_schema_that_serves_this_release_is_used_and_left_as_it_is(path: Path) -> None:
    """So that a rolling deploy goes on."""
    opened(path)
    alter(path, "UPDATE outbox_schema SET value = '6' WHERE name = 'version'")
    alter(path, "ALTER TABLE outbox_event ADD COLUMN from_the_future TEXT")
    store = store_at(path)
    run(store.open())
    run(insert(store, given_event := event()))
    assert ids(run(take(store))) == [given_event.event_id]
    run(store.close())
    assert (settings(path)["version"], settings(path)["oldest_code"]) == ("6", "1")


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("table", ["ob_x", "MyTable", "events123", "_table", "t", "x" * 48, "select", "Order"])
def test_a_table_of_another_name_has_side_tables_of_that_name(path: Path, table: str) -> None:
    """TC-202, TC-243: everything works there, the purge too, also when the name is a word of SQL."""
    opened(path)
    store = store_at(path, table=table)

    async def scenario() -> None:
        await store.open()
        await insert(store, first := event())
        assert ids(await take(store)) == [first.event_id]
        alter(path, f'UPDATE "{table}" SET status = 1, done_at = 0')
        assert await store.records.purge(timedelta(days=1), dead=False, limit=10) == 1
        await store.close()

    run(scenario())
    assert objects(path) - DEFAULT_NAMES == {
        table,
        *(f"{table}_{side}" for side in ("schema", "instance", "partition", "failure", "pause")),
        *(
            f"{table}_{index}"
            for index in ("event", "pending", "ended", "dead", "order", "blocking", "failed", "unique")
        ),
    }


def test_two_outboxes_in_one_database_do_not_see_each_other(path: Path) -> None:
    first, second = Outbox(f"sqlite:///{path}"), Outbox(f"sqlite:///{path}", table="ob_x")
    with first.transaction():
        first.write("A", {})
    assert (first.stats().backlog.new, second.stats().backlog.new) == (1, 0)
    assert settings(path)["store_id"] != settings(path, "ob_x_schema")["store_id"]
    first.close()
    second.close()


@pytest.mark.parametrize("table", ["outbox", "Outbox", "OUTBOX"])
def test_the_name_whose_side_tables_belong_to_the_default_is_refused(table: str) -> None:
    """`outbox` would share `outbox_schema` with `outbox_event`, and neither would find its own table."""
    with pytest.raises(InvalidOption, match="side tables") as caught:
        TableNames(table)
    assert "outbox_event" in caught.value.fix


@pytest.mark.parametrize(
    "table",
    [
        *("", "1table", "my-table", "my.table", "bad table!", "123start", "x" * 49, "é", "a\n", "a;b", 'a"b', "a'b"),
        *(None, 7, b"outbox_event", ["outbox_event"]),
    ],
    ids=repr,
)
def test_a_name_that_is_none_is_refused(path: Path, table: Any) -> None:
    """TC-202, TC-243"""
    with pytest.raises(InvalidOption, match="table is") as caught:
        Outbox(f"sqlite:///{path}", table=table)
    assert "letters, digits and underscores" in caught.value.fix
    assert not path.exists()


@given(st.one_of(st.text(max_size=60), st.from_regex(r'[A-Za-z_"; \x00\n.-]{1,20}', fullmatch=True)))
@example('x" (n); DROP TABLE outbox_event; --')
@example("outbox_event\n")
@example("ｏutbox")  # noqa: RUF001  (a letter of full width, which some regular expressions take)
@example("x\x00y")
def test_a_name_is_plain_or_refused(name: str) -> None:
    """No text gets near a statement unless it is letters, digits and underscores of ASCII."""
    is_plain = name.isascii() and name.isidentifier() and len(name) <= 48
    if is_plain:
        assert checked_name(name, "table") == name
    else:
        with pytest.raises(OutboxError):
            checked_name(name, "table")
