"""The poller of either colour: claims what is due, and hands it to a dispatcher or to a handler of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from inspect import isawaitable, iscoroutine
from typing import Any, Final, TypedDict, Unpack

from aftercommit.assembly import Assembly, name_of, unique_owner
from aftercommit.components.desk import Desk, Part, config_of, desk_of
from aftercommit.components.dispatching import DispatcherPollerHandler, Dispatching, Line
from aftercommit.config import OutboxConfig
from aftercommit.delivery.leases import holding_of
from aftercommit.delivery.outcomes import note_of, noted
from aftercommit.delivery.wakeups import WakeupListener
from aftercommit.errors import InvalidOption
from aftercommit.events.claims import Claimed
from aftercommit.events.durations import Duration, duration
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.log import Log
from aftercommit.events.outcome import DONE, Dead, FailureNote, Outcome, Retry
from aftercommit.events.payloads import PayloadTypes
from aftercommit.events.redact import error_text, text_of
from aftercommit.handlers.routing import Router
from aftercommit.handlers.set import Roster
from aftercommit.hooks import MetricsExporter, OutboxPollerHandler
from aftercommit.meter import Meter
from aftercommit.polling.due import LookByTime
from aftercommit.polling.poller import OutboxPoller as Room
from aftercommit.polling.poller import Taker
from aftercommit.ports import EventStore, Runtime
from aftercommit.service import Service

log = Log("aftercommit.poller")

#: Nobody renews the lease of an event that a handler of the user's own has taken.
UNRENEWED: Final = timedelta(minutes=5)


class PollerOptions(TypedDict, total=False):
    """What a poller takes by name, as the outbox does. `lock_timeout` is five minutes for a handler of your own; what a
    dispatcher takes has that one's."""

    poll_interval: Duration
    max_poll_interval: Duration | None
    batch_size: int
    skip_recent: Duration
    lock_timeout: Duration
    metrics: MetricsExporter
    wakeups: bool


class Polling(Part):
    """What both colours of the poller share."""

    def __init__(
        self,
        store: EventStore,
        handler: Dispatching | OutboxPollerHandler | Callable[[EventEnvelope, int], bool],
        *,
        owner_id: str | None = None,
        **options: Unpack[PollerOptions],
    ) -> None:
        """`owner_id` is how the claims of this poller begin to be called; each start adds what makes it unique."""
        super().__init__(store)
        fed = handler.dispatcher if isinstance(handler, DispatcherPollerHandler) else handler
        self._dispatcher = fed if isinstance(fed, Dispatching) else None
        self._polling: Rounds | None = None
        self._handler: OutboxPollerHandler | None = None
        if self._dispatcher is None:
            self._handler = _checked(handler)
            self.config = config_of(options, PollerOptions, owner_id=owner_id, lock_timeout=UNRENEWED)
            return
        if self._dispatcher.store is not store:
            raise InvalidOption("the dispatcher has another store than this poller", fix="give both the same store")
        its = self._dispatcher.config
        self.config = config_of(
            options,
            PollerOptions,
            owner_id=owner_id,
            lock_timeout=its.lock_timeout,
            cold_queue_capacity=its.cold_queue_capacity,
        )

    def mark_done(self, event_id: str) -> bool:
        """An event that a handler of your own has taken is done. False when its lease is over, or never was here, and
        after close(). From any thread; written with others soon after."""
        return self._settle(event_id, DONE)

    def mark_retry(self, event_id: str, delay: Duration, error: str | BaseException) -> bool:
        """It has failed, which counts, and is due again after `delay`."""
        return self._settle(event_id, Retry(duration(delay, name="delay"), _text(error)), error)

    def mark_dead(self, event_id: str, error: str | BaseException) -> bool:
        """It has failed for good."""
        return self._settle(event_id, Dead(_text(error)), error)

    def _settle(self, event_id: str, outcome: Outcome, error: str | BaseException | None = None) -> bool:
        polling = self._polling
        claimed = None if polling is None else desk_of(self._store).take(event_id)
        if polling is None or claimed is None or polling.assembly.runtime.clock() >= claimed.lease.deadline:
            return False
        if error is not None:
            outcome = noted(outcome, _note(error, claimed.attempts + 1))
        polling.assembly.settler.add(holding_of(claimed), outcome)
        return True

    def _rounds(self) -> Rounds:
        """What looks into the table, between start() and close()."""
        current, line = self._polling, None if self._dispatcher is None else self._dispatcher.line()
        if self._dispatcher is not None and line is None:
            raise InvalidOption("the dispatcher of this poller is closed", fix="make both anew")
        if current is not None and not current.is_over(line):
            return current
        if line is None:
            made = Rounds.alone(self._runtime(), self._store, self._handler, self.config)
        else:
            made = Rounds.feeding(line, self._store, self.config)
        self._polling = made
        desk_of(self._store).join(self)
        return made

    async def _start(self) -> None:
        await self._store.open()
        self._rounds().start()

    async def _poll(self) -> int:
        await self._store.open()
        return await self._rounds().poll()

    async def _close(self) -> None:
        polling, self._polling = self._polling, None
        if polling is None:
            return
        if polling.assembly.runtime.is_here():
            await polling.assembly.runtime.shielded(polling.stop())
        await self._leave()

    def _after_fork(self) -> None:
        super()._after_fork()
        self._polling = None


class Rounds:
    """The poller's room and those around it: a dispatcher's, or of its own."""

    def __init__(self, assembly: Assembly, store: EventStore, taker: Taker, config: OutboxConfig) -> None:
        self.assembly = assembly
        self._drain_timeout = config.drain_timeout
        runtime, agenda, settler = assembly.runtime, assembly.agenda, assembly.settler
        owner = assembly.owner if config.owner_id is None else unique_owner(config.owner_id)
        meter = assembly.meter
        if config.metrics is not MetricsExporter.NOOP:
            meter = Meter(runtime, config.metrics, name_of(store, config))
        wakeups = store.wakeups if config.wakeups else None
        self._listener: WakeupListener | None = None
        if wakeups is not None:
            ownership = assembly.ownership
            self._listener = WakeupListener(runtime, wakeups, assembly.owner, meter, agenda, ownership, None)
        look = LookByTime(runtime, store, config, owner=owner)
        is_woken = self._listener is not None
        self.room = Room(runtime, look, taker, assembly.delivery, agenda, settler, meter, config, is_woken=is_woken)
        self._line: Line | None = None

    @classmethod
    def feeding(cls, line: Line, store: EventStore, config: OutboxConfig) -> Rounds:
        if line.lookers:
            raise InvalidOption("the dispatcher has a poller already", fix="close() that one first")
        made = cls(line, store, line.dispatcher, config)
        made._line, line.lookers = line, made._services()
        return made

    @classmethod
    def alone(cls, runtime: Runtime, store: EventStore, handler: Any, config: OutboxConfig) -> Rounds:
        assembly = Assembly(runtime, store, Router(_Anybody(), Roster(), PayloadTypes()), config)
        return cls(assembly, store, Handing(handler, desk_of(store), runtime), config)

    def is_over(self, line: Line | None) -> bool:
        """Its loop has ended, or its dispatcher runs on another line by now."""
        return self.assembly.runtime.is_gone() or self._line is not line

    def _services(self) -> list[Service]:
        return [self.room] if self._listener is None else [self.room, self._listener]

    def start(self) -> None:
        if self._line is None:
            self.assembly.settler.start()
        for service in self._services():
            service.start()

    async def poll(self) -> int:
        if self.room.is_running:
            return await self.room.next_cycle(None) or 0
        self.room.look_everywhere()
        count = await self.room.cycle()
        if self._line is None:
            await self.assembly.settler.flush()
        return count or 0

    async def stop(self) -> None:
        if self._line is not None:
            if self.room in self._line.lookers:  # else the dispatcher has stopped it
                await self._line.stop_looking()
            return
        for service in self._services():
            await service.stop()
        await self.assembly.settler.finish(self._drain_timeout.total_seconds())
        await self.assembly.runtime.close()


class Handing:
    """Hands claimed events to a handler of the user's own. Their leases stay on the desk, for whoever goes on with the
    event: a dispatcher, or a mark."""

    def __init__(self, handler: OutboxPollerHandler, desk: Desk, runtime: Runtime) -> None:
        self._handler, self._desk, self._runtime = handler, desk, runtime

    def room(self) -> int:
        return self._desk.room(self._runtime.clock()) if self._handler.has_capacity() else 0

    def handle(self, claimed: Claimed, *followers: Claimed) -> bool:
        """Taken when the handler says so, or when somebody has gone on with it in any case."""
        self._desk.hand_out(claimed)
        try:
            is_taken = _plain(self._handler.handle(claimed.event, claimed.attempts))
        except BaseException as error:
            if self._desk.take_back(claimed):
                raise
            log.error(
                "the handler of the poller failed after it had passed on %r: %s", claimed.event, error_text(error)
            )
            return True
        return is_taken or not self._desk.take_back(claimed)


def _plain(answer: object) -> bool:
    if isawaitable(answer):
        if iscoroutine(answer):
            answer.close()
        raise InvalidOption("handle() of the poller's handler is async, so nothing of it has run", fix="plain def")
    return bool(answer)


class _Anybody:
    """A poller with a handler of its own needs no listener, and passes everything on."""

    def listener_for(self, aggregate_type: str, event_type: str) -> None:
        return None


class _Function(OutboxPollerHandler):
    """A handler that is one function."""

    def __init__(self, function: Callable[[EventEnvelope, int], bool]) -> None:
        self._function = function

    def handle(self, event: EventEnvelope, attempts: int) -> bool:
        return self._function(event, attempts)


def _checked(handler: Any) -> OutboxPollerHandler:
    if hasattr(handler, "handle"):
        if not hasattr(handler, "has_capacity"):
            return _Function(handler.handle)
        return handler  # type: ignore[no-any-return]
    if not callable(handler):
        raise InvalidOption(
            f"{handler!r} takes no events",
            fix="pass a dispatcher, an OutboxPollerHandler, or a function (event, attempts)",
        )
    return _Function(handler)


def _note(error: str | BaseException, attempt: int) -> FailureNote:
    """What is kept of it; whoever took the event is no handler that is known by an id."""
    if isinstance(error, BaseException):
        return note_of(error, attempt=attempt)
    return FailureNote(attempt, "", "", _text(error))


def _text(error: str | BaseException) -> str:
    return error_text(error) if isinstance(error, BaseException) else text_of(error)
