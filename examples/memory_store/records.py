"""The table of the example as people look at it and clean it: dead letters, purges, counts."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from aftercommit.events.claims import Backlog, DeadEvent, DeadFilter
from aftercommit.events.order import BlockedKey
from aftercommit.events.redact import storable
from aftercommit.stores.sql.rows import IN_MICROS, dead_of
from examples.memory_store.rows import MICRO, NEW, Row, Rows, now

DEAD = (
    "event_id", "handler_id", "event_type", "aggregate_type", "aggregate_id", "tenant_id", "event_key", "payload",
    "payload_bytes", "headers", "attempts", "last_error", "created_at", "done_at", "position",
)  # fmt: skip


class MemoryRecords:
    """The table as people look at it and clean it."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def _dead(self, where: DeadFilter) -> list[Row]:
        wanted = {name: getattr(where, name) for name in ("event_type", "aggregate_type")}
        return self._rows.where(
            lambda row: row["status"] == 3 and all(value in (None, row[name]) for name, value in wanted.items())
        )

    def _dead_of(self, event_id: str, handler_id: str | None) -> list[Row]:
        dead = self._dead(DeadFilter())
        return [row for row in dead if row["event_id"] == event_id and handler_id in (None, row["handler_id"])]

    async def query_dead(self, where: DeadFilter, limit: int) -> list[DeadEvent]:
        return [dead_of([row[name] for name in DEAD], IN_MICROS) for row in self._dead(where)[:limit]]

    async def count_dead(self, where: DeadFilter) -> int:
        return len(self._dead(where))

    async def replay(self, event_id: str, handler_id: str | None) -> int:
        return self._again(self._dead_of(event_id, handler_id))

    def _again(self, rows: list[Row]) -> int:
        for row in rows:
            row |= {**NEW, "available_at": now(), "lease_epoch": row["lease_epoch"] + 1}
        return len(rows)

    async def replay_after(self, where: DeadFilter, position: int, limit: int) -> tuple[int, int | None]:
        rows = [row for row in self._dead(where) if row["position"] > position][:limit]
        return self._again(rows), rows[-1]["position"] if len(rows) == limit else None

    async def discard(self, event_id: str, handler_id: str | None, reason: str) -> int:
        rows = self._dead_of(event_id, handler_id)
        for row in rows:
            error = storable(f"discarded: {reason}" if reason else "discarded")
            row |= {"status": 1, "done_at": now(), "last_error": error, "lease_epoch": row["lease_epoch"] + 1}
        return len(rows)

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
        dead = self._dead(DeadFilter())
        return Backlog(len(new), len(rows) - len(new), len(dead), len(leased), oldest * MICRO)

    async def count_done(self, limit: int | None) -> int:
        return len(self._rows.where(lambda row: row["status"] == 1)[:limit])

    async def pending(self) -> dict[int, int]:
        return dict(Counter(row["partition_no"] for row in self._rows.where(lambda row: row["status"] in (0, 2))))

    async def blocked(self, limit: int) -> list[BlockedKey]:
        return []  # it keeps no order


def ended(row: Row) -> int:
    return int(row["created_at"] if row["done_at"] is None else row["done_at"])
