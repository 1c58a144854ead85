"""The table of events as the façade lets people look at it, mend it and clean it."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from aftercommit.events.claims import Backlog
from aftercommit.events.order import BlockedKey
from aftercommit.events.records import EventFilter, EventRecord, Failure, Summary


class Records(Protocol):
    """The table of events, as people look at it and clean it.

    Queries go by pages: `after` is the last record of the page before, and what a page reads does not grow with the
    rows before it.
    """

    async def query_dead(self, where: EventFilter, limit: int, after: EventRecord | None = None) -> list[EventRecord]:
        """Dead rows, in order of position."""

    async def count_dead(self, where: EventFilter) -> int: ...

    async def query_pending(
        self, where: EventFilter, limit: int, after: EventRecord | None = None
    ) -> list[EventRecord]:
        """Unfinished rows as they fall due, those that are held among them, or behind all others."""

    async def count_pending(self, where: EventFilter) -> int: ...

    async def query(self, where: EventFilter, limit: int, after: EventRecord | None = None) -> list[EventRecord]:
        """Rows of the status that is asked for, or of any, the newest first: by their ids, or by their positions."""

    async def find(self, event_id: str, *, is_prefix: bool, limit: int) -> list[EventRecord]:
        """Every row of an event, or of events whose ids begin with that, in order of position."""

    async def failures(self, event_id: str, handler_id: str | None) -> list[Failure]:
        """The last failures of an event's rows, ten of each, oldest first. `settle` writes them with the outcome, a
        replay keeps them, and they go with their row."""

    async def summary(self, limit: int) -> Summary:
        """Unfinished and dead rows by event type and handler; of each of the two, so many are looked at."""

    async def replay(self, event_id: str, handler_id: str | None) -> int:
        """Make dead rows NEW again: attempts and abandoned at 0, due now, under a new epoch."""

    async def replay_done(self, event_id: str, handler_id: str | None) -> int:
        """The same with rows that are done, and are still there."""

    async def replay_after(self, where: EventFilter, position: int, limit: int) -> tuple[int, int | None]:
        """Replay the next dead rows behind a position; how many, and the last position (None: no more)."""

    async def discard(self, event_id: str, handler_id: str | None, reason: str) -> int:
        """End dead rows as DONE without delivering them."""

    async def cancel(self, event_id: str, handler_id: str | None) -> int:
        """End unfinished rows that nobody holds as DONE, under a new epoch; deleted, where done rows are. A row whose
        lease stands is left alone."""

    async def purge(self, older_than: timedelta, *, dead: bool, limit: int) -> int:
        """Delete terminal rows that ended longer ago than that."""

    async def purge_aged(self, older_than: timedelta, *, limit: int) -> int:
        """Delete the oldest rows whatever their status, as long as they are older than that."""

    async def backlog(self) -> Backlog: ...

    async def count_done(self, limit: int | None) -> int:
        """How many rows are done, counted no further than `limit`; None: all of them."""

    async def pending(self) -> dict[int, int]:
        """How many unfinished rows each partition has, for those that have any."""

    async def blocked(self, limit: int) -> list[BlockedKey]:
        """Keys that have a dead event, each with its first one, in order of position."""
