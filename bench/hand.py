"""The same work written by hand: plain `sqlite3`, no checks, no leases kept alive, nothing that is not needed.

It is meant to be hard to beat: one connection that stays open, statements of constant text, ids from a counter, times
from the program's clock, the payload encoded by the same encoder that the outbox uses.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from aftercommit import Outbox

BUSINESS: Final = "INSERT INTO orders (id, customer, total) VALUES (?, ?, ?)"

_EVENT: Final = """
INSERT INTO outbox_event (
  event_id, event_type, aggregate_type, partition_no, payload, content_type, occurred_at, created_at, available_at
) VALUES (?, 'OrderPlaced', '__GLOBAL__', 0, ?, 'application/json', ?, ?, ?)
"""

#: The outbox's own claim without its floor: the same columns, the same conditions, the same order.
_SELECT: Final = """
SELECT position, event_id, handler_id, event_type, aggregate_type, aggregate_id, tenant_id, event_key,
       payload, payload_bytes, headers, occurred_at, scheduled_at, attempts, abandoned, lease_epoch,
       locked_by IS NOT NULL, created_at, available_at
FROM outbox_event
WHERE status IN (0, 2) AND available_at <= ? AND (locked_by IS NULL OR lease_until <= ?)
ORDER BY available_at, position
LIMIT ?
"""

_LEASE: Final = """
UPDATE outbox_event
SET locked_by = 'hand', locked_at = ?, lease_until = ?, lease_epoch = lease_epoch + 1
WHERE position = ?
"""

_DONE: Final = """
UPDATE outbox_event
SET status = 1, done_at = ?, locked_by = NULL, locked_at = NULL, lease_until = NULL
WHERE position = ?
"""

#: Where the claim has the text.
_PAYLOAD: Final = 8

_LEASE_MICROS: Final = 30_000_000

encode: Final = msgspec.json.Encoder().encode


def order(number: int) -> tuple[int, str, int]:
    """The values of a business row."""
    return (number, "Ada Lovelace", 12_345)


def payload(number: int) -> dict[str, Any]:
    """An event of about 300 bytes."""
    return {
        "order": number,
        "customer": {"name": "Ada Lovelace", "street": "12 St James's Square", "city": "London"},
        "items": [{"article": "A-1001", "count": 2, "price": 4_999}, {"article": "B-2002", "count": 1, "price": 2_347}],
        "total": 12_345,
        "currency": "GBP",
        "note": "Leave the parcel with the porter if nobody answers the door.",
        "channel": "web",
    }


def text(number: int) -> str:
    """The same as it is stored."""
    return encode(payload(number)).decode()


def flat(contents: list[Any], first: int) -> list[str]:
    """Id and text of each, one after the other: the values of one insert of many rows."""
    return [value for number, each in enumerate(contents, first) for value in (f"{number:026d}", encode(each).decode())]


def connect(path: Path) -> sqlite3.Connection:
    """The settings that the outbox has: WAL, every commit on disk before it returns."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def new_database(folder: Path) -> Path:
    """An empty database with the outbox's own tables and indexes, and a business table."""
    path = folder / "bench.db"
    outbox = Outbox(url(path))
    outbox.create_schema()
    outbox.close()
    connection = connect(path)
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT NOT NULL, total INTEGER NOT NULL)")
    connection.close()
    return path


def event_values(number: int, content: object) -> tuple[object, ...]:
    now = time.time_ns() // 1000
    return (f"{number:026d}", encode(content).decode(), now, now, now)


def write(connection: sqlite3.Connection, number: int) -> None:
    """Two inserts in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(BUSINESS, order(number))
    connection.execute(_EVENT, event_values(number, payload(number)))
    connection.execute("COMMIT")


def insert_event(connection: sqlite3.Connection, number: int) -> None:
    """The second insert alone."""
    connection.execute(_EVENT, event_values(number, payload(number)))


def write_all(connection: sqlite3.Connection, contents: list[Any], first: int) -> None:
    """Many events in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(_EVENT, [event_values(first + index, content) for index, content in enumerate(contents)])
    connection.execute("COMMIT")


def drain(connection: sqlite3.Connection, batch_size: int, function: Callable[[Any], object]) -> int:
    """Claim a batch, call a function with each payload, mark the batch: two transactions each, until none is left."""
    total = 0
    while rows := _claim(connection, batch_size):
        for row in rows:
            function(row[_PAYLOAD])
        _mark(connection, rows)
        total += len(rows)
    return total


def _claim(connection: sqlite3.Connection, batch_size: int) -> list[Any]:
    connection.execute("BEGIN IMMEDIATE")
    now = time.time_ns() // 1000
    rows = connection.execute(_SELECT, (now, now, batch_size)).fetchall()
    connection.executemany(_LEASE, [(now, now + _LEASE_MICROS, row[0]) for row in rows])
    connection.execute("COMMIT")
    return rows


def _mark(connection: sqlite3.Connection, rows: list[Any]) -> None:
    now = time.time_ns() // 1000
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(_DONE, [(now, row[0]) for row in rows])
    connection.execute("COMMIT")


def count(path: Path, condition: str) -> int:
    """Events in the table, as somebody else sees them."""
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute(f"SELECT count(*) FROM outbox_event WHERE {condition}").fetchone()[0])
    finally:
        connection.close()
