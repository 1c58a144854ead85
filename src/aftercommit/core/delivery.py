"""One delivery: interceptors, listeners, the decision. Whatever they do, it ends in an outcome."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from datetime import timedelta
from inspect import isasyncgen, isgenerator
from typing import Final

from aftercommit.claims import Claimed
from aftercommit.core.meter import Meter
from aftercommit.errors import InvalidListener, UnroutableEvent
from aftercommit.event import EventEnvelope
from aftercommit.hooks import EventInterceptor, InFlightTracker, ListenerRegistry
from aftercommit.outcome import Defer, Ok, Outcome, Raised, Result, Retry, RetryAfter
from aftercommit.ports import Runtime
from aftercommit.redact import error_text, traceback_text
from aftercommit.retry import RetryPolicy
from aftercommit.rules.decide import decide, decide_unroutable

log = logging.getLogger("aftercommit.delivery")

#: When an event that cannot run here now is looked at again.
LATER: Final = timedelta(seconds=1)

_NOTHING: Final = Ok()


@dataclass(frozen=True, slots=True)
class Rules:
    """How failures are judged."""

    policy: RetryPolicy
    max_attempts: int
    unroutable_grace: timedelta | None


class Delivery:
    """Runs one event and says what is to be written. Never raises."""

    def __init__(
        self,
        runtime: Runtime,
        registry: ListenerRegistry,
        meter: Meter,
        rules: Rules,
        *,
        interceptors: Sequence[EventInterceptor] = (),
        tracker: InFlightTracker | None = None,
    ) -> None:
        self._runtime = runtime
        self._registry = registry
        self._meter = meter
        self._rules = rules
        self._interceptors = tuple(interceptors)
        self._tracker = tracker

    async def deliver(self, claimed: Claimed) -> Outcome:
        if self._tracker is None:
            return await self._attempt(claimed)
        name = "/".join(part for part in claimed.lease.key if part)
        if not self._asked(self._tracker.try_acquire, name):
            return Defer(LATER)
        try:
            return await self._attempt(claimed)
        finally:
            self._asked(self._tracker.release, name)

    def _asked(self, question: Callable[[str], object], name: str) -> object:
        """The tracker's answer; None when it failed. It may be a user's own, and away."""
        try:
            return question(name)
        except Exception as error:
            if self._meter.may_say("tracker"):
                log.warning("the in-flight tracker failed for %s: %s", name, error_text(error))
            return None

    async def _attempt(self, claimed: Claimed) -> Outcome:
        result = await self._run(claimed.event)
        if isinstance(result, Raised) and isinstance(result.error, UnroutableEvent):
            return decide_unroutable(
                age=claimed.age, grace=self._rules.unroutable_grace, again=LATER, error=result.error
            )
        outcome = decide(
            result, attempts=claimed.attempts, policy=self._rules.policy, max_attempts=self._rules.max_attempts
        )
        if isinstance(result, Raised) and not result.interrupted:
            self._log_failure(claimed, result.error, outcome)
        return outcome

    async def _run(self, event: EventEnvelope) -> Result:
        """The whole of one attempt in one context: what `before` sets, the listener and `after` see."""
        context = copy_context()
        if not self._interceptors:
            return await self._listen(event, context)
        result: Result = _NOTHING
        entered: list[EventInterceptor] = []
        for interceptor in self._interceptors:
            result = await self._call(interceptor.before_dispatch, event, context=context)
            if isinstance(result, Raised):
                break
            entered.append(interceptor)
        else:
            result = await self._listen(event, context)
        await self._after(entered, event, result, context)
        return result

    async def _listen(self, event: EventEnvelope, context: Context) -> Result:
        try:
            found = self._registry.listener_for(event.aggregate_type, event.event_type)
        except Exception as error:
            return Raised(error)
        listeners = found if isinstance(found, Sequence) else () if found is None else (found,)
        if not listeners:
            return Raised(
                UnroutableEvent(
                    f"no listener is registered for {event.aggregate_type}/{event.event_type} ({event.event_id})",
                    fix="register one in this process, or set unroutable_grace where others have it",
                )
            )
        result: Result = _NOTHING
        for listener in listeners:
            started = self._runtime.clock()
            result = await self._call(listener, event, context=context)
            if self._meter.exports:
                self._meter.record("listener_duration_ms", (self._runtime.clock() - started) * 1000)
            if isinstance(result, Raised) or isinstance(result.value, RetryAfter):
                break
        return result

    async def _call(self, function: Callable[..., object], *arguments: object, context: Context) -> Result:
        result = await self._runtime.call(function, *arguments, context=context)
        if isinstance(result, Ok) and (isgenerator(result.value) or isasyncgen(result.value)):
            return Raised(
                InvalidListener(
                    f"{getattr(function, '__qualname__', function)!s} returned a generator, so its body has not run",
                    fix="return instead of yield",
                )
            )
        return result

    async def _after(
        self, entered: list[EventInterceptor], event: EventEnvelope, result: Result, context: Context
    ) -> None:
        error = result.error if isinstance(result, Raised) else None
        for interceptor in reversed(entered):
            told = await self._call(interceptor.after_dispatch, event, error, context=context)
            if isinstance(told, Raised):
                log.warning("an interceptor failed after %r and is ignored: %s", event, error_text(told.error))

    def _log_failure(self, claimed: Claimed, error: BaseException, outcome: Outcome) -> None:
        then = f"again in {outcome.delay.total_seconds():.3g} s" if isinstance(outcome, Retry) else "no more attempts"
        log.warning("attempt %d of %r failed, %s: %s", claimed.attempts + 1, claimed.event, then, traceback_text(error))
