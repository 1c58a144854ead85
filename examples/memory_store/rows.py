"""The table of the example: rows in a dict, how an event becomes one, and what an outcome changes in it.

Rows have the columns of `aftercommit.events.columns`; times are microseconds since the epoch.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from threading import RLock
from typing import Any

from aftercommit.events.claims import Lease, NewEvent, RowKey
from aftercommit.events.outcome import Dead, Defer, Done, FailureNote, Outcome, Release, Retry
from aftercommit.events.records import KEPT_FAILURES, Failure
from aftercommit.stores.sql.inserting import unique_values
from aftercommit.stores.sql.rows import IN_MICROS, instant

MICRO = timedelta(microseconds=1)
FREE = {"locked_by": None, "locked_at": None, "lease_until": None}
NEW = {"status": 0, "attempts": 0, "abandoned": 0, "done_at": None, "last_error": None, "done_handlers": None, **FREE}

Row = dict[str, Any]


def now() -> int:
    """The clock of this database: whatever is due or leased is compared with it, never with the application's."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1000


class Rows:
    """The table, which several stores may share: its rows by their keys, and one lock for all."""

    def __init__(self) -> None:
        self.by_key: dict[RowKey, Row] = {}
        self.failures: dict[RowKey, list[Failure]] = {}
        self.positions = itertools.count(1)
        self.lock = RLock()

    def where(self, wanted: Callable[[Row], bool]) -> list[Row]:
        return sorted((row for row in self.by_key.values() if wanted(row)), key=lambda row: row["position"])

    def drop(self, rows: Iterable[Row]) -> int:
        keys = [RowKey(row["event_id"], row["handler_id"]) for row in rows]
        for key in keys:
            del self.by_key[key]
            self.failures.pop(key, None)
        return len(keys)

    def note(self, lease: Lease, notes: Iterable[FailureNote]) -> None:
        """The last failures of a row, beside it."""
        kept, at = self.failures.setdefault(lease.key, []), instant(now())
        for each in notes:
            what = (each.error_class, each.message, each.traceback)
            kept.append(Failure(*lease.key, at, each.attempt, each.handler, lease.owner, *what))
        del kept[:-KEPT_FAILURES]


def row_of(new: NewEvent) -> Row:
    """Born leased when it has an owner; its position comes with the commit."""
    row: Row = unique_values(new, IN_MICROS)
    at = now()
    delay, owner, lease, epoch = (row.pop(name) for name in ("delay", "owner", "lock_timeout", "epoch"))
    row |= {**NEW, "position": None, "created_at": at, "lease_epoch": epoch}
    row["available_at"] = at + delay if row["available_at"] is None else row["available_at"]
    return row if owner is None else {**row, "locked_by": owner, "locked_at": at, "lease_until": at + lease}


def changes_of(row: Row, outcome: Outcome) -> Row:
    """What an outcome writes, beside the end of the lease."""
    at = now()
    match outcome:
        case Done():
            return {"status": 1, "done_at": at, "last_error": None, "abandoned": 0}
        case Retry(_, error, done, limit) if limit is not None and row["attempts"] + 1 >= limit:
            return changes_of(row, Dead(error, True, done))
        case Retry(delay, error, done):
            due = {"status": 2, "attempts": row["attempts"] + 1, "available_at": at + delay // MICRO}
            return {**due, "last_error": error, "abandoned": 0, **named(done)}
        case Defer(delay, done):
            return {"status": 2, "available_at": at + delay // MICRO, "abandoned": 0, **named(done)}
        case Dead(error, counted, done):
            over = {"status": 3, "attempts": row["attempts"] + counted, "done_at": at}
            return {**over, "last_error": error, "abandoned": 0, **named(done)}
        case Release(was_started, done, is_suspect, was_marked):
            abandoned = 0 if was_started else row["abandoned"] - was_marked
            nobody = {"locked_by": "", "lease_until": at} if is_suspect and not was_started else {}
            return {"abandoned": abandoned, "lease_epoch": row["lease_epoch"] + 1, **nobody, **named(done)}


def named(done: tuple[str, ...]) -> Row:
    return {"done_handlers": json.dumps(done)} if done else {}
