"""What the tables say: every number that the demo shows is read by SQL, on a connection that only reads."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Final

from aftercommit import EventStatus

_BY_STATUS: Final = "SELECT status, count(*) FROM outbox_event GROUP BY status"

_UNFINISHED: Final = "SELECT count(*) FROM outbox_event WHERE status IN (0, 2)"

_WAITS: Final = "SELECT ms_after_commit FROM calls WHERE ms_after_commit IS NOT NULL ORDER BY ms_after_commit"

_TRACES: Final = """
    SELECT (SELECT count(*) FROM orders WHERE number = :number)
         + (SELECT count(*) FROM outbox_event WHERE aggregate_id = CAST(:number AS TEXT))
         + (SELECT count(*) FROM calls WHERE number = :number)
"""

_PLACED_BY: Final = "SELECT count(*) FROM orders WHERE placed_by = :process"

#: Rows that a process holds, and until when, in seconds since the epoch.
_LEASED: Final = """
    SELECT count(locked_by), max(lease_until) / 1e6 FROM outbox_event
    WHERE aggregate_id IN (SELECT CAST(number AS TEXT) FROM orders WHERE placed_by = :process)
"""

_LOST: Final = "SELECT number FROM orders EXCEPT SELECT number FROM calls WHERE error IS NULL"

_INVENTED: Final = "SELECT number FROM calls WHERE error IS NULL EXCEPT SELECT number FROM orders"

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

    def waits(self) -> list[float]:
        """Milliseconds from commits to calls of the handler, shortest first."""
        return [wait for (wait,) in self._connection.execute(_WAITS)]

    def traces_of(self, number: int) -> int:
        """Rows of any table that know this order."""
        return int(self._number(_TRACES, number=number))

    def placed_by(self, process: int) -> int:
        return int(self._number(_PLACED_BY, process=process))

    def leased_to_writer(self, process: int) -> tuple[int, float]:
        """How many events of this process's orders are leased, and until when in seconds since the epoch."""
        count, until = self._connection.execute(_LEASED, {"process": process}).fetchone()
        return count, until or 0.0

    def summary(self) -> dict[str, int]:
        return {name: int(self._number(question)) for name, question in SUMMARY}

    def lost(self) -> list[int]:
        """Orders that were committed and never delivered."""
        return [number for (number,) in self._connection.execute(_LOST)]

    def invented(self) -> list[int]:
        """Orders that were delivered and never committed."""
        return [number for (number,) in self._connection.execute(_INVENTED)]

    def _number(self, question: str, **values: int) -> Any:
        return self._connection.execute(question, values).fetchone()[0]
