"""The first step of the chain: one call of a handler, with interceptors around it and the event's context in it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from inspect import signature
from typing import Any

import msgspec

from aftercommit.config import OutboxConfig
from aftercommit.delivery.limits import Limiter
from aftercommit.errors import HandlerTimeout
from aftercommit.events.claims import Claimed
from aftercommit.events.context import EventMetadata, FailureContext, carried, restore, split
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.log import Log
from aftercommit.events.outcome import NOTHING, Raised, Result, RetryAfter, answered_by, results_of
from aftercommit.events.payloads import PayloadTypes
from aftercommit.events.queued import QueuedEvent
from aftercommit.events.redact import error_text
from aftercommit.handlers.handler import Fallback
from aftercommit.handlers.routing import Route
from aftercommit.hooks import EventInterceptor, SpanEnd
from aftercommit.meter import Meter
from aftercommit.ports import Runtime
from aftercommit.spans import Spans

log = Log("aftercommit.delivery")


class Attempt:
    """Calls what users wrote. Never raises: whatever happens is a Result."""

    def __init__(self, runtime: Runtime, payloads: PayloadTypes, meter: Meter, config: OutboxConfig) -> None:
        self._runtime = runtime
        self._payloads = payloads
        self._meter = meter
        self._interceptors = tuple(map(Intercepting, config.interceptors))
        self._spans = None if config.tracing is None else Spans(config.tracing, meter)
        #: Nothing is to be done around the call itself.
        self._is_bare = not self._interceptors and not meter.exports and self._spans is None

    def handle(self, claimed: Claimed, route: Route, limiter: Limiter | None) -> Coroutine[Any, Any, Result]:
        """The whole of one attempt in one context: what `before` sets, the handler and `after` see."""
        event = claimed.event
        context = context_of(event) if event.headers or carried.get() else copy_context()
        if route.is_plain and self._is_bare:
            return self._runtime.call(route.functions[0], event, context=context)
        if route.batch is not None:  # one event or many, the context is that of none
            context = context_of_none()
        listen = self._intercepted if self._interceptors else self._listen
        if self._spans is not None:
            return self._traced(self._spans, listen(claimed, route, limiter, context), claimed, route, context)
        return listen(claimed, route, limiter, context)

    async def _traced(
        self, spans: Spans, call: Coroutine[Any, Any, Result], claimed: Claimed, route: Route, context: Context
    ) -> Result:
        """A span around all of it, which is current in what is called."""
        end = spans.delivering(claimed, route.id, context)
        try:
            result = await call
        except BaseException as error:  # the caller is cancelled
            end(error)
            raise
        end(result.error if isinstance(result, Raised) else None)
        return result

    async def _intercepted(self, claimed: Claimed, route: Route, limiter: Limiter | None, context: Context) -> Result:
        queued = QueuedEvent(claimed.event, claimed.source, claimed.attempts)
        entered: list[Intercepting] = []
        result = await self._before(entered, queued, context)
        if not isinstance(result, Raised):
            result = await self._listen(claimed, route, limiter, context)
        await self._after(entered, queued, result, context)
        return result

    async def _before(self, entered: list[Intercepting], queued: QueuedEvent, context: Context) -> Result:
        result: Result = NOTHING
        for interceptor in self._interceptors:
            result = await self._runtime.call(interceptor.before, *interceptor.told_before(queued), context=context)
            if isinstance(result, Raised):
                break
            entered.append(interceptor)
        return result

    async def fall_back(
        self, claimed: Claimed, route: Route, fallback: Fallback, failure: FailureContext, limiter: Limiter | None
    ) -> Result:
        """Call a fallback with what its handler got, then the failure."""
        try:
            given = claimed.event if route.payload is None else self._payloads.decode(claimed.event, route.payload)
        except Exception as error:
            return Raised(error)
        more = (metadata_of(claimed, route.id),) if fallback.takes_metadata else ()
        context = context_of(claimed.event)
        return await self._timed(fallback.function, (given, *more, failure), route, limiter, context)

    async def _listen(self, claimed: Claimed, route: Route, limiter: Limiter | None, context: Context) -> Result:
        try:
            given = claimed.event if route.payload is None else self._payloads.decode(claimed.event, route.payload)
        except Exception as error:
            return Raised(error)
        arguments: tuple[object, ...] = (given, metadata_of(claimed, route.id)) if route.takes_metadata else (given,)
        functions, effect = route.functions, None
        if route.effects is not None:
            effect = route.effects.call(self._runtime, claimed)
            functions, arguments = (effect.function,), (effect, *arguments)
        elif route.batch is not None:
            arguments = tuple([each] for each in arguments)
        result: Result = NOTHING
        for function in functions:
            started = self._runtime.clock() if self._meter.exports else 0.0
            if route.timeout is not None:
                result = await self._timed(function, arguments, route, limiter, context)
            else:
                result = await self._runtime.call(function, *arguments, context=context)
            if self._meter.exports:
                self._meter.record("listener_duration_ms", (self._runtime.clock() - started) * 1000)
            if isinstance(result, Raised) or isinstance(result.value, RetryAfter):
                break
        if effect is not None:
            return effect.seen(result)
        return result if route.batch is None else results_of(answered_by(result, 1), 1)[0]

    # ------------------------------------------------------------ several events in one call

    async def enter(self, claimed: Claimed, route: Route, context: Context) -> Entered:
        """All that comes before the call, for one of its events; with an error it is left out, and has been left."""
        end = None if self._spans is None else self._spans.delivering(claimed, route.id, context_of(claimed.event))
        entered = Entered(QueuedEvent(claimed.event, claimed.source, claimed.attempts), end)
        result = await self._before(entered.interceptors, entered.queued, context)
        if not isinstance(result, Raised):
            try:
                given = claimed.event if route.payload is None else self._payloads.decode(claimed.event, route.payload)
                entered.given, entered.metadata = (
                    given,
                    metadata_of(claimed, route.id) if route.takes_metadata else None,
                )
            except Exception as error:
                result = Raised(error)
        if isinstance(result, Raised):
            entered.error = result
            await self.leave(entered, result, context)
        return entered

    async def call(self, events: Sequence[Entered], route: Route, limiter: Limiter | None, context: Context) -> Result:
        """The call itself, once for all of them."""
        arguments: tuple[object, ...] = ([each.given for each in events],)
        if route.takes_metadata:
            arguments = (*arguments, [each.metadata for each in events])
        started = self._runtime.clock()
        result = await self._timed(route.functions[0], arguments, route, limiter, context)
        self._meter.record("listener_duration_ms", (self._runtime.clock() - started) * 1000)
        return answered_by(result, len(events))

    async def leave(self, entered: Entered, result: Result, context: Context) -> None:
        """All that comes after the call, for one of its events."""
        await self._after(entered.interceptors, entered.queued, result, context)
        if entered.end_span is not None:
            entered.end_span(result.error if isinstance(result, Raised) else None)

    async def _timed(
        self,
        function: Callable[..., object],
        arguments: tuple[object, ...],
        route: Route,
        limiter: Limiter | None,
        context: Context,
    ) -> Result:
        if route.timeout is None or limiter is None:
            return await self._runtime.call(function, *arguments, context=context)
        result = await self._runtime.call(
            function, *arguments, context=context, timeout=route.timeout, ended=limiter.came_back
        )
        if isinstance(result, Raised) and isinstance(result.error, HandlerTimeout) and result.error.still_runs:
            limiter.left_behind()
            log.error("%s is past its timeout and still runs; nothing can end it: %s", route.id, result.error.message)
        return result

    async def _after(self, entered: list[Intercepting], queued: QueuedEvent, result: Result, context: Context) -> None:
        error = result.error if isinstance(result, Raised) else None
        for interceptor in reversed(entered):
            told = await self._runtime.call(interceptor.after, *interceptor.told_after(queued, error), context=context)
            if isinstance(told, Raised):
                log.warning(
                    "an interceptor failed after %r and is ignored: %s",
                    queued.envelope,
                    error_text(told.error),
                    error=told.error,
                )


class Entered(msgspec.Struct):
    """One event of a call that has several."""

    queued: QueuedEvent
    end_span: SpanEnd | None
    #: Those whose `before` has let it pass.
    interceptors: list[Intercepting] = msgspec.field(default_factory=list)
    given: object = None
    metadata: EventMetadata | None = None
    error: Raised | None = None


class Intercepting:
    """An interceptor, and whether its methods want the QueuedEvent too: the last parameter is called `queued` then."""

    def __init__(self, interceptor: EventInterceptor) -> None:
        self.before, self.after = interceptor.before_dispatch, interceptor.after_dispatch
        self._before_takes_queued, self._after_takes_queued = _takes_queued(self.before), _takes_queued(self.after)

    def told_before(self, queued: QueuedEvent) -> tuple[object, ...]:
        return (queued.envelope, queued) if self._before_takes_queued else (queued.envelope,)

    def told_after(self, queued: QueuedEvent, error: BaseException | None) -> tuple[object, ...]:
        return (queued.envelope, error, queued) if self._after_takes_queued else (queued.envelope, error)


def _takes_queued(method: Callable[..., object]) -> bool:
    try:
        return list(signature(method).parameters)[-1:] == ["queued"]
    except (TypeError, ValueError):  # some builtins do not tell
        return False


def context_of(event: EventEnvelope) -> Context:
    """A fresh context with what the event carries, and nothing of an event around it."""
    context = copy_context()
    context.run(restore, split(event.headers)[1])
    return context


def context_of_none() -> Context:
    """A fresh context without anything of an event."""
    context = copy_context()
    context.run(restore, {})
    return context


def metadata_of(claimed: Claimed, handler_id: str) -> EventMetadata:
    """What a handler may know of the event and of this delivery."""
    event = claimed.event
    headers, carried = split(event.headers)
    return EventMetadata(
        event_id=event.event_id,
        event_type=event.event_type,
        aggregate_type=event.aggregate_type,
        aggregate_id=event.aggregate_id,
        tenant_id=event.tenant_id,
        key=event.key,
        handler_id=handler_id,
        attempt=claimed.attempts + 1,
        created_at=claimed.created_at or event.occurred_at,
        headers=headers,
        context=carried,
        source=claimed.source,
    )


def failure_of(claimed: Claimed, handler_id: str, error: BaseException, *, exhausted: bool) -> FailureContext:
    """What a fallback may know of the failure."""
    return FailureContext(
        event_id=claimed.event.event_id,
        handler_id=handler_id,
        key=claimed.event.key,
        created_at=claimed.created_at or claimed.event.occurred_at,
        failure_count=claimed.attempts + 1,
        last_error=error,
        retries_exhausted=exhausted,
        context=split(claimed.event.headers)[1],
    )
