"""The rows of the table, one by one and in numbers. Nothing of it is asked while events are written or delivered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Unpack

from aftercommit.errors import InvalidOption
from aftercommit.events.claims import ALL_PARTITIONS, PARTITION_COUNT
from aftercommit.events.envelope import EventStatus
from aftercommit.events.order import Cluster, ClusterStats, PartitionStats
from aftercommit.events.records import EventRecord, Failure, Summary
from aftercommit.polling.filters import Filters, at_least_one, filter_of, place_of
from aftercommit.ports import Records

#: Done rows are counted no further than this unless somebody asks for it: an index of a million rows is read in a
#: fraction of a second, one of a hundred million is not.
AT_MOST: Final = 1_000_000

#: A summary looks at so many unfinished rows, and at so many dead ones, unless somebody asks for more.
SUMMED: Final = 100_000

#: The shortest part of an id that stands for the whole. Ids that the outbox makes begin with the time, to 2**25 ms.
SHORTEST_PREFIX: Final = 6

#: More rows of one event than there are handlers.
_FOUND: Final = 1000


class OutboxRecords:
    """`outbox.records`: the rows, by id and by status; and how many there are, by status, type and partition."""

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

    # ------------------------------------------------------------ one by one

    async def find(self, event_id: str) -> list[EventRecord]:
        """Every row of an event, whatever its status: one, or one for each handler, in order of position.

        The beginning of an id will do, six characters or more, if no other id begins like that.
        """
        if not event_id:
            raise InvalidOption("event_id is empty", fix="pass the id, or its beginning")
        await self._open_store()
        found = await self._records.find(event_id, is_prefix=False, limit=_FOUND)
        if found or len(event_id) < SHORTEST_PREFIX:
            return found
        found = await self._records.find(event_id, is_prefix=True, limit=_FOUND)
        ids = sorted({each.event_id for each in found})
        if len(ids) > 1:
            shown = ", ".join(ids[:3]) + (" …" if len(ids) > 3 else "")
            raise InvalidOption(f"several events begin with {event_id!r}: {shown}", fix="pass more of the id")
        return found

    async def failures(self, event_id: str, handler_id: str | None = None) -> list[Failure]:
        """Why deliveries of an event failed: the last ten failures of each of its rows, or of one, oldest first. They
        are kept over replays, and go with the row."""
        await self._open_store()
        return await self._records.failures(event_id, handler_id)

    async def query(
        self,
        *,
        status: EventStatus | None = None,
        limit: int = 100,
        after: EventRecord | None = None,
        **filters: Unpack[Filters],
    ) -> list[EventRecord]:
        """Rows of a status, or of any; the next page with the last one of this page as `after`.

        Done ones and those of any status come newest first, dead ones and unfinished ones as in `outbox.dead` and
        `outbox.pending`.
        """
        if status is not None and not isinstance(status, EventStatus):
            raise InvalidOption(f"status is {status!r}", fix="pass an EventStatus")
        where, place, most = filter_of(status, **filters), place_of(after), at_least_one(limit, "limit")
        await self._open_store()
        match status:
            case EventStatus.DEAD:
                return await self._records.query_dead(where, most, place)
            case EventStatus.NEW | EventStatus.RETRY:
                return await self._records.query_pending(where, most, place)
            case _:
                return await self._records.query(where, most, place)

    # ------------------------------------------------------------ in numbers

    async def summary(self, *, at_most: int = SUMMED) -> Summary:
        """Unfinished and dead rows by event type and handler, and how long the oldest one has been due. Looks at no
        more than `at_most` unfinished rows, those that are due first, and as many dead ones."""
        limit = at_least_one(at_most, "at_most")
        await self._open_store()
        return await self._records.summary(limit)

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
