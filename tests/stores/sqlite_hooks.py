"""SQLite as the conformance suite wants it: a file for each test."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from aftercommit.ports import Colour
from aftercommit.testing import SqlHooks
from tests.stores.kit import alter, read, run_in, store_at

NOW = "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000"


def without_waiting_for_the_disk(connect: Callable[[], sqlite3.Connection]) -> Callable[[], sqlite3.Connection]:
    """Connections that do not wait for the disk: the contract is not about power cuts, and it is long."""

    def opened() -> sqlite3.Connection:
        connection = connect()
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    return opened


class SqliteHooks(SqlHooks):
    """The file is at `path`; stores are of `colour`."""

    path: Path
    colour: Colour

    skips_locked = False  # there is one writer at a time
    has_schemas = False

    def make_store(self, **options: Any) -> Any:
        store = store_at(self.path, self.colour, **options)
        store.executor._connect = without_waiting_for_the_disk(store.executor._connect)
        return store

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return run_in(self.colour, coroutine)

    def rows(self) -> list[dict[str, Any]]:
        return [dict(row) for row in read(self.path, "SELECT * FROM outbox_event ORDER BY position")]

    def change(self, event_id: str | None = None, **columns: Any) -> None:
        sets = ", ".join(f"{name} = ?" for name in columns)
        sql = f"UPDATE outbox_event SET {sets} WHERE ? IS NULL OR event_id = ?"
        assert alter(self.path, sql, *columns.values(), event_id, event_id)

    def now(self) -> int:
        return int(read(self.path, f"SELECT {NOW}")[0][0])
