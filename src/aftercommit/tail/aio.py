"""The tail for asyncio: the same methods, awaited."""

from __future__ import annotations

from datetime import datetime

from aftercommit.async_outbox import AsyncOutbox
from aftercommit.events.durations import Duration, seconds_of
from aftercommit.polling.manual import DrainResult
from aftercommit.tail.base import TailBase
from aftercommit.tail.engine import Lag


class AsyncReplicationTail(TailBase, AsyncOutbox):
    """`ReplicationTail` for asyncio."""

    async def drain(self, timeout: Duration | None = None) -> DrainResult:
        """Deliver what was committed before this call, and what is due in the table. Not started, it is started for
        that."""
        limit = None if timeout is None else seconds_of(timeout, name="timeout")
        if self.is_started:
            return await self._tail().drain(limit)
        async with self:
            return await self._tail().drain(limit)

    async def lag(self) -> Lag:
        """How far the slot is behind the database."""
        return await self._tail().lag()

    async def drop_slot(self) -> int:
        """Take slot, publication and trigger away. What was not read is in the table then, for any outbox; how many
        events that are."""
        return await self._drop_slot()

    async def recover(self, *, since: datetime | None = None) -> int:
        """Begin anew after the slot was lost. What was written since then is delivered from the table, be it once more;
        by default since ten minutes before the last event that is known to be delivered. How many events that are."""
        return await self._recover(since)
