"""The dispatcher of either colour: lanes, workers, and the hot path that its commit hook opens to a writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, Unpack

from aftercommit.assembly import Assembly
from aftercommit.components.desk import Part, config_of, desk_of, needs
from aftercommit.config import OutboxConfig
from aftercommit.delivery.wakeups import Announcer
from aftercommit.delivery.worker import HotPathway
from aftercommit.errors import InvalidOption
from aftercommit.events.durations import Duration
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.log import Log
from aftercommit.events.payloads import PayloadTypes
from aftercommit.events.queued import QueuedEvent, Source
from aftercommit.events.retry import RetryPolicy
from aftercommit.handlers.routing import Router
from aftercommit.handlers.set import Roster
from aftercommit.hooks import (
    AfterCommitHook,
    EventInterceptor,
    InFlightTracker,
    ListenerRegistry,
    MetricsExporter,
    OutboxPollerHandler,
)
from aftercommit.ports import EventStore, Runtime
from aftercommit.runtime.threads import ThreadRuntime
from aftercommit.service import Countdown, Service

log = Log("aftercommit.dispatcher")


class DispatcherOptions(TypedDict, total=False):
    """What a dispatcher takes by name, as the outbox does; an event that no listener matches is DEAD at once, unless
    `unroutable_grace` leaves it to other processes for a while."""

    worker_count: int
    hot_queue_capacity: int
    cold_queue_capacity: int
    lease_ahead: bool
    max_attempts: int
    retry_policy: RetryPolicy
    drain_timeout: Duration
    lock_timeout: Duration
    max_abandoned: int
    unroutable_grace: Duration | None
    in_flight_tracker: InFlightTracker | None
    interceptors: Sequence[EventInterceptor]
    metrics: MetricsExporter
    wakeups: bool


class Line(Assembly):
    """What a dispatcher runs between its first event and close()."""

    def __init__(self, runtime: Runtime, store: EventStore, router: Router, config: OutboxConfig) -> None:
        super().__init__(runtime, store, router, config)
        wakeups = store.wakeups if config.wakeups else None
        self._announcer = None if wakeups is None else Announcer(runtime, wakeups, self.owner, self.meter)
        self.hot_path = HotPathway(
            self.dispatcher, self.agenda, router, self.meter, config, self._announcer, owner=self.owner
        )
        #: The poller that feeds it, and who wakes that one.
        self.lookers: list[Service] = []

    def start(self) -> None:
        self.start_delivering()
        if self._announcer is not None:
            self._announcer.start()
        self.hot_path.is_active = self.hot_path.is_open = True

    async def stop(self) -> None:
        """In the order of the walk; the keeper is last, so that no lease runs out meanwhile."""
        self.hot_path.is_active = self.hot_path.is_open = False
        await self.stop_looking()
        await self.stop_delivering(self._config.drain_timeout)
        time = Countdown(self.runtime)
        if self._announcer is not None:
            await self._announcer.stop(time.left())
        await self.keeper.stop(time.left())
        await self.runtime.close()

    @property
    def has_poller(self) -> bool:
        """Whether somebody looks into the table for it."""
        return any(each.is_running for each in self.lookers)

    async def stop_looking(self) -> None:
        time, lookers, self.lookers = Countdown(self.runtime), self.lookers, []
        for each in lookers:
            await each.stop(time.left())


class Dispatching(Part):
    """What both colours of the dispatcher share. Workers start with the first event; `enqueue_*` may be called from any
    thread and never block."""

    def __init__(self, store: EventStore, registry: ListenerRegistry, **options: Unpack[DispatcherOptions]) -> None:
        super().__init__(store)
        self.config = config_of(options, DispatcherOptions, unroutable_grace=0)
        needs(registry, "a listener registry", "listener_for", "pass a DefaultListenerRegistry()")
        self._registry = registry
        self._line: Line | None = None
        self._is_closed = False
        self._making = ThreadRuntime().lock()

    @property
    def store(self) -> EventStore:
        return self._store

    def enqueue_hot(self, event: QueuedEvent) -> bool:
        """False when the hot lane is full or closed; the event then waits in the table, as every event does."""
        return self._enqueue(event.envelope, Source.HOT)

    def enqueue_cold(self, event: QueuedEvent) -> bool:
        """False when the cold lane is full or closed."""
        return self._enqueue(event.envelope, Source.COLD)

    def has_cold_queue_capacity(self) -> bool:
        line = self.line()
        return line is not None and line.dispatcher.has_cold_queue_capacity()

    def _enqueue(self, event: EventEnvelope, lane: Source) -> bool:
        """**Nothing is delivered without a lease.** A poller's handler has one in its hands; what nobody here has
        leased is claimed by the poller that feeds this dispatcher, which is told to look for it at once."""
        line, desk = self.line(), desk_of(self._store)
        if line is None:
            return False
        claimed = desk.take(event.event_id)
        if claimed is None:
            return line.has_poller and _has_room(line, lane) and _looked_for(line, event)
        into = line.dispatcher.enqueue_hot if lane is Source.HOT else line.dispatcher.enqueue_cold
        is_taken = into(claimed)
        if not is_taken:
            desk.hand_out(claimed)
        return is_taken

    def line(self) -> Line | None:
        """What runs now, in this process; started when it is first needed, None after close()."""
        if self._line is not None and not self._line.runtime.is_gone():
            return self._line
        with self._making:
            if not self._is_closed and (self._line is None or self._line.runtime.is_gone()):
                router = Router(self._registry, Roster(), PayloadTypes())
                line = Line(self._runtime(), self._store, router, self.config)
                desk_of(self._store).join(self)
                line.start()
                self._line = line
                self._began()
            return self._line

    def _began(self) -> None:
        """Workers run from now on."""

    async def _close(self) -> None:
        with self._making:
            self._is_closed, line, self._line = True, self._line, None
        if line is None:
            return
        if line.runtime.is_here():
            await line.runtime.shielded(line.stop(), line.dispatcher.hurry)
        await self._leave()

    def _after_fork(self) -> None:
        super()._after_fork()
        self._line = None
        self._making = ThreadRuntime().lock()  # a thread of the parent may have held the other one


def _has_room(line: Line, lane: Source) -> bool:
    if lane is Source.COLD:
        return line.dispatcher.has_cold_queue_capacity()
    has_slot = line.lanes.reserve(1) == 1
    if has_slot:
        line.lanes.cancel(1)
    return has_slot


def _looked_for(line: Line, event: EventEnvelope) -> bool:
    line.agenda.expect([event.event_id])
    return True


class DispatcherCommitHook(AfterCommitHook):
    """Puts committed events into the hot lane of a dispatcher. A writer that has it lets rows be born leased to that
    dispatcher, with a slot in the lane for each; a full lane is counted, and leaves the rest to the poller."""

    def __init__(self, dispatcher: Dispatching) -> None:
        super().__init__()
        if not isinstance(dispatcher, Dispatching):
            raise InvalidOption(f"{dispatcher!r} is no dispatcher", fix="pass an OutboxDispatcher")
        self.dispatcher = dispatcher

    def on_commit(self, event: EventEnvelope) -> None:
        """For a writer of another kind."""
        line = self.dispatcher.line()
        if line is None:
            return
        if event.is_delayed:
            line.meter.count("hot_skipped_delayed")
        elif not self.dispatcher.enqueue_hot(QueuedEvent(event)):
            line.meter.count("hot_dropped")
            if line.meter.may_say("hot_dropped"):
                log.warning("the hot lane has no room for %r, which is left to the poller", event)


class DispatcherPollerHandler(OutboxPollerHandler):
    """Feeds a dispatcher's cold lane. `OutboxPoller(store, dispatcher)` means the same."""

    def __init__(self, dispatcher: Dispatching) -> None:
        self.dispatcher = dispatcher

    def handle(self, event: EventEnvelope, attempts: int) -> bool:
        return self.dispatcher.enqueue_cold(QueuedEvent(event, Source.COLD, attempts))

    def has_capacity(self) -> bool:
        return self.dispatcher.has_cold_queue_capacity()
