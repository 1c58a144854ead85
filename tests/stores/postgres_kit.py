"""A PostgreSQL table seen behind the store's back: on a connection of its own, times in microseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import dict_row

from aftercommit.ports import Colour

#: The ways to speak to PostgreSQL: scheme of the URL, and colour.
DRIVERS = {
    "psycopg": ("postgresql", Colour.BLOCKING),
    "psycopg-async": ("postgresql", Colour.ASYNC),
    "asyncpg": ("postgresql+asyncpg", Colour.ASYNC),
}

TIMES = frozenset({"occurred_at", "scheduled_at", "created_at", "available_at", "done_at", "locked_at", "lease_until"})

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Table:
    """`outbox_event` of one database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = psycopg.connect(url, autocommit=True, row_factory=dict_row)
        self.connection.execute("SET TIME ZONE 'UTC'; SET synchronous_commit = off")

    def close(self) -> None:
        self.connection.close()

    def read(self, sql: str, *parameters: object) -> list[dict[str, Any]]:
        return self.connection.execute(sql, parameters or None).fetchall()

    def execute(self, sql: str, *parameters: object) -> int:
        return self.connection.execute(sql, parameters or None).rowcount

    def clear(self) -> None:
        """No rows, and no tables of other names."""
        self.execute("TRUNCATE outbox_event")
        for row in self.read("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
            if row["tablename"] not in ("outbox_event", "outbox_schema"):
                self.execute(f'DROP TABLE "{row["tablename"]}"')

    def rows(self) -> list[dict[str, Any]]:
        return [
            {name: micros(value) if name in TIMES else value for name, value in row.items()}
            for row in self.read("SELECT * FROM outbox_event ORDER BY position")
        ]

    def change(self, event_id: str | None = None, **columns: Any) -> None:
        sets = ", ".join(f"{name} = %s" for name in columns)
        values = [instant(value) if name in TIMES else value for name, value in columns.items()]
        sql = f"UPDATE outbox_event SET {sets} WHERE %s::text IS NULL OR event_id = %s"
        assert self.execute(sql, *values, event_id, event_id)

    def now(self) -> int:
        found = micros(self.read("SELECT clock_timestamp() AS now")[0]["now"])
        assert found is not None
        return found


def micros(value: datetime | None) -> int | None:
    return None if value is None else (value - EPOCH) // timedelta(microseconds=1)


def instant(value: int | None) -> datetime | None:
    return None if value is None else EPOCH + timedelta(microseconds=value)
