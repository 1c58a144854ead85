"""The rows of the table in numbers, for monitoring. Nothing of it is asked while events are written or delivered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aftercommit.errors import InvalidOption
from aftercommit.events.claims import ALL_PARTITIONS, PARTITION_COUNT
from aftercommit.events.envelope import EventStatus
from aftercommit.events.order import Cluster, ClusterStats, PartitionStats
from aftercommit.polling.upkeep import at_least_one
from aftercommit.ports import Records

#: Done rows are counted no further than this unless somebody asks for it: an index of a million rows is read in a
#: fraction of a second, one of a hundred million is not.
AT_MOST: Final = 1_000_000


class OutboxRecords:
    """`outbox.records`: how many rows there are, by status and by partition."""

    def __init__(
        self,
        records: Records,
        open_store: Callable[[], Awaitable[None]],
        cluster: Callable[[], Awaitable[Cluster]],
        *,
        is_shared: bool,
    ) -> None:
        """`is_shared`: each instance looks after its own partitions. Else each looks after all of them."""
        self._records = records
        self._open_store = open_store
        self._cluster = cluster
        self._is_shared = is_shared

    async def count_by_status(self, status: EventStatus, *, at_most: int | None = AT_MOST) -> int:
        """Rows with this status. Done ones are counted no further than `at_most`, which may take its time: every one
        of them is looked at. None: to the end."""
        if not isinstance(status, EventStatus):
            raise InvalidOption(f"status is {status!r}", fix="pass an EventStatus")
        if status is EventStatus.DONE:
            return await self._count_done(at_most)
        return (await self._unfinished())[status]

    async def counts(self, *, at_most: int | None = AT_MOST) -> dict[EventStatus, int]:
        """Rows by status; done ones as in `count_by_status`."""
        done = await self._count_done(at_most)
        return {**await self._unfinished(), EventStatus.DONE: done}

    async def partition_stats(self, *, mine: bool = False) -> PartitionStats:
        """How many unfinished events wait in each partition: in all of them, or in those that this instance looks
        after. Reads every unfinished row's entry in an index."""
        partitions = await self._mine() if mine else sorted(ALL_PARTITIONS)
        await self._open_store()
        pending = await self._records.pending()
        return PartitionStats({number: pending.get(number, 0) for number in partitions})

    async def cluster_stats(self) -> ClusterStats:
        """How the partitions are spread over the living instances. Only those of ordered outboxes join the fleet."""
        living = [member for member in (await self._cluster()).members if not member.is_stale]
        return ClusterStats(PARTITION_COUNT, {member.id: len(member.partitions) for member in living})

    async def _mine(self) -> list[int]:
        if not self._is_shared:
            return sorted(ALL_PARTITIONS)
        return [number for each in (await self._cluster()).members if each.is_me for number in each.partitions]

    async def _count_done(self, at_most: int | None) -> int:
        limit = None if at_most is None else at_least_one(at_most, "at_most")
        await self._open_store()
        return await self._records.count_done(limit)

    async def _unfinished(self) -> dict[EventStatus, int]:
        await self._open_store()
        backlog = await self._records.backlog()
        return {EventStatus.NEW: backlog.new, EventStatus.RETRY: backlog.retry, EventStatus.DEAD: backlog.dead}
