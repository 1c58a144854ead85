"""The tables of an outbox on Redis as somebody else sees them who is not the outbox.

Tests speak SQL of every database. For Redis the rows are copied into a SQLite database of the moment; what a statement
changes there is written back.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

from aftercommit.events.columns import COLUMNS
from tests.databases import Database
from tests.redis_table import RedisTable, Row

#: The tables that tests look at, and their columns.
TABLES = {
    "outbox_event": [column.name for column in COLUMNS],
    "outbox_instance": ["id", "host", "pid", "started_at", "heartbeat_at", "status"],
    "outbox_partition": ["partition_no", "owner", "epoch", "expires_at"],
}


class RedisDatabase(Database):
    """On connections of its own. Times are integers, as statements have them."""

    def __init__(self, url: str, table: str) -> None:
        self._table = RedisTable(url, table)

    def read(self, sql: str, *parameters: object) -> list[Any]:
        with closing(self._mirror(sql)) as mirror:
            return mirror.execute(sql, parameters).fetchall()

    def write(self, sql: str, *parameters: object) -> int:
        with closing(self._mirror(sql)) as mirror:
            before = {table: _rows(mirror, table) for table in TABLES}
            count = mirror.execute(sql, parameters).rowcount
            for table, rows in before.items():
                self._table.replace(table, rows, _rows(mirror, table))
            return count

    def _mirror(self, sql: str) -> sqlite3.Connection:
        """All tables, and the rows of those that a statement names."""
        mirror = sqlite3.connect(":memory:", isolation_level=None)
        mirror.row_factory = sqlite3.Row
        for table, columns in TABLES.items():
            mirror.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            if table not in sql:
                continue
            places = ", ".join("?" * len(columns))
            rows = ([row[column] for column in columns] for row in self._table.rows(table))
            mirror.executemany(f"INSERT INTO {table} VALUES ({places})", rows)
        return mirror

    def now(self) -> int:
        return self._table.now()

    def is_locked(self) -> bool:
        """Never: a script runs whole, and others wait for no transaction."""
        return False

    def has_settled(self, count: int, status: int = 1) -> bool:
        """The rows are asked as well, but only when their index has as many: who waits looks often."""
        return self._table.may_have(count, status) and super().has_settled(count, status)

    def held_by(self, owner: str) -> dict[str, int]:
        """By the index of leases, which is as long as what is in memory of all."""
        return _leases(self._table.leased(owner), owner)

    def left_by(self, owner: str) -> dict[str, int]:
        """By the rows themselves, page by page. Who has gone takes no more of them meanwhile."""
        return _leases(self._table.naming(owner), owner)

    def clear(self) -> None:
        self._table.clear()

    def check(self) -> None:
        """Nothing is half written."""
        self._table.check()

    def close(self) -> None:
        self._table.client.close()

    # -------------------------------------------------------- who is connected

    def sessions(self) -> set[int]:
        """Those of outboxes: their clients are called as the URL says that was made for the test."""
        clients = self._table.client.client_list()
        return {int(each["id"]) for each in clients if each["name"] == self._table.client_name}

    def kill(self, session: int) -> int:
        """How many were ended; one that has gone by itself is none."""
        return int(self._table.client.client_kill_filter(_id=str(session)))

    # -------------------------------------------------------- a list of a test's own

    def push(self, noun: str, *items: object) -> None:
        """One item more, in the order of the server. From any thread."""
        self._table.client.rpush(self._table.names[noun], json.dumps(items))

    def pushed(self, noun: str) -> list[Any]:
        return [json.loads(item) for item in self._table.client.lrange(self._table.names[noun], 0, -1)]


def _leases(rows: list[Row], owner: str) -> dict[str, int]:
    held = [row for row in rows if row["locked_by"] == owner and row["status"] in (0, 2)]
    return {row["event_id"]: row["lease_epoch"] for row in held}


def _rows(mirror: sqlite3.Connection, table: str) -> dict[Any, Row]:
    """By their first columns, which are their keys."""
    return {row[0]: dict(row) for row in mirror.execute(f"SELECT * FROM {table}")}
