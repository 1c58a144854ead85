"""The rooms of a tail: those of an outbox that looks into its table for what the log leaves to it, and over them who
reads the log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, cast

from aftercommit.config import OutboxConfig
from aftercommit.delivery.agenda import Agenda
from aftercommit.engine import Engine
from aftercommit.errors import InvalidOption
from aftercommit.handlers.routing import Router
from aftercommit.polling.manual import DrainResult
from aftercommit.ports import EventStore, Replication, Runtime
from aftercommit.service import ENDS_WITHIN, Service
from aftercommit.tail.captured import CapturedStore
from aftercommit.tail.giving import Giving
from aftercommit.tail.news import NewsOfCommits
from aftercommit.tail.reader import TailReader

#: Seconds between two looks whether the log has been read to a certain place.
_LOOKS: Final = 0.02

#: A reader that has failed so often will not be through soon.
_FAILS: Final = 3


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a tail is behind the database."""

    #: Of the log, between what is delivered and what is written; of other tables, too.
    bytes: int
    #: Since the commit of the first event that was read and is not delivered. None while this process does not read.
    seconds: float | None
    #: Events in the memory of this process.
    waiting: int
    #: Somebody reads the slot: this process or another.
    is_read: bool


class TailEngine(Engine):
    """Starts the reader last, and ends it first."""

    def __init__(
        self, runtime: Runtime, store: EventStore, router: Router, config: OutboxConfig, *, interval: timedelta
    ) -> None:
        if store.replication is None:
            raise InvalidOption(f"{store!r} has no slot to read", fix="use PostgreSQL")
        self._replication: Replication = store.replication
        self._captured = CapturedStore(store, self._replication, self._settled)
        self._interval = interval
        self._news: NewsOfCommits | None = None
        super().__init__(runtime, cast("EventStore", self._captured), router, config)
        giving = Giving(
            runtime,
            self._replication,
            self._captured,
            self.dispatcher,
            self.agenda,
            self.poller,
            router,
            config,
            owner=self.owner,
        )
        self.reader = TailReader(
            runtime,
            self._replication,
            self._captured,
            giving,
            router,
            self.held,
            self.agenda,
            owner=self.owner,
            interval=interval,
            lock_timeout=config.lock_timeout,
        )
        self.reader.troubles = self.poller.troubles
        self._listens().call = self.reader.call

    def _settled(self) -> None:
        self.reader.settled()

    def _listens(self) -> NewsOfCommits:
        if self._news is None:
            self._news = NewsOfCommits(self.runtime, self.held, interval=self._interval, horizon=self._interval)
        return self._news

    def _told_of_commits(self) -> Agenda:
        return self._listens()

    async def start(self) -> None:
        await self._store.open()
        if (trouble := self._replication.trouble(await self._replication.state())) is not None:
            raise trouble
        await super().start()
        if self.is_started:
            self.reader.start()

    def _services(self) -> list[Service]:
        return [*super()._services(), self.reader] if hasattr(self, "reader") else super()._services()

    async def stop_delivering(self, drain_timeout: timedelta) -> None:
        was_started = self.reader.was_started
        has_ended = await self.reader.stop(ENDS_WITHIN)
        self._captured.is_closing = True
        await super().stop_delivering(drain_timeout)
        if was_started and has_ended:
            await self.reader.finish()

    # ------------------------------------------------------------ by hand

    async def drain(self, timeout: float | None) -> DrainResult:
        """Until everything is through that was committed before this call."""
        target = (await self._replication.state()).end
        until = None if timeout is None else self.runtime.clock() + timeout
        before, failures = self.meter.counts(), self.reader.failures_in_a_row
        while self.router and not self.reader.has_read(target):
            is_late = until is not None and self.runtime.clock() >= until
            if is_late or self.reader.failures_in_a_row >= max(_FAILS, failures + 1):
                break
            self.reader.call()
            await self.runtime.monitor().wait_for(lambda: False, _LOOKS)
        rest = None if until is None else max(0.0, until - self.runtime.clock())
        result = await self.manual.drain(rest, is_started=True)
        counts = self.meter.counts()

        def since(name: str) -> int:
            return counts.get(name, 0) - before.get(name, 0)

        return DrainResult(
            delivered=since("dispatch_success"),
            retried=since("dispatch_failure"),
            deferred=since("dispatch_deferred"),
            dead=since("dispatch_dead"),
            is_complete=result.is_complete and (not self.router or self.reader.has_read(target)),
        )

    async def lag(self) -> Lag:
        state, progress = await self._replication.state(), self.reader.progress
        if not self.reader.is_reading or progress is None:
            return Lag(state.behind, None, 0, state.is_read)
        oldest = progress.oldest()
        seconds = 0.0 if oldest is None else max(0.0, (state.now - oldest).total_seconds())
        return Lag(state.behind, seconds, len(progress), is_read=True)
