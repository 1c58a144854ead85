"""What the tables say: every number that the demo shows is read by SQL, on a connection that only reads."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Final

from aftercommit import EventStatus

_BY_STATUS: Final = "SELECT status, count(*) FROM outbox_event GROUP BY status"

_UNFINISHED: Final = "SELECT count(*) FROM outbox_event WHERE status IN (0, 2)"

#: The median is the row in the middle.
_WAITS: Final = """
    WITH waits AS (SELECT ms_after_commit AS wait FROM calls WHERE ms_after_commit IS NOT NULL)
    SELECT count(*), (SELECT wait FROM waits ORDER BY wait LIMIT 1 OFFSET (SELECT count(*) / 2 FROM waits)), max(wait)
    FROM waits
"""

_TRACES: Final = """
    SELECT (SELECT count(*) FROM orders WHERE number = :number)
         + (SELECT count(*) FROM outbox_event WHERE aggregate_id = CAST(:number AS TEXT))
         + (SELECT count(*) FROM calls WHERE number = :number)
"""

_PLACED_BY: Final = "SELECT count(*) FROM orders WHERE placed_by = :process"

_TAKEN_OVER: Final = """
    SELECT count(*) FROM orders JOIN calls USING (number)
    WHERE error IS NULL AND placed_by = :process AND delivered_by <> placed_by
"""

#: Rows that a process holds, and until when, in seconds since the epoch.
_LEASED: Final = """
    SELECT count(locked_by), max(lease_until) / 1e6 FROM outbox_event
    WHERE aggregate_id IN (SELECT CAST(number AS TEXT) FROM orders WHERE placed_by = :process)
"""

_LOST: Final = "SELECT number FROM orders EXCEPT SELECT number FROM calls WHERE error IS NULL"

_INVENTED: Final = "SELECT number FROM calls WHERE error IS NULL EXCEPT SELECT number FROM orders"

_NOT_DONE: Final = "SELECT CAST(aggregate_id AS INTEGER) FROM outbox_event WHERE status <> 1"

#: The lines of the summary, with the question that gives the number.
SUMMARY: Final = (
    ("orders committed", "SELECT count(*) FROM orders"),
    ("events NEW", "SELECT count(*) FROM outbox_event WHERE status = 0"),
    ("events RETRY", "SELECT count(*) FROM outbox_event WHERE status = 2"),
    ("events DONE", "SELECT count(*) FROM outbox_event WHERE status = 1"),
    ("events DEAD", "SELECT count(*) FROM outbox_event WHERE status = 3"),
    ("handler calls", "SELECT count(*) FROM calls"),
    ("failed calls", "SELECT count(error) FROM calls"),
    ("attempts on the events (a replay starts anew)", "SELECT total(attempts) FROM outbox_event"),
    ("dead letters", "SELECT count(*) FROM dead_letters"),
    ("dead letters replayed", "SELECT count(*) FROM dead_letters WHERE is_replayed"),
    (
        "delivered for a dead process",
        "SELECT count(*) FROM orders JOIN calls USING (number) WHERE error IS NULL AND delivered_by <> placed_by",
    ),
    ("delivered more than once", "SELECT count(*) - count(DISTINCT number) FROM calls WHERE error IS NULL"),
)


class Figures:
    """Answers in numbers. What it sees is committed."""

    def __init__(self, database: Path) -> None:
        self._connection = sqlite3.connect(database)

    def close(self) -> None:
        self._connection.close()

    def by_status(self) -> dict[EventStatus, int]:
        found = dict(self._connection.execute(_BY_STATUS).fetchall())
        return {status: found.get(status, 0) for status in EventStatus}

    def unfinished(self) -> int:
        """Events that are neither DONE nor DEAD."""
        return int(self._number(_UNFINISHED))

    def waits(self) -> tuple[int, float, float]:
        """How many calls came straight from their commit, and after how many milliseconds: the median, the longest."""
        count, median, longest = self._connection.execute(_WAITS).fetchone()
        return count, median or 0.0, longest or 0.0

    def traces_of(self, number: int) -> int:
        """Rows of any table that know this order."""
        return int(self._number(_TRACES, number=number))

    def placed_by(self, process: int) -> int:
        return int(self._number(_PLACED_BY, process=process))

    def leases_of(self, process: int) -> tuple[int, float]:
        """How many events of this process's orders are leased, and until when in seconds since the epoch."""
        count, until = self._connection.execute(_LEASED, {"process": process}).fetchone()
        return count, until or 0.0

    def taken_over_from(self, process: int) -> int:
        """Events of this process's orders that another one delivered."""
        return int(self._number(_TAKEN_OVER, process=process))

    def summary(self) -> dict[str, int]:
        return {name: int(self._number(question)) for name, question in SUMMARY}

    def lost(self) -> list[int]:
        """Orders that were committed and never delivered."""
        return self._numbers(_LOST)

    def invented(self) -> list[int]:
        """Orders that were delivered and never committed."""
        return self._numbers(_INVENTED)

    def not_done(self) -> list[int]:
        """Orders whose event is not DONE."""
        return self._numbers(_NOT_DONE)

    def _numbers(self, question: str) -> list[int]:
        return [number for (number,) in self._connection.execute(question)]

    def _number(self, question: str, **values: int) -> Any:
        return self._connection.execute(question, values).fetchone()[0]
