"""What people do with rows that ended: look at the dead, replay or discard them, purge the old."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, Unpack

from aftercommit.config import OutboxConfig
from aftercommit.events.log import Log
from aftercommit.events.records import DeadEvent, EventRecord
from aftercommit.polling.filters import Filters, above_zero, at_least_one, filter_of, place_of
from aftercommit.ports import Records, Runtime
from aftercommit.service import Service

log = Log("aftercommit.upkeep")

_REPLAYED_AT_ONCE: Final = 100

#: A rate is kept in steps of a tenth of a second, or in single events.
_STEPS_A_SECOND: Final = 10


class DeadEvents:
    """`outbox.dead`: the dead letters. A replayed event is NEW again, with all its attempts."""

    def __init__(
        self,
        records: Records,
        open_store: Callable[[], Awaitable[None]],
        *,
        on_change: Callable[[], None],
        pause: Callable[[float], Awaitable[None]],
    ) -> None:
        """`on_change`: something may be delivered that could not be before. `pause` lets so many seconds pass."""
        self._records = records
        self._open_store = open_store
        self._on_change = on_change
        self._pause = pause

    async def query(
        self, *, limit: int = 100, after: EventRecord | None = None, **filters: Unpack[Filters]
    ) -> list[DeadEvent]:
        """Dead events in order of position; the next page with the last one of this page as `after`."""
        where, place, most = filter_of(**filters), place_of(after), at_least_one(limit, "limit")
        await self._open_store()
        return await self._records.query_dead(where, most, place)

    async def count(self, **filters: Unpack[Filters]) -> int:
        """How many."""
        where = filter_of(**filters)
        await self._open_store()
        return await self._records.count_dead(where)

    async def replay(self, event_id: str, *, handler_id: str | None = None) -> bool:
        """Make it NEW again, with all its attempts. False when it is not dead."""
        await self._open_store()
        replayed = await self._records.replay(event_id, handler_id)
        if replayed:
            self._on_change()
        return replayed > 0

    async def replay_all(
        self, *, batch_size: int = _REPLAYED_AT_ONCE, rate: float | None = None, **filters: Unpack[Filters]
    ) -> int:
        """Replay every dead event once, in order of position; how many. One that dies again is not replayed again.

        With a `rate`, so many in a second: this call waits in between, and what is replayed is delivered meanwhile.
        """
        where, limit = filter_of(**filters), at_least_one(batch_size, "batch_size")
        if rate is not None:
            limit = min(limit, max(1, int(above_zero(rate, "rate") / _STEPS_A_SECOND)))
        await self._open_store()
        total, position = 0, 0
        while True:
            replayed, last = await self._records.replay_after(where, position, limit)
            total += replayed
            if last is None:
                break
            position = last
            if rate is not None:
                self._on_change()
                await self._pause(replayed / rate)
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
