"""Where a run measures: a database of its own on a server that answers."""

from __future__ import annotations

import os
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self
from urllib.parse import unquote, urlsplit, urlunsplit

from aftercommit import Outbox
from bench import hand

#: What a backlog is copied from; its rows have the columns of a new event.
_COLUMNS = "event_id, event_type, aggregate_type, payload, content_type"

_CHUNK = 1_000

#: Rows from which on a round pays for what the one before it left to be written.
_LARGE = 5_000


class Absent(Exception):
    """A measure is left out, and why."""


class Place(ABC):
    """A database with the outbox's own tables and a business table, seen by somebody who is not measured."""

    kind: ClassVar[str]
    variable: ClassVar[str]
    default: ClassVar[str]
    #: The database's clock.
    now: ClassVar[str]

    def __init__(self, url: str) -> None:
        self.url = url
        self._name = f"aftercommit_bench_{secrets.token_hex(4)}"
        self._backlog = 0
        #: Backlogs so far; each has ids of its own.
        self._layers = 0

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator[Self]:
        """A new database until the end of the block."""
        server = cls.connected()
        place = cls(cls.address())
        server.run(f"CREATE DATABASE {place._name}")
        try:
            place.url = urlunsplit(urlsplit(place.url)._replace(path=f"/{place._name}"))
            place._set_up()
            yield place
        finally:
            place.close()
            server.drop(place._name)
            server.close()

    @classmethod
    def address(cls) -> str:
        return os.environ.get(cls.variable) or cls.default

    @classmethod
    def connected(cls) -> Self:
        """At the database that the address names."""
        place = cls(cls.address())
        try:
            place.connect()
        except Exception as error:
            raise Absent(f"no {cls.kind} answers; {cls.variable} names one ({type(error).__name__})") from None
        return place

    def _set_up(self) -> None:
        self.connect()
        outbox = Outbox(self.url)
        outbox.create_schema()
        outbox.close()
        self.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer VARCHAR(100) NOT NULL, total INTEGER NOT NULL)")
        self.run(f"CREATE TABLE backlog AS SELECT position AS number, {_COLUMNS} FROM outbox_event WHERE 1 = 0")

    @abstractmethod
    def connect(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def run(self, sql: str, parameters: Any = None) -> list[Any]:
        """One statement, committed; its rows if it has any."""

    @abstractmethod
    def drop(self, name: str) -> None: ...

    @abstractmethod
    def tidy(self, rows: int = 0) -> None:
        """What the server would do in a quiet minute: statistics, and so many new rows on disk."""

    @abstractmethod
    def facts(self) -> str:
        """Version and settings that decide what a commit costs."""

    def clear(self) -> None:
        self.run("TRUNCATE TABLE outbox_event")
        self.run("TRUNCATE TABLE orders")

    def set_ordered(self, ordered: bool) -> None:
        """A process that disagrees with its table about order refuses to start."""
        self.run(f"UPDATE outbox_schema SET value = '{int(ordered)}' WHERE name = 'ordered'")

    def fill(self, rows: int, *, keys: int = 0, is_cleared: bool = True) -> None:
        """That many events that are due, of so many keys if any, instead of what was there or beside it."""
        if self._backlog < rows:
            self._make_backlog(rows)
        if is_cleared:
            self.run("TRUNCATE TABLE outbox_event")
        self._layers += 1
        number = f"mod(number, {keys})"
        key, partition = (f"concat('key-', {number})", f"mod({number}, 256)") if keys else ("NULL", "0")
        self.run(
            f"INSERT INTO outbox_event ({_COLUMNS}, event_key, partition_no, occurred_at, created_at, available_at) "
            f"SELECT concat('{self._layers:04d}', substr(event_id, 5)), {_COLUMNS.removeprefix('event_id, ')}, "
            f"{key}, {partition}, {self.now}, {self.now}, {self.now} FROM backlog WHERE number < {rows} ORDER BY number"
        )
        self.tidy(rows)

    def _make_backlog(self, rows: int) -> None:
        self.run("TRUNCATE TABLE backlog")
        for start in range(0, rows, _CHUNK):
            numbers = range(start, min(start + _CHUNK, rows))
            one = "(%s, %s, 'OrderPlaced', '__GLOBAL__', %s, 'application/json')"
            values = [value for number in numbers for value in (number, f"{number:026d}", hand.text(number))]
            self.run(f"INSERT INTO backlog (number, {_COLUMNS}) VALUES {', '.join([one] * len(numbers))}", values)
        self._backlog = rows

    def count(self, condition: str) -> int:
        return int(self.run(f"SELECT count(*) FROM outbox_event WHERE {condition}")[0][0])

    def dead(self) -> int:
        return self.count("status = 3")

    def holders(self) -> int:
        """Instances that hold events."""
        sql = "SELECT count(DISTINCT locked_by) FROM outbox_event WHERE status = 0 AND locked_by IS NOT NULL"
        return int(self.run(sql)[0][0])

    def is_pending(self) -> bool:
        """One step into the index of pending rows."""
        return bool(self.run("SELECT EXISTS (SELECT 1 FROM outbox_event WHERE status IN (0, 2))")[0][0])


class Postgres(Place):
    kind = "PostgreSQL"
    variable = "AFTERCOMMIT_TEST_POSTGRES_URL"
    default = "postgresql://postgres@127.0.0.1:5432/test"
    now = "statement_timestamp()"

    @property
    def asyncpg_url(self) -> str:
        return self.url.replace("postgresql://", "postgresql+asyncpg://", 1)

    def connect(self) -> None:
        import psycopg  # noqa: PLC0415  (an extra; a run without it has SQLite's figures)

        self._connection = psycopg.connect(self.url, autocommit=True, connect_timeout=5)

    def close(self) -> None:
        if hasattr(self, "_connection"):
            self._connection.close()

    def run(self, sql: str, parameters: Any = None) -> list[Any]:
        cursor = self._connection.execute(sql, parameters)
        return cursor.fetchall() if cursor.description else []

    def drop(self, name: str) -> None:
        self.run(f"DROP DATABASE {name} WITH (FORCE)")

    def clear(self) -> None:
        self.run("TRUNCATE TABLE outbox_event, orders")

    def tidy(self, rows: int = 0) -> None:
        self.run("VACUUM (ANALYZE) outbox_event")
        if rows >= _LARGE:
            self.run("CHECKPOINT")

    def facts(self) -> str:
        names = ("server_version", "fsync", "synchronous_commit", "shared_buffers", "max_wal_size", "wal_level")
        version, *settings = (self.run(f"SHOW {name}")[0][0] for name in names)
        told = ", ".join(f"{name} {value}" for name, value in zip(names[1:], settings, strict=True))
        return f"{version.split()[0]}, {told}"

    def fill_done(self, rows: int) -> None:
        """Events that were delivered long ago."""
        self.run(
            f"INSERT INTO outbox_event ({_COLUMNS}, partition_no, status, done_at, occurred_at, created_at, "
            "available_at) SELECT 'd' || lpad(number::text, 25, '0'), 'OrderPlaced', '__GLOBAL__', %s, "
            "'application/json', 0, 1, now(), now(), now(), now() FROM generate_series(1, %s) AS number",
            (hand.text(0), rows),
        )

    def fill_pending(self, rows: int) -> None:
        """Events that are due, with no regard to what the backlog is copied from."""
        self.run(
            f"INSERT INTO outbox_event ({_COLUMNS}, partition_no, occurred_at, created_at, available_at) "
            "SELECT 'p' || lpad(number::text, 25, '0'), 'OrderPlaced', '__GLOBAL__', %s, 'application/json', "
            "0, now(), now(), now() FROM generate_series(1, %s) AS number",
            (hand.text(0), rows),
        )

    def committed(self) -> int:
        """Transactions so far in this database by sessions that have ended: only then do they count for others."""
        others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        while self.run(f"{others} AND backend_type = 'client backend'")[0][0]:
            time.sleep(0.005)
        sql = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        return int(self.run(sql)[0][0])

    def wal(self) -> int:
        """Bytes that the whole server has written to its log."""
        return int(self.run("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")[0][0])


class Mysql(Place):
    kind = "MySQL or MariaDB"
    variable = "AFTERCOMMIT_TEST_MYSQL_URL"
    default = "mysql://root@127.0.0.1:3306/test"
    now = "UTC_TIMESTAMP(6)"

    def connect(self) -> None:
        import pymysql  # noqa: PLC0415

        self._connection = pymysql.connect(**login(self.url), autocommit=True, connect_timeout=5)

    def close(self) -> None:
        if hasattr(self, "_connection"):
            self._connection.close()

    def run(self, sql: str, parameters: Any = None) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall())

    def drop(self, name: str) -> None:
        self.run(f"DROP DATABASE {name}")

    def tidy(self, rows: int = 0) -> None:
        self.run("ANALYZE TABLE outbox_event")

    def facts(self) -> str:
        names = ("innodb_flush_log_at_trx_commit", "sync_binlog", "log_bin", "innodb_buffer_pool_size")
        settings = self.run(f"SELECT version(), {', '.join('@@' + name for name in names)}")[0]
        told = ", ".join(f"{name} {value}" for name, value in zip(names, settings[1:], strict=True))
        return f"{settings[0]}, {told}"


def place_of(url: str) -> Place:
    """Without a connection: who only needs to know where it is."""
    return (Mysql if url.startswith("mysql") else Postgres)(url)


def login(url: str) -> dict[str, Any]:
    """A MySQL URL as its drivers want it."""
    parts = urlsplit(url)
    return {
        "host": parts.hostname or "127.0.0.1",
        "port": parts.port or 3306,
        "user": unquote(parts.username or "root"),
        "password": unquote(parts.password or ""),
        "database": parts.path.lstrip("/") or None,
    }
