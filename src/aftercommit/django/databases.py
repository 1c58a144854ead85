"""From a database of settings.DATABASES to the outbox's own connections to it, and to its dialect.

The one module outside `stores/` that knows databases by name: Django says "sqlite" or "mysql" where others give a URL,
and somebody has to lead from its word to a store."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import atomic

from aftercommit.errors import InvalidOption, MissingDriver, UnknownStore
from aftercommit.events.claims import QueryResult
from aftercommit.ports import Colour, Tx
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.execution import Executor, Fault


class Vendor(NamedTuple):
    """What the outbox needs to know of a kind of database."""

    dialect: Dialect
    #: Connections of the outbox's own, as Django's settings say.
    own: Callable[[BaseDatabaseWrapper], Executor]
    #: Statements on Django's connection.
    tx: Callable[[BaseDatabaseWrapper], Tx]
    fault_of: Callable[[Exception], Fault]
    #: Whether some of its migrations cannot run in a transaction, and want connections beside Django's.
    migrates_beside: bool = False


def vendor_of(alias: str) -> Vendor:
    """By Django's word for it; a driver is loaded only for a database of its kind."""
    vendor = connections[alias].vendor
    match vendor:
        case "sqlite":
            return _sqlite()
        case "postgresql":
            return _postgres()
        case "mysql":
            return _mysql()
    raise UnknownStore(
        f"the database {alias!r} is of the kind {vendor}", fix="use SQLite, PostgreSQL, MySQL or MariaDB for the outbox"
    )


def place_of(alias: str) -> str:
    """The database as people may read of it: no login, no secrets."""
    settings = connections[alias].settings_dict
    host = f" at {settings['HOST']}" if settings.get("HOST") else ""
    return f"the database {alias!r}{host}"


def is_in_memory(connection: BaseDatabaseWrapper) -> bool:
    """Whether only connections of Django's own can reach it: SQLite's usual test database."""
    return connection.vendor == "sqlite" and bool(connection.is_in_memory_db())


def begins_deferred(connection: BaseDatabaseWrapper) -> bool:
    """Whether a transaction that reads first may be refused when it writes: SQLite's way, unless told otherwise."""
    if connection.vendor != "sqlite" or is_in_memory(connection):
        return False
    mode = connection.settings_dict["OPTIONS"].get("transaction_mode")
    return str(mode).upper() not in ("IMMEDIATE", "EXCLUSIVE")


# ---------------------------------------------------------------- SQLite


def _sqlite() -> Vendor:
    from aftercommit.stores.sqlite.executor import fault_of
    from aftercommit.stores.sqlite.target import DIALECT

    return Vendor(DIALECT, _own_sqlite, CursorTx, fault_of)


def _own_sqlite(connection: BaseDatabaseWrapper) -> Executor:
    from aftercommit.stores.sqlite.target import sqlite_from_url

    name = str(connection.settings_dict["NAME"])
    if is_in_memory(connection) or name.startswith("file:"):
        raise UnknownStore(
            f"the SQLite database {connection.alias!r} is {name!r}, which is no plain file that workers could open",
            fix='give DATABASES a file name; in tests "TEST": {"NAME": BASE_DIR / "test.sqlite3"}',
        )
    return sqlite_from_url(f"sqlite:///{quote(os.path.abspath(name))}", Colour.BLOCKING).executor


# ---------------------------------------------------------------- PostgreSQL


def _postgres() -> Vendor:
    try:
        from aftercommit.stores.postgres.dialect import PSYCOPG
        from aftercommit.stores.postgres.psycopg_link import fault_of
    except ImportError as error:
        raise MissingDriver(
            f"psycopg 3 is not installed ({error}); psycopg2 cannot take its place",
            fix='pip install "aftercommit[postgres]"; Django then uses psycopg 3, too',
        ) from error
    return Vendor(PSYCOPG, _own_postgres, CursorTx, fault_of, migrates_beside=True)


def _own_postgres(connection: BaseDatabaseWrapper) -> Executor:
    from psycopg.conninfo import make_conninfo

    from aftercommit.stores.postgres import psycopg_pools

    parameters = connection.get_connection_params()
    for not_libpqs in ("context", "cursor_factory", "prepare_threshold"):
        parameters.pop(not_libpqs, None)
    if role := connection.settings_dict["OPTIONS"].get("assume_role"):
        parameters["options"] = f"{parameters.get('options', '')} -c role={role}".strip()
    return psycopg_pools.over_url(make_conninfo(**parameters), Colour.BLOCKING)


# ---------------------------------------------------------------- MySQL and MariaDB


def _mysql() -> Vendor:
    try:
        import pymysql  # noqa: F401
    except ImportError as error:
        raise MissingDriver(f"PyMySQL is not installed ({error})", fix='pip install "aftercommit[mysql]"') from error
    from django.db.backends.mysql.base import Database

    from aftercommit.stores.mysql.dialect import DIALECT
    from aftercommit.stores.mysql.faults import fault_of
    from aftercommit.stores.mysql.link import AdoptedLinkTx

    return Vendor(
        DIALECT,
        _own_mysql,
        lambda connection: AdoptedLinkTx(CursorLink(connection)),
        lambda error: fault_of(error, Database.Error),  # of the driver that Django uses
    )


#: As many as a URL gives by default.
_POOL_SIZE = 20


def _own_mysql(connection: BaseDatabaseWrapper) -> Executor:
    """By PyMySQL, whichever driver Django uses."""
    import pymysql

    from aftercommit.stores.mysql import pymysql_driver

    parameters: dict[str, Any] = connection.get_connection_params()
    for djangos in ("conv", "cursorclass"):
        parameters.pop(djangos, None)
    known = inspect.signature(pymysql.connect).parameters
    if unknown := sorted(parameters.keys() - known.keys()):
        raise InvalidOption(
            f"OPTIONS of the database {connection.alias!r} has {', '.join(unknown)}, which PyMySQL does not know",
            fix=f'AFTERCOMMIT = {{{connection.alias!r}: {{"target": "mysql://user:password@host/database"}}}}',
        )
    pymysql_driver.refuse_downgrades(wants_tls=any(name.startswith("ssl") for name in parameters))
    return pymysql_driver.over_connections(lambda: pymysql.connect(**parameters), _POOL_SIZE)


# ---------------------------------------------------------------- on Django's connection
# Through its cursors, so that its logs, wrappers and checks see the statements.


class CursorTx:
    """A Tx over a connection of Django, in whatever transaction it is in."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        with self._connection.cursor() as cursor:
            cursor.execute(_marked(sql), parameters or None)
            return int(cursor.rowcount)

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        """All or none: a row that is refused takes those before it with it."""
        with atomic(using=self._connection.alias), self._connection.cursor() as cursor:
            cursor.executemany(_marked(sql), parameters)
            return int(cursor.rowcount)

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(_marked(sql), parameters or None)
            return list(cursor.fetchall())


@lru_cache(maxsize=128)
def _marked(sql: str) -> str:
    """Django's cursors want every parameter as %s; SQLite's statements have question marks for nothing else."""
    return sql.replace("?", "%s")


class CursorLink:
    """What the MySQL statements need of a connection, whichever driver Django uses."""

    #: In an atomic block it is off, and nothing else comes here.
    is_autocommit = False
    is_in_transaction = True
    is_open = True
    is_here = True

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.raw = connection

    @property
    def charset(self) -> str:
        return str(self.raw.connection.character_set_name())

    async def run(self, sql: str, parameters: Any = None) -> QueryResult:
        with self.raw.cursor() as cursor:
            cursor.execute(sql, [_without_zone(value) for value in parameters] if parameters else None)
            rows = list(cursor.fetchall()) if cursor.description else []
            return QueryResult(rows, cursor.rowcount)

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return (await self.run(sql, parameters)).rowcount

    query = run

    async def ping(self) -> None:
        """The state is Django's to know."""

    async def close(self) -> None:
        """It is Django's to close."""

    def drop(self) -> None:
        """It is Django's to close."""


def _without_zone(value: Any) -> Any:
    """mysqlclient would write the zone, which MariaDB does not read."""
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value
