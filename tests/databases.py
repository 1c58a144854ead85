"""A database as somebody else sees it who is not the outbox: committed rows, times in microseconds."""

from __future__ import annotations

import re
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pymysql
from psycopg.rows import tuple_row

from tests.servers import pymysql_connect

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: How long a look may wait for a lock, in seconds: a transaction that was left open should be seen, not waited for.
PATIENCE = 20


#: How the connections call themselves on PostgreSQL that outlive a test: they are nobody's of whom it asks.
LOOKS_ON = "aftercommit looks on"

#: How the tables of the outbox become as good as new; the 256 partitions are there for ever.
RENEWED = {
    "outbox_event": "DELETE FROM outbox_event",
    "outbox_schema": "UPDATE outbox_schema SET value ="
    " CASE name WHEN 'ordered' THEN '0' WHEN 'on_dead' THEN 'block' ELSE '' END"
    " WHERE name IN ('ordered', 'on_dead') OR name LIKE 'duty %'",
    "outbox_instance": "DELETE FROM outbox_instance",
    "outbox_partition": "UPDATE outbox_partition SET owner = NULL, epoch = 0, expires_at = NULL WHERE epoch <> 0",
    "outbox_failure": "DELETE FROM outbox_failure",
    "outbox_pause": "DELETE FROM outbox_pause",
}

#: Where a statement names a time: `lease_until = 0`, `available_at > ?`; or another value.
VALUE = re.compile(
    r"(?P<time>\b(?:occurred|scheduled|created|available|done|locked|started|heartbeat|expires|failed|paused|received)_at\b\s*[<>=]+\s*|\blease_until\s*[<>=]+\s*)?"
    r"(?P<value>\?|(?<![\w'.])\d+\b)"
)

#: What somebody has a lease on.
HELD = "SELECT event_id, lease_epoch FROM outbox_event WHERE locked_by = ? AND status IN (0, 2)"


class Row:
    """Cells by name or by number, as sqlite3.Row has them."""

    def __init__(self, names: Sequence[str], cells: Sequence[Any]) -> None:
        self._cells = dict(zip(names, map(_plain, cells), strict=True))

    def keys(self) -> list[str]:
        return list(self._cells)

    def __getitem__(self, key: str | int) -> Any:
        return list(self._cells.values())[key] if isinstance(key, int) else self._cells[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cells.values())

    def __len__(self) -> int:
        return len(self._cells)

    def __repr__(self) -> str:
        return f"Row({self._cells})"


def _plain(value: Any) -> Any:
    """Instants in microseconds; a time without a zone is in UTC."""
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (aware - EPOCH) // timedelta(microseconds=1)
    return value


class Database(ABC):
    """Looks at tables and changes them, each time committed. From any thread.

    Statements are written as for SQLite: parameters as `?`, times in microseconds (`lease_until = 0`).
    """

    @abstractmethod
    def read(self, sql: str, *parameters: object) -> list[Any]: ...

    @abstractmethod
    def write(self, sql: str, *parameters: object) -> int:
        """How many rows it changed."""

    @abstractmethod
    def now(self) -> int:
        """The database's clock."""

    @abstractmethod
    def is_locked(self) -> bool:
        """Whether somebody is in the middle of a transaction that others would have to wait for."""

    def has_settled(self, count: int, status: int = 1) -> bool:
        """Whether at least that many rows have this status."""
        return bool(self.read("SELECT count(*) >= ? FROM outbox_event WHERE status = ?", count, status)[0][0])

    def held_by(self, owner: str) -> dict[str, int]:
        """Unfinished events that somebody has a lease on, with their epochs."""
        return {row["event_id"]: row["lease_epoch"] for row in self.read(HELD, owner)}

    def left_by(self, owner: str) -> dict[str, int]:
        """The same of somebody who has gone."""
        return self.held_by(owner)

    @abstractmethod
    def clear(self) -> None:
        """No rows in `outbox_event`, and no tables of other names."""

    @abstractmethod
    def close(self) -> None: ...


class SqliteDatabase(Database):
    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, sql: str, *parameters: object) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.row_factory = sqlite3.Row
            return connection.execute(sql, parameters).fetchall()

    def write(self, sql: str, *parameters: object) -> int:
        with closing(sqlite3.connect(self.path, timeout=PATIENCE)) as connection, connection:
            return connection.execute(sql, parameters).rowcount

    def now(self) -> int:
        sql = "SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000"
        return int(self.read(sql)[0][0])

    def is_locked(self) -> bool:
        with closing(sqlite3.connect(self.path, timeout=0, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            return False

    def clear(self) -> None:
        raise NotImplementedError("a SQLite database is a new file for each test")

    def close(self) -> None:
        """A connection is as long as a look."""


class ServerDatabase(Database):
    """On one connection of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._lock = threading.Lock()
        self._connection: Any = self._connect()

    @abstractmethod
    def _connect(self) -> Any: ...

    @abstractmethod
    def at(self, micros: int) -> Any:
        """An instant as a parameter for a column of time."""

    def _execute(self, sql: str, parameters: Sequence[object]) -> tuple[list[Any], int]:
        with self._lock, self._connection.cursor() as cursor:
            cursor.execute(*self._translated(sql, parameters))
            if cursor.description is None:
                return [], cursor.rowcount
            names = [column[0] for column in cursor.description]
            return [Row(names, cells) for cells in cursor.fetchall()], cursor.rowcount

    def _translated(self, sql: str, parameters: Sequence[object]) -> tuple[str, list[object]]:
        given, bound = iter(parameters), list[object]()

        def bind(match: re.Match[str]) -> str:
            if match["value"] != "?" and not match["time"]:
                return match[0]
            value = next(given) if match["value"] == "?" else int(match["value"])
            bound.append(self.at(value) if match["time"] and isinstance(value, int) else value)
            return f"{match['time'] or ''}%s"

        return VALUE.sub(bind, sql.replace("%", "%%")), bound

    def read(self, sql: str, *parameters: object) -> list[Any]:
        return self._execute(sql, parameters)[0]

    def write(self, sql: str, *parameters: object) -> int:
        return self._execute(sql, parameters)[1]

    def is_locked(self) -> bool:
        try:
            self.read("SELECT event_id FROM outbox_event FOR UPDATE NOWAIT")
        except (psycopg.errors.LockNotAvailable, pymysql.err.OperationalError):
            return True
        return False

    def close(self) -> None:
        self._connection.close()


class PostgresDatabase(ServerDatabase):
    def _connect(self) -> Any:
        _, _, address = self.url.partition("://")
        connection = psycopg.connect(f"postgresql://{address}", autocommit=True)  # whichever driver the URL is for
        connection.execute(f"SET TIME ZONE 'UTC'; SET lock_timeout = '{PATIENCE}s'; SET synchronous_commit = off")
        return connection

    def at(self, micros: int) -> datetime:
        return EPOCH + timedelta(microseconds=micros)

    def now(self) -> int:
        return int(self.read("SELECT clock_timestamp()")[0][0])

    def clear(self) -> None:
        with self._lock:
            self._connection.execute(cleared(self._connection))


def cleared(connection: Any) -> str:
    """Statements after which a PostgreSQL database has empty tables of the outbox, and no others. A few rows are
    deleted faster than a table is truncated."""
    sizes = "SELECT tablename, pg_relation_size(quote_ident(tablename)::regclass) FROM pg_tables"
    with connection.cursor(row_factory=tuple_row) as cursor:
        found = dict(cursor.execute(f"{sizes} WHERE schemaname = 'public'").fetchall())
    truncated = {"outbox_event": "TRUNCATE outbox_event"} if found.get("outbox_event", 0) > 1_000_000 else {}
    return "; ".join((RENEWED | truncated).get(name, f'DROP TABLE "{name}" CASCADE') for name in found)


class MysqlDatabase(ServerDatabase):
    def _connect(self) -> Any:
        return pymysql_connect(
            self.url,
            charset="utf8mb4",
            init_command=f"SET time_zone = '+00:00', lock_wait_timeout = {PATIENCE}",
        )

    def at(self, micros: int) -> datetime:
        return (EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None)  # its columns have no zone

    def now(self) -> int:
        return int(self.read("SELECT utc_timestamp(6)")[0][0])

    def clear(self) -> None:
        for (name,) in self.read("SHOW TABLES"):
            if sql := RENEWED.get(name, f"DROP TABLE `{name}`"):
                self.write(sql)
