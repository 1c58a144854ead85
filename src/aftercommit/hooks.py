"""What users may fill in: listeners and their registry, hooks around writing and delivering, metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import ClassVar, Protocol, runtime_checkable

import msgspec

from aftercommit.events.claims import Claimed, Settlement
from aftercommit.events.durations import Duration
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.measures import Delivered, TableState
from aftercommit.events.queued import QueuedEvent


@runtime_checkable
class EventListener(Protocol):
    """A listener that is an object. Derive from it, or have its method: either way it is taken where a function is."""

    @abstractmethod
    def on_event(self, event: EventEnvelope) -> object:
        """Called with each event of its route; may be `async def`. Raising is a failed attempt."""


Listener = Callable[[EventEnvelope], object] | Callable[[EventEnvelope], Awaitable[object]] | EventListener


@runtime_checkable
class ListenerRegistry(Protocol):
    """Who receives an event: one listener, several in order, or None."""

    def listener_for(self, aggregate_type: str, event_type: str) -> Listener | Sequence[Listener] | None: ...


@runtime_checkable
class InFlightTracker(Protocol):
    """Keeps an event from being handled twice at the same time."""

    def try_acquire(self, event_id: str) -> bool: ...

    def release(self, event_id: str) -> None: ...


class OutboxPollerHandler(ABC):
    """Takes what a poller that is wired by hand has found. Plain `def` in both colours; it should not take long."""

    @abstractmethod
    def handle(self, event: EventEnvelope, attempts: int) -> bool:
        """Take the event, which has failed so often. False ends the cycle, and the event is free for anybody."""

    def has_capacity(self) -> bool:
        """Asked before each look into the table; there is none while it says False."""
        return True


class WriterHook:
    """Called around a write, in the caller's thread or task. Override what you need; all of it is plain `def`."""

    def before_write(self, events: list[EventEnvelope]) -> list[EventEnvelope] | None:
        """Change or drop events; None or [] suppresses the write, raising aborts it."""
        return events

    def after_write(self, events: list[EventEnvelope]) -> None:
        """The rows are inserted, not yet committed. Errors are logged."""

    def write_failed(self, events: list[EventEnvelope], error: BaseException) -> None:
        """The INSERT has failed or was cancelled, and the caller gets the error. Errors of the hook are logged."""

    def after_commit(self, events: list[EventEnvelope]) -> None:
        """The transaction is committed. Errors are logged. Never called where commits cannot be observed."""

    def after_rollback(self, events: list[EventEnvelope]) -> None:
        """The transaction is rolled back, or its outcome is unknown. Errors are logged."""


class AfterCommitHook(WriterHook):
    """A hook that only looks at committed events: `AfterCommitHook(print)`, or a class with an `on_commit`."""

    #: Does nothing, and costs nothing.
    NOOP: ClassVar[AfterCommitHook]

    def __init__(self, on_commit: Callable[[EventEnvelope], object] | None = None) -> None:
        if on_commit is not None:
            self.on_commit = on_commit  # type: ignore[method-assign, assignment]

    def on_commit(self, event: EventEnvelope) -> object:
        """The transaction that the event was written in is committed."""

    def after_commit(self, events: list[EventEnvelope]) -> None:
        failures = []
        for event in events:
            try:
                self.on_commit(event)
            except Exception as error:  # which keeps no other event from its hook
                failures.append(error)
        if failures:
            raise failures[0]


AfterCommitHook.NOOP = AfterCommitHook()


def at_work(hook: WriterHook | None) -> WriterHook | None:
    """The hook; None for one that does nothing."""
    return None if hook is AfterCommitHook.NOOP or type(hook) is WriterHook else hook


class EventInterceptor:
    """Called around every handler; either method may be `async def`. One whose last parameter is called `queued` gets
    the QueuedEvent there: `def before_dispatch(self, event, queued=None)`."""

    def before_dispatch(self, event: EventEnvelope) -> object:
        """Runs in order of registration. Raising counts as the handler's failure."""

    def after_dispatch(self, event: EventEnvelope, error: BaseException | None) -> object:
        """Runs in reverse order, for those whose `before` has run. Errors are logged."""

    @staticmethod
    def before(
        hook: Callable[[EventEnvelope], object] | Callable[[EventEnvelope, QueuedEvent], object],
    ) -> EventInterceptor:
        """An interceptor of one function that runs before the handler."""
        interceptor = EventInterceptor()
        interceptor.before_dispatch = hook  # type: ignore[method-assign, assignment]
        return interceptor

    @staticmethod
    def after(
        hook: Callable[[EventEnvelope, BaseException | None], object]
        | Callable[[EventEnvelope, BaseException | None, QueuedEvent], object],
    ) -> EventInterceptor:
        """An interceptor of one function that runs after the handler."""
        interceptor = EventInterceptor()
        interceptor.after_dispatch = hook  # type: ignore[method-assign, assignment]
        return interceptor


class MetricsExporter:
    """Counters and gauges. Override what you export; the default does nothing. Called from any thread."""

    #: Exports nothing.
    NOOP: ClassVar[MetricsExporter]

    def increment_hot_enqueued(self) -> None: ...

    def increment_hot_dropped(self) -> None: ...

    def increment_hot_skipped_delayed(self) -> None: ...

    def increment_cold_enqueued(self) -> None: ...

    def increment_dispatch_success(self) -> None: ...

    def increment_dispatch_failure(self) -> None: ...

    def increment_dispatch_dead(self) -> None: ...

    def increment_dispatch_deferred(self) -> None: ...

    def increment_lease_lost(self) -> None: ...

    def increment_instances_lost(self) -> None: ...

    def increment_write_duplicates(self) -> None: ...

    def record_queue_depths(self, hot_depth: int, cold_depth: int) -> None: ...

    def record_oldest_lag_ms(self, lag_ms: int) -> None: ...

    def record_dispatch_latency_ms(self, latency_ms: float) -> None: ...

    def record_listener_duration_ms(self, duration_ms: float) -> None: ...

    # ------------------------------------------------------------ with more to tell apart

    def for_store(self, store: str) -> MetricsExporter:
        """The exporter for one table, which `store` names, without a login. Asked at each start. By default all tables
        share one."""
        return self

    def written(self, event_type: str, count: int) -> None:
        """So many events were committed; where a commit cannot be observed, written."""

    def delivered(self, delivered: Delivered) -> None:
        """An event has been at a handler; whether its outcome reaches the table is what the counters above tell."""

    def lease_lost(self, event_type: str, handler_id: str) -> None:
        """An outcome came too late: the row had been taken over. `*` stands for a row that serves all handlers."""

    def heartbeat(self) -> None:
        """The loops of this process turn and its store answers; told every 15 seconds."""

    def collected(self, table: TableState | None) -> None:
        """The table as a whole, every 15 seconds, in one process of those that export. None: another process has it
        from now on, or nobody; what was told before is no longer true."""

    def closed(self) -> None:
        """This process watches the table no more: there will be no heartbeat."""


MetricsExporter.NOOP = MetricsExporter()

#: Ends a span, with the error that ended the work.
SpanEnd = Callable[[BaseException | None], object]


class Tracing(ABC):
    """Begins a span for each piece of work, and says how it is ended; `OtelTracing` is one. Plain `def`, called in the
    thread or task that does the work; what it raises is logged and ignored."""

    @abstractmethod
    def writing(self, events: list[EventEnvelope]) -> tuple[list[EventEnvelope], SpanEnd]:
        """Before the INSERT: the same events in their order, with what their deliveries are to know in the headers."""

    @abstractmethod
    def delivering(self, claimed: Claimed, handler_id: str) -> SpanEnd:
        """Before an event's interceptors and handler, in their contextvars context."""

    @abstractmethod
    def settling(self, settlements: Sequence[Settlement]) -> SpanEnd:
        """Before outcomes are written, several together."""


class PollResult(msgspec.Struct, frozen=True):
    """What a poll gave: how many rows it claimed, and after which time the outbox itself would poll again."""

    count: int
    interval: timedelta


#: The time until the next poll: `lambda poll: "1m" if is_night() else poll.interval`.
PollTrigger = Callable[[PollResult], Duration]
