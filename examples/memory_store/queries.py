"""How the rows of the example are searched: which ones people ask for, and a page of them."""

from __future__ import annotations

from aftercommit.events.columns import COLUMNS
from aftercommit.events.records import EventFilter, EventRecord
from aftercommit.stores.sql.rows import IN_MICROS, record_of
from examples.memory_store.rows import MICRO, Row, now


def matches(row: Row, where: EventFilter) -> bool:
    """What is None does not matter."""
    wanted = {
        **{name: getattr(where, name) for name in ("event_type", "aggregate_type", "handler_id", "aggregate_id")},
        "tenant_id": where.tenant_id,
        "event_key": where.key,
        "status": where.status,
    }
    return (
        all(value in (None, row[name]) for name, value in wanted.items())
        and (where.error is None or where.error in (row["last_error"] or ""))
        and (where.older_than is None or row["created_at"] < now() - where.older_than // MICRO)
    )


def page(rows: list[Row], limit: int, after: EventRecord | None) -> list[EventRecord]:
    """What comes behind the last record of the page before."""
    places = [row["position"] for row in rows]
    start = 0 if after is None else places.index(after.position) + 1
    return [record_of([row[column.name] for column in COLUMNS], IN_MICROS) for row in rows[start : start + limit]]


def due_for(row: Row) -> int | None:
    return None if row["status"] == 3 else now() - row["available_at"]


def ended(row: Row) -> int:
    return int(row["created_at"] if row["done_at"] is None else row["done_at"])
