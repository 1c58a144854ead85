"""SQL Server keeps the contract of stores, with either executor. Only where there is one: set
AFTERCOMMIT_TEST_SQLSERVER_URL to a login that may create databases, as mssql://user:password@host/master."""

from __future__ import annotations

import os
from collections.abc import Coroutine, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest

from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.stores.sqlserver.target import _opener, _pyodbc, address_of, sqlserver_from_url
from aftercommit.testing import SqlConformance, StoreConformance
from tests.databases import RENEWED
from tests.stores.kit import run_in

URL = os.environ.get("AFTERCOMMIT_TEST_SQLSERVER_URL", "")

EPOCH = datetime(1970, 1, 1)
COMPUTED = frozenset({"ids_size", "order_key", "unique_bytes"})
TIMES = frozenset({"occurred_at", "scheduled_at", "created_at", "available_at", "done_at", "locked_at", "lease_until"})


class Table:
    """`outbox_event` of one database, seen behind the store's back."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = _opener(address_of(url), _pyodbc())()

    def execute(self, sql: str, *parameters: object) -> int:
        with closing(self.connection.cursor()) as cursor:
            cursor.execute(sql, parameters) if parameters else cursor.execute(sql)
            return int(cursor.rowcount)

    def read(self, sql: str, *parameters: object) -> list[dict[str, Any]]:
        with closing(self.connection.cursor()) as cursor:
            cursor.execute(sql, parameters) if parameters else cursor.execute(sql)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def rows(self) -> list[dict[str, Any]]:
        """Without the columns that the server computes for itself."""
        return [
            {name: micros(value) if name in TIMES else value for name, value in row.items() if name not in COMPUTED}
            for row in self.read("SELECT * FROM outbox_event ORDER BY position")
        ]

    def change(self, event_id: str | None = None, **columns: Any) -> None:
        sets = ", ".join(f"{name} = ?" for name in columns)
        values = [instant(value) if name in TIMES else value for name, value in columns.items()]
        where, ids = ("", []) if event_id is None else (" WHERE event_id = ?", [event_id])
        assert self.execute(f"UPDATE outbox_event SET {sets}{where}", *values, *ids)

    def now(self) -> int:
        (row,) = self.read("SELECT CAST(SYSUTCDATETIME() AS datetime2(6)) AS now")
        found = micros(row["now"])
        assert found is not None
        return found


def micros(value: datetime | None) -> int | None:
    return None if value is None else (value - EPOCH) // timedelta(microseconds=1)


def instant(value: int | None) -> datetime | None:
    return None if value is None else EPOCH + timedelta(microseconds=value)


def of_database(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


@pytest.fixture(scope="module", params=[True, False], ids=["snapshots", "locks"])
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    """In a database of its own, whose readers see snapshots or wait for locks."""
    server, name = Table(URL), f"aftercommit_{uuid4().hex[:12]}"
    server.execute(f"CREATE DATABASE [{name}]")
    try:
        server.execute(f"ALTER DATABASE [{name}] SET READ_COMMITTED_SNAPSHOT {'ON' if request.param else 'OFF'}")
        found = Table(of_database(URL, name))
        store = sqlserver_from_url(found.url, Colour.BLOCKING, create_schema=True)
        run(store.open())
        run(store.close())
        yield found
        found.connection.close()
    finally:
        server.execute(f"ALTER DATABASE [{name}] SET SINGLE_USER WITH ROLLBACK IMMEDIATE")
        server.execute(f"DROP DATABASE [{name}]")
        server.connection.close()


def test_the_contract_is_tested_on_a_server(sqlserver_url: str) -> None:
    """One line among what was not tested, and not fifteen hundred, where no server is named."""
    assert TestSqlServer.__test__


class TestSqlServer(SqlConformance, StoreConformance):
    """The contract, and nothing else: what only SQL Server can do has not been tried."""

    __test__ = bool(URL)

    @pytest.fixture(params=list(Colour), ids=lambda colour: colour.value, autouse=True)
    def database(self, request: pytest.FixtureRequest, table: Table) -> None:
        self.colour: Colour = request.param
        self.table = table
        for sql in filter(None, RENEWED.values()):
            table.execute(sql)

    def make_store(self, **options: Any) -> Any:
        return sqlserver_from_url(self.table.url, self.colour, **{"create_schema": True, **options})

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return run_in(self.colour, coroutine)

    def rows(self) -> list[dict[str, Any]]:
        return self.table.rows()

    def change(self, event_id: str | None = None, **columns: Any) -> None:
        self.table.change(event_id, **columns)

    def now(self) -> int:
        return self.table.now()

    def make_schema(self, name: str) -> None:
        for row in self.table.read("SELECT name FROM sys.tables WHERE schema_id = SCHEMA_ID(?)", name):
            self.table.execute(f"DROP TABLE [{name}].[{row['name']}]")
        self.table.execute(f"IF SCHEMA_ID(N'{name}') IS NOT NULL DROP SCHEMA [{name}]")
        self.table.execute(f"CREATE SCHEMA [{name}]")
