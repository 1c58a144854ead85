"""From a URL or a factory to a file: which one, opened how, and what is said when it cannot be."""

from __future__ import annotations

import gc
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from aftercommit import Outbox
from aftercommit.errors import InvalidOption, SchemaMismatch, UnknownStore
from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.stores.detect import open_store
from aftercommit.stores.sql import connections as executors
from aftercommit.stores.sqlite import private
from aftercommit.testing.kit import event, ids, take
from tests.stores.kit import insert, run_in, store_at

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
#: From 3.12 on Python warns of a fork beside threads, and pytest-timeout has one.
may_fork_beside_threads = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

either_colour = pytest.mark.parametrize("colour", list(Colour), ids=lambda colour: colour.value)


def opened(url: Any, **options: Any) -> Any:
    """A blocking store whose tables are there."""
    store = open_store(url, Colour.BLOCKING, **options)
    run(store.open())
    run(store.close())
    return store


def pragma(store: Any, name: str) -> Any:
    value = run(store.executor.transact(lambda tx: tx.fetch(f"PRAGMA {name}"), writes=False))[0][0]
    run(store.close())
    return value


# ---------------------------------------------------------------- URLs


def test_three_slashes_are_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    store = open_store("sqlite:///data/app.db", Colour.BLOCKING)
    monkeypatch.chdir("/")
    run(store.open())
    run(store.close())
    assert store.path == str(tmp_path / "data" / "app.db"), "the folder is that of the construction"
    assert (tmp_path / "data" / "app.db").exists()


def test_four_slashes_are_an_absolute_path(tmp_path: Path) -> None:
    assert str(tmp_path).startswith("/")
    assert opened(f"sqlite:///{tmp_path}/app.db").path == str(tmp_path / "app.db")
    assert (tmp_path / "app.db").exists()


@pytest.mark.parametrize("name", ["with space.db", "é漢.db", "100%25.db", "a#b.db"])
def test_a_path_may_be_percent_encoded(tmp_path: Path, name: str) -> None:
    from urllib.parse import quote

    assert opened(f"sqlite:///{quote(str(tmp_path / name))}").path == str(tmp_path / name)


@pytest.mark.parametrize("url", ["sqlite://app.db", "sqlite://localhost/app.db"])
def test_two_slashes_are_told_the_rule(url: str) -> None:
    with pytest.raises(UnknownStore) as caught:
        open_store(url, Colour.BLOCKING)
    assert "sqlite:///relative.db" in caught.value.fix
    assert "sqlite:////absolute" in caught.value.fix


def test_query_parameters_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownStore, match="query parameters") as caught:
        open_store(f"sqlite:///{tmp_path}/app.db?mode=ro", Colour.BLOCKING)
    assert "factory" in caught.value.fix


@pytest.mark.parametrize(
    ("url", "colour"),
    [
        ("sqlite://", Colour.BLOCKING),
        ("sqlite://", Colour.ASYNC),
        *((url, Colour.BLOCKING) for url in (":memory:", "sqlite:///:memory:", "sqlite:///", "SQLite://")),
    ],
)
def test_a_database_without_a_name_is_a_private_file(url: str, colour: Colour) -> None:
    """It is a file, so that every thread sees the same, and it goes when nobody has it any more."""
    stores = [open_store(url, colour), open_store(url, colour)]
    folder, others = (Path(store.path).parent for store in stores)

    async def scenario() -> None:
        await stores[0].open()
        await insert(stores[0], first := event())
        assert ids(await take(stores[0])) == [first.event_id]
        await stores[0].close()

    run_in(colour, scenario())
    assert [each.name for each in folder.iterdir()] == ["outbox.db"]
    assert folder != others
    stores.clear()
    gc.collect()
    assert not folder.exists()
    assert not others.exists()


def test_a_private_file_is_removed_at_the_end_of_the_process() -> None:
    program = (
        "from aftercommit import Outbox; outbox = Outbox('sqlite://'); outbox.create_schema();print(outbox._store.path)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip().endswith("outbox.db")
    assert not Path(done.stdout.strip()).parent.exists()


def test_the_store_is_durable_and_lets_readers_read(tmp_path: Path) -> None:
    """Promise 2: with synchronous NORMAL a power cut could take back what the caller was told of."""
    store = store_at(tmp_path / "app.db")
    assert pragma(store, "journal_mode") == "wal"
    assert pragma(store, "synchronous") == 2


def test_a_store_shows_its_file(tmp_path: Path) -> None:
    assert repr(store_at(tmp_path / "app.db")) == f"SqliteStore({str(tmp_path / 'app.db')!r})"


# ---------------------------------------------------------------- files that cannot be used


@either_colour
def test_a_missing_folder_is_named(tmp_path: Path, colour: Colour) -> None:
    path = tmp_path / "no" / "such" / "app.db"
    store = store_at(path, colour)

    async def scenario() -> None:
        with pytest.raises(UnknownStore, match="folder does not exist") as caught:
            await store.open()
        assert str(path) in caught.value.message
        assert caught.value.fix == f"create {path.parent}, writable"
        path.parent.mkdir(parents=True)
        await store.open()
        await store.close()

    run_in(colour, scenario())


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Remember the milk. " * 100)
    with pytest.raises(UnknownStore, match="not a database") as caught:
        opened(f"sqlite:///{path}")
    assert str(path) in caught.value.message
    assert path.read_text().startswith("Remember the milk.")


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(UnknownStore, match="cannot be used"):
        opened(f"sqlite:///{tmp_path}")


def test_a_read_only_file_is_named() -> None:
    """In a process that is not root, which may write everything."""
    program = """
import os, sys, tempfile
from pathlib import Path
from aftercommit import Outbox
from aftercommit.errors import UnknownStore
folder = Path(tempfile.mkdtemp())
path = folder / "app.db"
path.touch()
path.chmod(0o444)
folder.chmod(0o555)
outbox = Outbox(f"sqlite:///{path}")
user = os.geteuid()
if user == 0:
    os.seteuid(65534)
try:
    outbox.create_schema()
except UnknownStore as error:
    print("readonly" in error.message, str(path) in error.message, str(folder) in error.fix, "write" in error.fix)
finally:
    os.seteuid(user)
    folder.chmod(0o755)
    for each in folder.iterdir():
        each.unlink()
    folder.rmdir()
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True True True True\n", "")


# ---------------------------------------------------------------- factories


@pytest.fixture
def factory(tmp_path: Path) -> Iterator[Callable[..., sqlite3.Connection]]:
    """Opens connections to one file, and sees to it that all of them get closed."""
    made: list[sqlite3.Connection] = []

    def connect(**options: Any) -> sqlite3.Connection:
        made.append(sqlite3.connect(tmp_path / "app.db", **options))
        return made[-1]

    connect.made = made  # type: ignore[attr-defined]
    yield connect
    for each in made:
        each.close()


def is_closed(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except sqlite3.ProgrammingError as error:
        return "closed" in str(error)
    return False


def test_a_factory_that_binds_connections_to_a_thread_is_refused(factory: Any) -> None:
    with pytest.raises(InvalidOption, match="one thread") as caught:
        open_store(factory, Colour.BLOCKING)
    assert "check_same_thread=False" in caught.value.fix
    assert [is_closed(each) for each in factory.made] == [True]


def test_a_factory_is_asked_once_and_its_connection_closed(factory: Any, tmp_path: Path) -> None:
    store = open_store(lambda: factory(check_same_thread=False), Colour.BLOCKING)
    assert [is_closed(each) for each in factory.made] == [True]
    assert store.path == os.path.realpath(tmp_path / "app.db")


def test_a_factory_keeps_its_settings(factory: Any) -> None:
    """A caller's own connection keeps its settings; only who begins and commits is the store's."""

    def connect() -> sqlite3.Connection:
        connection = factory(check_same_thread=False, isolation_level="EXCLUSIVE")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA cache_size = -4321")
        return connection

    store = open_store(connect, Colour.BLOCKING)
    assert pragma(store, "synchronous") == 1
    assert pragma(store, "cache_size") == -4321
    assert pragma(store, "journal_mode") == "delete"
    run(store.open())
    run(insert(store, event()))
    assert len(run(take(store))) == 1
    run(store.close())


@pytest.mark.parametrize("made", ["text", None, 7], ids=repr)
def test_a_factory_of_something_else_is_refused(made: Any) -> None:
    with pytest.raises(UnknownStore, match=f"returned a builtins.{type(made).__name__}") as caught:
        open_store(lambda: made, Colour.BLOCKING)
    assert "a connection of sqlite3" in caught.value.fix


def test_a_factory_of_memory_databases_is_refused() -> None:
    with (
        closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection,
        pytest.raises(UnknownStore, match="in memory") as caught,
    ):
        open_store(lambda: connection, Colour.BLOCKING)
    assert 'Outbox("sqlite://")' in caught.value.fix


def test_an_open_connection_names_its_file_and_is_left_alone(factory: Any, tmp_path: Path) -> None:
    """The store opens connections of its own to the same file; the caller goes on with this one."""
    connection = factory()
    connection.execute("CREATE TABLE t (n)")
    connection.execute("INSERT INTO t VALUES (1)")
    connection.commit()
    store = open_store(connection, Colour.BLOCKING)
    assert store.path == os.path.realpath(tmp_path / "app.db")
    run(store.open())
    run(insert(store, event()))
    assert len(run(take(store))) == 1
    run(store.close())
    assert len(factory.made) == 1
    assert not is_closed(connection)
    assert connection.execute("SELECT n FROM t").fetchall() == [(1,)]


def test_a_factory_that_fails_fails_as_itself() -> None:
    def connect() -> sqlite3.Connection:
        raise LookupError("no such secret")

    with pytest.raises(LookupError, match="no such secret"):
        open_store(connect, Colour.BLOCKING)


# ---------------------------------------------------------------- what SQLite has not


def test_a_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="SQLite has no schemas") as caught:
        Outbox(f"sqlite:///{tmp_path}/app.db", schema="app")
    assert "table=" in caught.value.fix


def test_an_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.34.1")
    with pytest.raises(SchemaMismatch, match=r"has SQLite 3\.34\.1, aftercommit needs 3\.35"):
        store_at(tmp_path / "app.db")


# ---------------------------------------------------------------- forks


def in_child(work: Callable[[], None]) -> int:
    """The exit code of a forked process that works; killed after a while, so that a deadlock fails."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            signal.alarm(20)
            work()
            code = 0
        finally:
            os._exit(code)  # never back into pytest
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@needs_fork
@may_fork_beside_threads
@either_colour
def test_a_forked_child_leaves_the_parents_connections_alone(tmp_path: Path, colour: Colour) -> None:
    """Promise 14: it keeps them unused, opens its own, and the parent goes on."""
    store = store_at(tmp_path / "app.db", colour)

    async def prepare() -> None:
        await store.open()
        await insert(store, event("parent"))

    run_in(colour, prepare())
    parents = list(store.executor._own._idle)
    assert len(parents) == 1

    def child() -> None:
        kept = len(executors.abandoned)
        store.abandon()
        assert store.executor._own._idle == []
        assert executors.abandoned[kept:] == parents

        async def use() -> None:
            assert len(await take(store, "child")) == 1
            await insert(store, event("child"))
            await store.close()

        run_in(colour, use())
        assert parents[0] in executors.abandoned

    assert in_child(child) == 0

    async def go_on() -> None:
        claimed = await take(store, "parent")
        assert [each.event.event_type for each in claimed] == ["child"]
        assert store.executor._own._idle == parents
        await store.close()

    run_in(colour, go_on())


@needs_fork
@may_fork_beside_threads
@either_colour
def test_a_write_lock_and_a_pool_held_at_the_fork_do_not_stop_the_child(tmp_path: Path, colour: Colour) -> None:
    """Promise 14: threads that hold them do not exist in the child."""
    store = store_at(tmp_path / "app.db", colour)

    async def prepare() -> None:
        await store.open()
        await store.close()

    run_in(colour, prepare())

    def child() -> None:
        store.abandon()

        async def use() -> None:
            await insert(store, event())
            await store.close()

        run_in(colour, use())

    held, may_go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with store.executor._own._lock, store.executor._lent._lock:
            store.executor._write_lock.wait()
            held.set()
            may_go_on.wait(20)
            store.executor._write_lock.leave()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(20)
    assert in_child(child) == 0
    may_go_on.set()
    holder.join()


@needs_fork
@may_fork_beside_threads
def test_a_forked_child_does_not_remove_the_private_file() -> None:
    """Its name is shared, the right to remove it is not; also when the child ends as programs do."""
    store = opened("sqlite://")
    finalizer = private._remove

    def child() -> None:
        finalizer(str(Path(store.path).parent), os.getppid())

    assert in_child(child) == 0
    assert Path(store.path).exists()

    program = """
import os, sys
from aftercommit import Outbox
outbox = Outbox("sqlite://")
outbox.create_schema()
pid = os.fork()
if pid:
    os.waitpid(pid, 0)
    print(os.path.exists(outbox._store.path))
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "True\n"
