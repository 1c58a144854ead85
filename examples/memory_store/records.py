"""The table of the example as people look at it and clean it: dead letters, purges, counts."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from aftercommit.events.claims import Backlog
from aftercommit.events.order import BlockedKey
from aftercommit.events.records import EventFilter, EventRecord, Failure, Summary
from aftercommit.events.redact import storable
from aftercommit.stores.sql.rows import summary_of
from examples.memory_store.queries import due_for, ended, matches, page
from examples.memory_store.rows import FREE, MICRO, NEW, Row, Rows, now


class MemoryRecords:
    """The table as people look at it and clean it."""

    def __init__(self, rows: Rows, *, deletes: bool = False) -> None:
        self._rows = rows
        self._deletes = deletes

    def _dead(self, where: EventFilter) -> list[Row]:
        return self._rows.where(lambda row: row["status"] == 3 and matches(row, where))

    def _pending(self, where: EventFilter) -> list[Row]:
        rows = self._rows.where(lambda row: row["status"] in (0, 2) and matches(row, where))
        return sorted(rows, key=lambda row: (row["available_at"], row["position"]))

    def _of(self, status: int, event_id: str, handler_id: str | None) -> list[Row]:
        return [
            row
            for row in self._rows.where(lambda row: row["status"] == status and row["event_id"] == event_id)
            if handler_id in (None, row["handler_id"])
        ]

    async def query_dead(self, where: EventFilter, limit: int, after: EventRecord | None = None) -> list[EventRecord]:
        return page(self._dead(where), limit, after)

    async def count_dead(self, where: EventFilter) -> int:
        return len(self._dead(where))

    async def query_pending(
        self, where: EventFilter, limit: int, after: EventRecord | None = None
    ) -> list[EventRecord]:
        return page(self._pending(where), limit, after)

    async def count_pending(self, where: EventFilter) -> int:
        return len(self._pending(where))

    async def query(self, where: EventFilter, limit: int, after: EventRecord | None = None) -> list[EventRecord]:
        return page(self._rows.where(lambda row: matches(row, where))[::-1], limit, after)

    async def find(self, event_id: str, *, is_prefix: bool, limit: int) -> list[EventRecord]:
        def is_wanted(row: Row) -> bool:
            return bool(row["event_id"] == event_id or (is_prefix and row["event_id"].startswith(event_id)))

        return page(self._rows.where(is_wanted), limit, None)

    async def failures(self, event_id: str, handler_id: str | None) -> list[Failure]:
        kept = [each for _, failures in sorted(self._rows.failures.items()) for each in failures]
        return [each for each in kept if each.event_id == event_id and handler_id in (None, each.handler_id)]

    async def summary(self, limit: int) -> Summary:
        rows = self._pending(EventFilter())[:limit] + self._dead(EventFilter())[:limit]
        return summary_of(
            [(row["event_type"], row["handler_id"], row["status"], 1, due_for(row)) for row in rows], limit
        )

    async def replay(self, event_id: str, handler_id: str | None) -> int:
        return self._again(self._of(3, event_id, handler_id))

    async def replay_done(self, event_id: str, handler_id: str | None) -> int:
        return self._again(self._of(1, event_id, handler_id))

    def _again(self, rows: list[Row]) -> int:
        for row in rows:
            row |= {**NEW, "available_at": now(), "lease_epoch": row["lease_epoch"] + 1}
        return len(rows)

    async def replay_after(self, where: EventFilter, position: int, limit: int) -> tuple[int, int | None]:
        rows = [row for row in self._dead(where) if row["position"] > position][:limit]
        return self._again(rows), rows[-1]["position"] if len(rows) == limit else None

    async def discard(self, event_id: str, handler_id: str | None, reason: str) -> int:
        rows = self._of(3, event_id, handler_id)
        for row in rows:
            error = storable(f"discarded: {reason}" if reason else "discarded")
            row |= {"status": 1, "done_at": now(), "last_error": error, "lease_epoch": row["lease_epoch"] + 1}
        return len(rows)

    async def cancel(self, event_id: str, handler_id: str | None) -> int:
        with self._rows.lock:
            at = now()
            rows = self._of(0, event_id, handler_id) + self._of(2, event_id, handler_id)
            free = [row for row in rows if row["locked_by"] is None or row["lease_until"] <= at]
            if self._deletes:
                return self._rows.drop(free)
            for row in free:
                over = {"status": 1, "done_at": at, "last_error": "cancelled", "abandoned": 0}
                row |= {**FREE, **over, "lease_epoch": row["lease_epoch"] + 1}
            return len(free)

    async def purge(self, older_than: timedelta, *, dead: bool, limit: int) -> int:
        before = now() - older_than // MICRO
        for_good = self._rows.where(lambda row: row["status"] in ((1, 3) if dead else (1,)) and ended(row) < before)
        return self._rows.drop(sorted(for_good, key=lambda row: (row["status"], ended(row)))[:limit])

    async def purge_aged(self, older_than: timedelta, *, limit: int) -> int:
        before = now() - older_than // MICRO
        return self._rows.drop([row for row in self._rows.where(bool)[:limit] if row["created_at"] < before])

    async def backlog(self) -> Backlog:
        at, rows = now(), self._rows.where(lambda row: row["status"] in (0, 2))
        leased = [row for row in rows if row["locked_by"] is not None and row["lease_until"] > at]
        oldest = max((at - row["available_at"] for row in rows if row["available_at"] <= at), default=0)
        new = [row for row in rows if row["status"] == 0]
        dead = self._dead(EventFilter())
        return Backlog(len(new), len(rows) - len(new), len(dead), len(leased), oldest * MICRO)

    async def count_done(self, limit: int | None) -> int:
        return len(self._rows.where(lambda row: row["status"] == 1)[:limit])

    async def pending(self) -> dict[int, int]:
        return dict(Counter(row["partition_no"] for row in self._rows.where(lambda row: row["status"] in (0, 2))))

    async def blocked(self, limit: int) -> list[BlockedKey]:
        return []  # it keeps no order
