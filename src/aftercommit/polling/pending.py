"""What is not delivered yet, as people look at it and take it back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Unpack

from aftercommit.errors import InvalidOption
from aftercommit.events.envelope import EventStatus
from aftercommit.events.records import EventRecord
from aftercommit.polling.filters import Filters, at_least_one, filter_of, place_of
from aftercommit.ports import Records


class PendingEvents:
    """`outbox.pending`: unfinished events, NEW and RETRY, those that are being delivered among them."""

    def __init__(self, records: Records, open_store: Callable[[], Awaitable[None]]) -> None:
        self._records = records
        self._open_store = open_store

    async def query(
        self,
        *,
        status: EventStatus | None = None,
        limit: int = 100,
        after: EventRecord | None = None,
        **filters: Unpack[Filters],
    ) -> list[EventRecord]:
        """Unfinished events as they fall due; the next page with the last one of this page as `after`."""
        where = filter_of(_unfinished(status), **filters)
        place, most = place_of(after), at_least_one(limit, "limit")
        await self._open_store()
        return await self._records.query_pending(where, most, place)

    async def count(self, *, status: EventStatus | None = None, **filters: Unpack[Filters]) -> int:
        """How many."""
        where = filter_of(_unfinished(status), **filters)
        await self._open_store()
        return await self._records.count_pending(where)


def _unfinished(status: EventStatus | None) -> EventStatus | None:
    if status not in (None, EventStatus.NEW, EventStatus.RETRY):
        raise InvalidOption(
            f"status is {status!r}, and pending events are NEW or RETRY", fix="use outbox.records.query"
        )
    return status
