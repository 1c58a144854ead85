"""What the tables say: every number that the demo shows is read by SQL on a connection of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aftercommit import EventStatus

_BY_STATUS: Final = "SELECT status, count(*) FROM outbox_event GROUP BY status"

_MEDIAN: Final = """
    SELECT ms_after_commit FROM calls WHERE ms_after_commit IS NOT NULL ORDER BY ms_after_commit
    LIMIT 1 OFFSET (SELECT count(ms_after_commit) / 2 FROM calls)
"""

_LEASED: Final = """
    SELECT count(*), coalesce(max(lease_until), 0) / 1e6 - :now FROM outbox_event
    WHERE status = 0 AND locked_by IS NOT NULL AND aggregate_id >= :first
"""

#: What the summary shows, with the question that gives the number.
SUMMARY: Final = (
    ("orders committed", "SELECT count(*) FROM orders"),
    ("events NEW", "SELECT count(*) FROM outbox_event WHERE status = 0"),
    ("events RETRY", "SELECT count(*) FROM outbox_event WHERE status = 2"),
    ("events DONE", "SELECT count(*) FROM outbox_event WHERE status = 1"),
    ("events DEAD", "SELECT count(*) FROM outbox_event WHERE status = 3"),
    ("handler calls", "SELECT count(*) FROM calls"),
    ("failed calls", "SELECT count(error) FROM calls"),
    ("failed attempts on events", "SELECT sum(attempts) FROM outbox_event"),
    ("dead letters", "SELECT count(*) FROM dead_letters"),
    ("dead letters replayed", "SELECT count(*) FROM dead_letters WHERE is_replayed"),
    (
        "delivered for a dead process",
        "SELECT count(*) FROM orders JOIN calls USING (number) WHERE error IS NULL AND delivered_by <> placed_by",
    ),
    ("delivered twice", "SELECT count(*) - count(DISTINCT number) FROM calls WHERE error IS NULL"),
)

_LOST: Final = "SELECT number FROM orders EXCEPT SELECT number FROM calls WHERE error IS NULL"

_INVENTED: Final = "SELECT number FROM calls WHERE error IS NULL EXCEPT SELECT number FROM orders"
