"""What a database lends to the suite: a store, a way to run it, and a look at its rows behind its back."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest

from aftercommit.events.envelope import EventEnvelope, EventStatus
from aftercommit.events.outcome import DONE, Dead, Outcome, Retry
from aftercommit.ports import EventStore
from aftercommit.testing.kit import DAY, insert, settle, take


class StoreHooks(ABC):
    """One empty database per test. All hooks speak of that one, and none of them speaks SQL: what a row is made of is
    said in `rows` and `change` by the names of the columns of `outbox_event`, wherever a store keeps them."""

    #: Whether claims and renewals pass over rows that another transaction has locked, instead of waiting for it.
    skips_locked = True

    @abstractmethod
    def make_store(self, **options: Any) -> EventStore:
        """A new store over the test's database, not opened; options are those of the store. It may create tables."""

    @abstractmethod
    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a scenario to its end in the colour of the stores."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """The committed rows of `outbox_event` in order of position, by column; times in microseconds since the
        epoch, headers and finished handlers as JSON."""

    @abstractmethod
    def change(self, event_id: str | None = None, **columns: Any) -> None:
        """Set columns of one event's rows, or of all rows, and commit; times as in `rows`. Values may be what the store
        itself would never write: a row can be damaged."""

    @abstractmethod
    def now(self) -> int:
        """The database's clock, in microseconds since the epoch."""

    # ------------------------------------------------------------ where the database has them

    def make_store_in_zone(self, zone: str) -> EventStore:
        """A new store whose sessions are in that time zone. The zone of this process is set in any case."""
        return self.make_store()

    def locked(self, store: EventStore, *event_ids: str) -> AbstractAsyncContextManager[object]:
        """An open transaction of somebody else's that has changed these rows, and is rolled back in the end."""
        raise NotImplementedError("bind locked, or set skips_locked = False")

    def held_open(self, store: EventStore, meanwhile: Callable[[], Awaitable[None]]) -> AbstractContextManager[object]:
        """What the store changes in this block is committed only when `meanwhile` has come to its end."""
        raise NotImplementedError("bind held_open, or set skips_locked = False")

    # ------------------------------------------------------------ for the scenarios

    async def opened(self, store: EventStore | None = None, **options: Any) -> EventStore:
        """A store that is open; closed when the scenario ends."""
        store = self.make_store(**options) if store is None else store
        self.__dict__.setdefault("stores", []).append(store)
        await store.open()
        return store

    def row(self, event_id: str | None = None) -> dict[str, Any]:
        """The one row there is, or the one of this event."""
        (found,) = [row for row in self.rows() if event_id in (None, row["event_id"])]
        return found

    def expire(self) -> None:
        """All leases have run out."""
        self.change(lease_until=self.now() - 1)

    def fall_due(self) -> None:
        """Whatever waits for its time waits no more."""
        self.change(available_at=self.now() - 1)

    async def ended(self, store: EventStore, *given: EventEnvelope, status: EventStatus, age: int = 0) -> None:
        """Rows that ended, or failed, or were just written, so many microseconds ago."""
        await insert(store, *given)
        if status is not EventStatus.NEW:
            ends: dict[EventStatus, Outcome] = {EventStatus.DONE: DONE, EventStatus.DEAD: Dead("no use")}
            outcome = ends.get(status, Retry(timedelta(days=1), "again"))
            for claimed in await take(store, limit=1000):
                assert await settle(store, claimed.lease, outcome)
        for each in given if age else ():
            then = self.now() - age
            is_over = status in (EventStatus.DONE, EventStatus.DEAD)
            self.change(
                each.event_id, created_at=then, available_at=self.now() + DAY, **{"done_at": then} if is_over else {}
            )

    async def dead(self, store: EventStore, *given: EventEnvelope) -> None:
        await self.ended(store, *given, status=EventStatus.DEAD)

    def needs_skipping(self) -> None:
        if not self.skips_locked:
            pytest.skip("a claim waits for the transaction of somebody else here")


def played(scenario: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test of an `async def` method: run it in the colour at hand, and close what it opened."""

    @functools.wraps(scenario)
    def test(self: StoreHooks, *arguments: Any, **fixtures: Any) -> None:
        async def whole() -> None:
            try:
                await scenario(self, *arguments, **fixtures)
            finally:
                for store in self.__dict__.get("stores", []):
                    await store.close()

        self.run(whole())

    return test
