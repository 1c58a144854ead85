"""What people do with rows that ended: look at the dead, replay or discard them, purge the old."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import Enum
from typing import Any, Final

from aftercommit.config import OutboxConfig
from aftercommit.errors import InvalidOption
from aftercommit.events.claims import DeadEvent, DeadFilter
from aftercommit.events.log import Log
from aftercommit.events.names import name_of
from aftercommit.ports import Records, Runtime
from aftercommit.service import Service

log = Log("aftercommit.upkeep")

_REPLAYED_AT_ONCE: Final = 100


class DeadEvents:
    """`outbox.dead`: the dead letters. A replayed event is NEW again, with all its attempts."""

    def __init__(
        self, records: Records, open_store: Callable[[], Awaitable[None]], *, on_change: Callable[[], None]
    ) -> None:
        """`on_change`: something may be delivered that could not be before."""
        self._records = records
        self._open_store = open_store
        self._on_change = on_change

    async def query(
        self, *, event_type: str | Enum | None = None, aggregate_type: str | Enum | None = None, limit: int = 100
    ) -> list[DeadEvent]:
        """Dead events, oldest first."""
        await self._open_store()
        return await self._records.query_dead(dead_filter(event_type, aggregate_type), at_least_one(limit, "limit"))

    async def count(self, *, event_type: str | Enum | None = None, aggregate_type: str | Enum | None = None) -> int:
        """How many."""
        await self._open_store()
        return await self._records.count_dead(dead_filter(event_type, aggregate_type))

    async def replay(self, event_id: str, *, handler_id: str | None = None) -> bool:
        """Make it NEW again, with all its attempts. False when it is not dead."""
        await self._open_store()
        replayed = await self._records.replay(event_id, handler_id)
        if replayed:
            self._on_change()
        return replayed > 0

    async def replay_all(
        self,
        *,
        event_type: str | Enum | None = None,
        aggregate_type: str | Enum | None = None,
        batch_size: int = _REPLAYED_AT_ONCE,
    ) -> int:
        """Replay every dead event once, in order of position; how many. One that dies again is not replayed again."""
        await self._open_store()
        where, limit = dead_filter(event_type, aggregate_type), at_least_one(batch_size, "batch_size")
        total, position = 0, 0
        while True:
            replayed, last = await self._records.replay_after(where, position, limit)
            total += replayed
            if last is None:
                break
            position = last
        if total:
            self._on_change()
        return total

    async def discard(self, event_id: str, *, handler_id: str | None = None, reason: str = "") -> bool:
        """End it as DONE without delivering it; the reason is kept. False when it is not dead."""
        await self._open_store()
        discarded = await self._records.discard(event_id, handler_id, reason)
        if discarded:
            self._on_change()  # a key may have stood still behind it
        return discarded > 0


class Purge(Service):
    """Deletes old rows in batches on a schedule."""

    is_vital = False

    def __init__(self, runtime: Runtime, records: Records, config: OutboxConfig) -> None:
        super().__init__(runtime, "aftercommit-purge")
        self._records = records
        self._retention = config.purge_retention or timedelta(0)
        self._interval = config.purge_interval
        self._batch_size = config.purge_batch_size
        self._dead = config.purge_dead
        # Where nothing is delivered nothing ever ends, and age alone counts.
        self._by_age = not config.delivers
        self._is_first = True

    async def step(self) -> None:
        pause = 0.0 if self._is_first else self._interval.total_seconds()
        self._is_first = False
        if not await self.monitor.wait_for(lambda: self.is_stopping, pause):
            deleted = await self.purge(self._retention, dead=self._dead)
            log.debug("purged %d rows", deleted)

    async def purge(self, older_than: timedelta, *, dead: bool) -> int:
        """Delete until nothing older is left; how many rows."""
        total = 0
        while not self.is_stopping:
            deleted = await self._batch(older_than, dead)
            total += deleted
            if deleted < self._batch_size:
                break
        return total

    async def _batch(self, older_than: timedelta, dead: bool) -> int:
        if self._by_age:
            return await self._records.purge_aged(older_than, limit=self._batch_size)
        return await self._records.purge(older_than, dead=dead, limit=self._batch_size)


def dead_filter(event_type: str | Enum | None, aggregate_type: str | Enum | None) -> DeadFilter:
    return DeadFilter(
        None if event_type is None else name_of(event_type, "event_type", 128),
        None if aggregate_type is None else name_of(aggregate_type, "aggregate_type", 64),
    )


def at_least_one(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidOption(f"{name} is {value!r}", fix=f"pass {name} as an int of at least 1")
    return value
