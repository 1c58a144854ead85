"""A MySQL or MariaDB table seen behind the store's back: on a connection of its own, times in microseconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pymysql
from pymysql.cursors import DictCursor

from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.stores.mysql.target import mysql_from_url
from tests.databases import RENEWED
from tests.promises.waiting import until
from tests.stores.kit import run_in

DRIVERS = {"pymysql": Colour.BLOCKING, "asyncmy": Colour.ASYNC}

TIMES = frozenset({"occurred_at", "scheduled_at", "created_at", "available_at", "done_at", "locked_at", "lease_until"})

COMPUTED = frozenset({"is_dead", "order_key", "unique_pending"})

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def numbers(count: int) -> str:
    """A table of the numbers `n` below this one."""
    ten = "(SELECT 0 AS n" + "".join(f" UNION ALL SELECT {digit}" for digit in range(1, 10)) + ")"
    digits = range(len(str(count - 1)))
    sums = " + ".join(f"{10**digit} * n{digit}.n" for digit in digits)
    tables = ", ".join(f"{ten} AS n{digit}" for digit in digits)
    return f"(SELECT n FROM (SELECT {sums} AS n FROM {tables}) AS every WHERE n < {count}) AS numbers"


def store_at(url: str, colour: Colour = Colour.BLOCKING, **options: Any) -> Any:
    return mysql_from_url(url, colour, **{"create_schema": True, **options})


def parts_of(url: str) -> dict[str, Any]:
    """What drivers are given to connect."""
    parts = urlsplit(url)
    return {
        "host": parts.hostname,
        "port": parts.port or 3306,
        "user": parts.username,
        "password": parts.password or "",
        "database": parts.path[1:],
    }


def connect(url: str, **more: Any) -> Any:
    """A user's own PyMySQL connection."""
    return pymysql.connect(**{**parts_of(url), "charset": "utf8mb4", **more})


def prepared(store: Any, *statements: str) -> Any:
    """The store, with sessions on which these statements were run."""
    for pool in (store.executor._own, store.executor._lent):
        pool._make = _and_then(pool._make, statements)
    return store


def _and_then(make: Callable[[], Any], statements: tuple[str, ...]) -> Callable[[], Any]:
    def made() -> Any:
        lent = make()
        connect = lent._connect

        async def connected() -> Any:
            link = await connect()
            for sql in statements:
                await link.run(sql)
            return link

        lent._connect = connected
        return lent

    return made


class Table:
    """`outbox_event` of one database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = connect(url, autocommit=True, cursorclass=DictCursor)
        self.id = self.connection.thread_id()

    def close(self) -> None:
        self.connection.close()

    def read(self, sql: str, *parameters: object) -> list[dict[str, Any]]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql, parameters or None)
            return list(cursor.fetchall())

    def value(self, sql: str, *parameters: object) -> Any:
        (row,) = self.read(sql, *parameters)
        (value,) = row.values()
        return value

    def execute(self, sql: str, *parameters: object) -> int:
        with self.connection.cursor() as cursor:
            return int(cursor.execute(sql, parameters or None))

    def clear(self) -> None:
        """Quicker than TRUNCATE, which makes files anew. Tables that a test made go."""
        for row in self.read("SHOW TABLES"):
            (name,) = row.values()
            if sql := RENEWED.get(name, f"DROP TABLE `{name}`"):
                self.execute(sql)

    def rows(self) -> list[dict[str, Any]]:
        """Without what the server computes for itself."""
        return [
            {name: micros(value) if name in TIMES else value for name, value in row.items() if name not in COMPUTED}
            for row in self.read("SELECT * FROM outbox_event ORDER BY position")
        ]

    def statuses(self) -> list[int]:
        return [row["status"] for row in self.rows()]

    def change(self, event_id: str | None = None, **columns: Any) -> None:
        sets = ", ".join(f"{name} = %s" for name in columns)
        values = [instant(value) if name in TIMES else value for name, value in columns.items()]
        with connect(self.url, autocommit=True, client_flag=2) as connection, connection.cursor() as cursor:
            sql = f"UPDATE outbox_event SET {sets} WHERE %s IS NULL OR event_id = %s"
            assert cursor.execute(sql, (*values, event_id, event_id))

    def now(self) -> int:
        return micros(self.value("SELECT UTC_TIMESTAMP(6)"))

    # ------------------------------------------------------------ other people's sessions

    def sessions(self) -> list[int]:
        """All connections to this database but this one."""
        found = self.read(
            "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        )
        return [row.get("id", row.get("ID")) for row in found]

    def kill(self, session: int) -> None:
        self.execute(f"KILL {session}")

    def until_no_transaction(self) -> None:
        """The server lists them anew when nobody has read the list for a tenth of a second."""
        until(
            lambda: (
                not self.value(
                    "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id IN"
                    " (SELECT id FROM information_schema.processlist WHERE db = DATABASE())"
                )
            ),
            what="no open transaction",
        )


def is_mariadb(table: Table) -> bool:
    """And not MySQL itself."""
    return "MariaDB" in table.value("SELECT VERSION()")


def made(url: str) -> Table:
    """The table, made by a store if it was not there, and empty: whoever was here before may have had order."""
    table = Table(url)
    table.clear()
    store = store_at(url)
    run(store.open())
    run(store.close())
    return table


@contextmanager
def locked(url: str, sql: str, *parameters: object) -> Any:
    """Another transaction that has run this statement, and is open until the block ends."""
    with connect(url, autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        cursor.execute(sql, parameters)
        yield cursor
        connection.rollback()


def micros(value: datetime | None) -> Any:
    return None if value is None else (value.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


def instant(value: int | None) -> datetime | None:
    return None if value is None else EPOCH + timedelta(microseconds=value)


Scenario = Callable[[Any], Coroutine[Any, Any, Any]]


def played(table: Table, colour: Colour, scenario: Scenario) -> Any:
    """Run a scenario with an open store, close it, and see that nothing of it is left on the server."""
    store = store_at(table.url, colour)

    async def whole() -> Any:
        await store.open()
        try:
            return await scenario(store)
        finally:
            await store.close()

    found = run_in(colour, whole())
    gone(table)
    return found


def gone(table: Table) -> None:
    """No session but this one; a server sees a closed connection a moment later."""
    pause = threading.Event()
    for _ in range(2000):
        if not table.sessions():
            return
        pause.wait(0.005)
    raise AssertionError("a connection was left open")


async def opened(store: Any) -> Any:
    """A transaction as users get it."""
    return await store.executor.begin()


async def session_of(tx: Any) -> int:
    return (await tx.fetch("SELECT CONNECTION_ID()"))[0][0]


# ---------------------------------------------------------------- what a statement costs


def reads(store: Any) -> int:
    """Rows that the store's one idle session has read so far, and those that the index alone was asked about."""
    found = run(store.executor.fetch("SHOW SESSION STATUS LIKE 'Handler%'"))
    return sum(int(value) for name, value in found if name.startswith("Handler_read") or name == "Handler_icp_attempts")


def cost(store: Any, work: Any) -> tuple[Any, int]:
    """What it gave, and how many rows it read."""
    before = reads(store)
    overhead = reads(store) - before
    start = reads(store)
    value = run(work)
    return value, reads(store) - start - overhead
