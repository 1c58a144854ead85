"""What people do with the rows of an outbox: look at them, replay, cancel and purge them. For both colours."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable
from datetime import timedelta
from typing import TYPE_CHECKING

from aftercommit.config import OutboxConfig
from aftercommit.errors import InvalidOption
from aftercommit.events.durations import Duration, duration
from aftercommit.events.order import Cluster
from aftercommit.handlers.routing import Router
from aftercommit.polling.diagnosis import Examination
from aftercommit.polling.pending import PendingEvents
from aftercommit.polling.records import OutboxRecords
from aftercommit.polling.upkeep import DeadEvents
from aftercommit.ports import EventStore

if TYPE_CHECKING:
    from aftercommit.engine import Engine


class Tended(ABC):
    """Rows that people look after. None of it is asked while events are written or delivered."""

    config: OutboxConfig
    _store: EventStore
    _engine: Engine | None

    _router: Router

    @abstractmethod
    def _current(self) -> Engine: ...

    def _examination(self) -> Examination:
        return Examination(self._store, self._router, self.config)

    def _dead(self) -> DeadEvents:
        async def pause(seconds: float) -> None:
            await self._current().runtime.monitor().wait_for(lambda: False, seconds)

        return DeadEvents(self._store.records, self._store.open, on_change=self._unblocked, pause=pause)

    def _unblocked(self) -> None:
        """Something may be delivered that could not be before."""
        if self._engine is not None:
            self._engine.unblocked()

    def _pending(self) -> PendingEvents:
        return PendingEvents(self._store.records, self._store.open)

    async def _cancel(self, event_id: str, handler_id: str | None) -> bool:
        await self._store.open()
        cancelled = await self._store.records.cancel(event_id, handler_id)
        if cancelled:
            self._unblocked()  # a key may have waited for it
        return cancelled > 0

    async def _replay_done(self, event_id: str, handler_id: str | None) -> bool:
        await self._store.open()
        replayed = await self._store.records.replay_done(event_id, handler_id)
        if replayed:
            self._unblocked()
        return replayed > 0

    def _records(self) -> OutboxRecords:
        def cluster() -> Awaitable[Cluster]:
            return self._current().cluster()

        is_shared = self.config.ordered and self._store.membership is not None
        return OutboxRecords(self._store.records, self._store.open, cluster, is_shared=is_shared)

    async def _purge(self, older_than: Duration | None, dead: bool | None) -> int:
        age: timedelta | None = self.config.purge_retention
        if older_than is not None:
            age = duration(older_than, name="older_than")
        if age is None:
            raise InvalidOption("purge() does not know how old is old", fix='purge("7d"), or set purge_retention')
        await self._store.open()
        return await self._current().purge.purge(age, dead=self.config.purge_dead if dead is None else dead)
