"""From a URL, an engine or a connection factory to a SQLite store."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aftercommit.errors import InvalidOption, SchemaMismatch, UnknownStore
from aftercommit.ports import Colour, SchemaStatus, Tx
from aftercommit.stores.sql.changes import ByLocking
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.execution import missing
from aftercommit.stores.sql.rows import IN_MICROS
from aftercommit.stores.sql.runs import RunsByLocking
from aftercommit.stores.sql.store import SqlStore
from aftercommit.stores.sql.table import OwnTable
from aftercommit.stores.sqlite.executor import SqliteExecutor, plain_rows
from aftercommit.stores.sqlite.write_lock import BUSY_TIMEOUT, busy

if TYPE_CHECKING:
    from aftercommit.stores.sql.diagnosis import SqlDiagnosis

OLDEST_SQLITE: Final = (3, 35, 0)

#: Each of them waits for a writer; another may come between, but not for ever.
_WAL_TRIES: Final = 100

#: A connection knows what it has open, and reads nothing to tell.
_WHICH_FILE: Final = "PRAGMA database_list"


def _diagnosis(*of_store: Any) -> SqlDiagnosis:
    from aftercommit.stores.sqlite.diagnosis import SqliteDiagnosis  # loaded when somebody asks for it

    return SqliteDiagnosis(*of_store)


DIALECT: Final = Dialect(
    name="SQLite",
    package="aftercommit.stores.sqlite",
    # SQLite's own clock, to the millisecond: sub-second forms of unixepoch() are NULL before 3.42.
    now="(CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000)",
    instant=lambda at: str(IN_MICROS.write(at)),
    marker=lambda _: "?",
    changes=ByLocking,
    runs=RunsByLocking,
    diagnosis=_diagnosis,
    words={
        # One statement for a whole group: the driver lets go of the interpreter once, not once for each row.
        "held": (
            "(SELECT json_extract(value, '$[0]') AS event_id, json_extract(value, '$[1]') AS handler_id,"
            " json_extract(value, '$[2]') AS owner, json_extract(value, '$[3]') AS epoch,"
            " json_extract(value, '$[4]') AS delay, json_extract(value, '$[5]') AS error,"
            " json_extract(value, '$[6]') AS counted, json_extract(value, '$[7]') AS done"
            " FROM json_each(:held)) AS held"
        ),
        "new_id": "lower(" + " || '-' || ".join(f"hex(randomblob({size}))" for size in (4, 2, 2, 2, 6)) + ")",
    },
    times=IN_MICROS,
    name_sql="SELECT file FROM pragma_database_list WHERE name = 'main'",
    has_one_writer=True,
    sqlalchemy=("sqlite",),
    isolation_level="SERIALIZABLE",
    isolations=("SERIALIZABLE",),  # there is no other, so nothing has to be said for it
)


class SqliteStore(SqlStore):
    """Events in a SQLite file."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], path: str, colour: Colour, **options: Any) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise SchemaMismatch(
                f"this Python has SQLite {sqlite3.sqlite_version}, aftercommit needs 3.35",
                fix="use a newer Python build",
            )
        if options.pop("schema", None) is not None:
            raise InvalidOption("schema was given, and SQLite has no schemas", fix="leave it out; use table=…")
        self.path = path
        self._creates = options.setdefault("create_schema", True)
        super().__init__(
            SqliteExecutor(connect, path, colour),
            DIALECT,
            where=repr(path),
            own_table=partial(FileTable, path),
            **options,
        )

    async def open(self) -> None:
        """An outbox that makes no tables makes no file either."""
        if not self._creates and not self.is_ready and not os.path.exists(self.path):
            raise missing(self.names)
        await super().open()

    async def schema_status(self) -> SchemaStatus:
        """A connection would make the file that is not there."""
        if not os.path.exists(self.path):
            return SchemaStatus(0, self._schema.version, problem=missing(self.names))
        return await super().schema_status()


class FileTable(OwnTable):
    """A SQLite file is told from others by its path. Connections are asked which file they have open: it costs less
    than a row, and reads nothing."""

    def __init__(self, path: str, *given: Any) -> None:
        super().__init__(*given)
        self.whose_sql = _WHICH_FILE
        self._path = path

    @property
    def knows_itself(self) -> bool:
        return True

    def is_own(self, answer: Sequence[Sequence[object]]) -> bool:
        return _is_same_file(_main_of(answer), self._path)

    def may_be(self, database: str, name: str | None) -> bool:
        if database not in self.databases:
            return False
        if not name or name == ":memory:" or name.startswith("file:"):
            return True  # a creator may open another file than the URL says
        return _is_same_file(name, self._path)

    def is_autocommit(self, connection: Any) -> bool:
        """Also of drivers that wrap sqlite3's connections."""
        if connection.isolation_level is None and not connection.in_transaction:
            return True
        return super().is_autocommit(connection)

    async def _name_of(self, tx: Tx) -> str:
        path = _main_of(await tx.fetch(self.whose_sql))
        return repr(path) if path else "a database in memory"


def _main_of(answer: Sequence[Sequence[object]]) -> str:
    return next((str(row[2] or "") for row in answer if row[1] == "main"), "")


def _is_same_file(path: str, ours: str) -> bool:
    return path == ours or (bool(path) and os.path.realpath(path) == os.path.realpath(ours))


def sqlite_from_url(url: str, colour: Colour, **options: Any) -> SqliteStore:
    """`sqlite:///relative.db`, `sqlite:////absolute.db`, or `sqlite://` for a private temporary file."""
    path = _path_of(url)
    if path is not None:
        return SqliteStore(opener(path), path, colour, **options)
    from aftercommit.stores.sqlite.private import gone_with, private_file  # whoever has a file of his own does without

    private = private_file()
    return gone_with(SqliteStore(opener(private), private, colour, **options), private)


def sqlite_from_connection(
    connection: sqlite3.Connection,
    colour: Colour,
    *,
    connect: Callable[[], sqlite3.Connection] | None = None,
    **options: Any,
) -> SqliteStore:
    """Connections like this one: opened by the caller's own `connect`, with the settings that it gives them, else to
    the same file. This one is only looked at."""
    if connect is None:
        path = _file_of(plain_rows(connection, _WHICH_FILE))
        return SqliteStore(opener(path), path, colour, **options)
    with closing(connection):
        _check_threads(connection)
        path = _file_of(plain_rows(connection, _WHICH_FILE))
    return SqliteStore(lambda: _steered(connect()), path, colour, **options)


def sqlite_from_engine(engine: Any, colour: Colour, **options: Any) -> SqliteStore:
    """The file that a SQLAlchemy engine opens, whatever its URL says. Its pool may bind connections to threads, so the
    store has its own."""
    try:
        path = _file_of(_ask_async(engine.sync_engine) if engine.dialect.is_async else _ask(engine))
    except sqlite3.Error as error:
        raise UnknownStore(
            f"the engine cannot open its database: {error}",
            fix="let it be a SQLite database, or nothing yet, in a folder that exists and may be written",
        ) from error
    return SqliteStore(opener(path), path, colour, **options)


def _ask_async(engine: Any) -> list[Any]:
    from sqlalchemy.util import greenlet_spawn  # whoever has an engine has it

    from aftercommit.runtime.portal import run_beside  # which brings asyncio along

    return run_beside(greenlet_spawn(_ask, engine))


def _ask(engine: Any) -> list[Any]:
    """On a connection that is closed at once: one in the engine's pool could be taken along by a fork."""
    pool = engine.pool.recreate()
    try:
        with closing(pool.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(_WHICH_FILE)
            rows: list[Any] = cursor.fetchall()
            return rows
    finally:
        pool.dispose()


def _file_of(answer: Sequence[Sequence[object]]) -> str:
    path = _main_of(answer)
    if not path:
        raise UnknownStore(
            "the connection is to a database in memory, which each connection has for itself",
            fix='use Outbox("sqlite://") for a private temporary database, or open a file',
        )
    return path


def _path_of(url: str) -> str | None:
    """The file of a URL; None for a private one. SQLAlchemy's slash rule."""
    if url.lower() in (":memory:", "sqlite://", "sqlite:///", "sqlite:///:memory:"):
        return None
    if not url.lower().startswith("sqlite:///"):
        # The URL itself is not repeated: what looks like a host may be a login.
        raise UnknownStore(
            "the SQLite URL has two slashes, which is where others name a host",
            fix="sqlite:///relative.db or sqlite:////absolute/path.db",
        )
    path = url[len("sqlite:///") :]
    if "?" in path:
        raise UnknownStore(
            "the SQLite URL has query parameters, which are not taken here",
            fix="pass a connection factory instead",
        )
    if "%" in path:
        from urllib.parse import unquote  # hardly any path has something to unquote

        path = unquote(path)
    return os.path.abspath(path)


def opener(path: str, *, is_durable: bool = True) -> Callable[[], sqlite3.Connection]:
    """Opens connections of the store's own to a file; at less cost to one that need not survive a power cut."""

    def connect() -> sqlite3.Connection:
        connection = None
        try:
            connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT, check_same_thread=False)
            _use_wal(connection)
            # With NORMAL a power cut can take back commits that the caller was told of.
            connection.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'OFF'}")
        except sqlite3.DatabaseError as error:
            if connection is not None:
                connection.close()
            if "locked" in str(error):
                raise busy() from error
            raise _unusable(path, error) from error
        return _steered(connection)

    return connect


def _use_wal(connection: sqlite3.Connection) -> None:
    """A new file becomes WAL only while nobody writes, and SQLite does not wait for that by itself."""
    for _ in range(_WAL_TRIES):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
        connection.execute("BEGIN IMMEDIATE")  # this does wait, for as long as the busy timeout
        connection.execute("COMMIT")
    raise busy()


def _unusable(path: str, error: sqlite3.DatabaseError) -> UnknownStore:
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        return UnknownStore(
            f"the SQLite file {path} cannot be opened: its folder does not exist", fix=f"create {folder}, writable"
        )
    return UnknownStore(
        f"the SQLite file {path} cannot be used: {error}",
        fix=f"let it be a SQLite database, or nothing yet, that this process may write, as well as {folder}",
    )


def _steered(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Transactions begin and end when the store says so, not when the driver guesses."""
    if hasattr(connection, "autocommit"):
        connection.autocommit = sqlite3.LEGACY_TRANSACTION_CONTROL  # type: ignore[attr-defined]
    connection.isolation_level = None
    return connection


def _check_threads(connection: sqlite3.Connection) -> None:
    problems: list[BaseException] = []

    def use() -> None:
        try:
            connection.execute("SELECT 1")
        except sqlite3.ProgrammingError as error:
            problems.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    if problems:
        raise InvalidOption(
            f"the connection factory binds connections to one thread ({problems[0]})",
            fix="open them with check_same_thread=False; the outbox uses each in one thread at a time",
        )
