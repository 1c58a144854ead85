"""One delivery: who receives the event, the steps for each of them (handler, retry, fallback, the end), one outcome for
the row."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias

from msgspec.structs import replace

from aftercommit.config import OutboxConfig
from aftercommit.delivery.attempt import Attempt, failure_of
from aftercommit.delivery.circuits import Circuits
from aftercommit.delivery.limits import Limiter, Limiters
from aftercommit.delivery.outcomes import (
    both_failed,
    combine,
    decide,
    decide_unroutable,
    done_then,
    falls_back,
    note_of,
    noted,
    still_to_run,
    worker_lost,
)
from aftercommit.delivery.pauses import KnownPauses
from aftercommit.delivery.said import facts_of, log_failure, told
from aftercommit.delivery.strangers import Strangers
from aftercommit.delivery.tracking import LATER, Tracked
from aftercommit.errors import CommitUnknown, HandlerTimeout, LeaseLost, UndecodablePayload, UnroutableEvent
from aftercommit.events.claims import Claimed
from aftercommit.events.context import StoredError
from aftercommit.events.log import Log
from aftercommit.events.measures import ANY_HANDLER, DeliveryResult, delivered, result_of
from aftercommit.events.outcome import (
    COMMITTED,
    DONE,
    FELL_BACK,
    NOTHING,
    UNANSWERED,
    WRITTEN,
    Dead,
    Defer,
    Discard,
    Outcome,
    Raised,
    Release,
    Result,
    Retry,
    RetryAfter,
    Unavailable,
)
from aftercommit.events.redact import error_text, redact, text_of
from aftercommit.events.retry import RetryPolicy, limit_of
from aftercommit.handlers.routing import Route, Router
from aftercommit.meter import Meter
from aftercommit.ports import Runtime

log = Log("aftercommit.delivery")

#: All steps of one event at one handler.
Run: TypeAlias = "Callable[[Claimed, Route], Coroutine[Any, Any, Outcome]]"

#: Who talks to a destination, and the name that is declared for this event's, if any.
Caller: TypeAlias = tuple[str, str | None]


class Delivery:
    """Runs one event and says what is to be written. Never raises."""

    def __init__(self, runtime: Runtime, router: Router, meter: Meter, config: OutboxConfig) -> None:
        self.router = router
        self.pauses = KnownPauses(runtime)
        self._meter, self._clock, self._lock_timeout = meter, runtime.clock, config.lock_timeout
        self._grace, self.max_abandoned = config.unroutable_grace, config.max_abandoned
        self.strangers = Strangers(runtime)
        #: What is to be written of one event. A tracker is asked before each.
        self.deliver: Callable[[Claimed], Coroutine[Any, Any, Outcome]] = self._deliver
        self.tracked: Tracked | None = None
        if config.in_flight_tracker is not None:
            self.tracked = Tracked(config.in_flight_tracker, meter, self._deliver)
            self.deliver = self.tracked.deliver
        self.chain = Chain(runtime, router, Attempt(runtime, router.payloads, meter, config), config)

    async def _deliver(self, claimed: Claimed) -> Outcome:
        try:
            routes = self.router.routes_of_row(claimed.event, claimed.lease.key.handler_id)
            run: Run = self.chain.lost if claimed.abandoned >= self.max_abandoned else self.chain.run
            if self._meter.exports:
                run = partial(self._measured, run)
            if log.is_verbose():
                run = partial(told, self._clock, run)
            if self.pauses.known:
                run = partial(self.pauses.unless_paused, run)
            if len(routes) > 1 or claimed.done_handlers:
                return await self._run_all(claimed, routes, run)
            return await run(claimed, routes[0])
        except UnroutableEvent as error:
            return self.unknown(claimed, error)
        except (Exception, SystemExit) as error:
            return self.broken_off(claimed, error)

    def broken_off(self, claimed: Claimed, error: BaseException) -> Outcome:
        """A registry or a predicate of the user's own, or what a handler has raised makes no sense (a destination that
        is no text). Given back uncounted, it would come again for ever."""
        outcome = self.chain.judge(claimed, None, Raised(error))
        log_failure(claimed, None, error, outcome)
        self.tell(claimed, "", result_of(outcome))
        return outcome

    async def _measured(self, run: Run, claimed: Claimed, route: Route) -> Outcome:
        """For an exporter: how it ended at this handler, and how long it took."""
        began = self._clock()
        outcome = await run(claimed, route)
        self.tell(claimed, route.id, result_of(outcome), began)
        return outcome

    def tell(self, claimed: Claimed, handler_id: str, result: DeliveryResult, began: float | None = None) -> None:
        if not self._meter.exports:
            return
        now, handler = self._clock(), handler_id or claimed.lease.key.handler_id or ANY_HANDLER
        began = now if began is None else began
        told = delivered(claimed, handler, result, began=began, now=now, lock_timeout=self._lock_timeout)
        self._meter.tell("delivered", told)

    async def _run_all(self, claimed: Claimed, routes: Sequence[Route], run: Run) -> Outcome:
        """One row for several handlers. None keeps the others from running, and none that has succeeded runs again."""
        done = self.router.current(claimed.done_handlers)
        waiting = still_to_run([route.id for route in routes], done)
        outcomes: dict[str, Outcome] = {}
        for route in routes:
            if route.id in waiting:
                given = claimed
                if route.effects is not None:
                    given = replace(claimed, done_then=done_then(route.id, outcomes, done, waiting))
                try:
                    outcomes[route.id] = await run(given, route)
                except UnroutableEvent as error:
                    outcomes[route.id] = self.unknown(claimed, error)
                if isinstance(outcomes[route.id], Release):  # closing: the others are not begun
                    break
        return combine(outcomes, done)

    def unknown(self, claimed: Claimed, error: UnroutableEvent) -> Outcome:
        """Nobody in this process can handle it."""
        outcome = decide_unroutable(age=claimed.age, grace=self._grace, again=LATER, error=error)
        self.tell(claimed, "", "dead" if isinstance(outcome, Dead) else "unroutable")
        if isinstance(outcome, Defer):
            self.strangers.met(claimed, error)
        return outcome

    def has_fallback(self, claimed: Claimed) -> bool:
        """Whether somebody would take this event after its handlers."""
        try:
            routes = self.router.routes_of_row(claimed.event, claimed.lease.key.handler_id)
            return any(self.router.fallback_of(route, claimed.event) is not None for route in routes)
        except Exception:  # nobody here has it, or a registry of the user's own failed
            return False


class Chain:
    """The steps of one event at one handler, in order. Each takes what the one before left over."""

    def __init__(self, runtime: Runtime, router: Router, attempt: Attempt, config: OutboxConfig) -> None:
        self._runtime = runtime
        self._router = router
        self.attempt = attempt
        self._policy = config.retry_policy
        self._max_attempts = config.max_attempts
        self.circuits = Circuits(runtime)
        self.limiters = Limiters(runtime)

    async def run(self, claimed: Claimed, route: Route) -> Outcome:
        """All steps. Raises UnroutableEvent when nobody here knows the event's class."""
        if not route.is_free or self.circuits.known:
            return await self._run_limited(claimed, route)
        result = await self.attempt.handle(claimed, route, None)
        if result is NOTHING or (not isinstance(result, Raised) and not isinstance(result.value, RetryAfter)):
            return WRITTEN if result is COMMITTED else DONE
        return await self.after(claimed, route, (route.caller, None), result)

    async def _run_limited(self, claimed: Claimed, route: Route) -> Outcome:
        """With a look at its limits and its destination before."""
        try:
            caller = self.caller_of(claimed, route)
        except Exception as error:  # a function of the user's own
            return await self._failed(claimed, route, (route.caller, None), Raised(error))
        limiter = self.limiters.of(route.id, route.options)
        wait = self.wait(claimed, caller, limiter)
        if wait is not None:
            return Defer(timedelta(seconds=wait))
        started = self._runtime.clock()
        try:
            result = await self.attempt.handle(claimed, route, limiter)
            return await self.after(claimed, route, caller, result)
        except BaseException:  # the caller is cancelled, or nobody here knows the event: no word of its destination
            self.circuits.interrupted(*caller)
            raise
        finally:
            if limiter is not None:
                limiter.leave(self._runtime.clock() - started)

    def caller_of(self, claimed: Claimed, route: Route) -> Caller:
        """The handler, and the destination that it has declared for this event."""
        destination = route.options.destination if route.options is not None else None
        return route.caller, destination(claimed.event) if destination is not None else None

    def wait(self, claimed: Claimed, caller: Caller, limiter: Limiter | None) -> float | None:
        """Seconds that the event has to wait before it is begun; None when it may begin now."""
        # A suspect is never put off: that would be a report, and what it may have killed would be forgotten.
        wait = None if claimed.is_suspect else self.circuits.wait(*caller)
        if wait is not None or limiter is None:
            return wait
        wait = limiter.enter(must=claimed.is_suspect)
        if wait is not None:
            self.circuits.interrupted(*caller)
        return wait

    async def after(
        self, claimed: Claimed, route: Route, caller: Caller, result: Result, *, is_telling: bool = True
    ) -> Outcome:
        """What follows from the call: done, another attempt, the fallback, or the end; and, unless another event of the
        call tells more of it, what it says of the destination."""
        if isinstance(result, Raised):
            return await self._failed(claimed, route, caller, result, is_telling=is_telling)
        if is_telling:
            self.circuits.answered(*caller)
        return self.judge(claimed, route, result)

    async def _failed(
        self, claimed: Claimed, route: Route, caller: Caller, result: Raised, *, is_telling: bool = True
    ) -> Outcome:
        error = result.error
        if isinstance(error, UnroutableEvent):
            raise error  # a newer release has written it; others may know it
        if result.interrupted:
            self.circuits.interrupted(*caller)
            return Release(was_started=True)
        if route.effects is not None and isinstance(error, LeaseLost | CommitUnknown):
            self.circuits.interrupted(*caller)
            is_lost = isinstance(error, LeaseLost)  # and what is written under it is refused, counted and logged
            if not is_lost:
                log.warning("%s", error_text(error), error=error, outcome="release", **facts_of(claimed, route))
            return Release(was_started=True) if is_lost else UNANSWERED
        if isinstance(error, Unavailable):
            return self.put_off(claimed, route, error, self.circuits.away(*caller, error))
        if is_telling:
            self._tell(caller, error)
        outcome = self.judge(claimed, route, result)
        if isinstance(error, Discard):
            text, facts = text_of(error.message), facts_of(claimed, route)
            log.info("%s discarded %r: %s", route.id, claimed.event, text, outcome="discarded", **facts)
        else:
            log_failure(claimed, route, error, outcome)
        if not falls_back(error, outcome):
            return outcome
        exhausted = claimed.attempts + 1 >= limit_of(self._policy_of(route), self._max_attempts)
        return await self._fall_back(claimed, route, error, outcome, exhausted=exhausted) or outcome

    def put_off(self, claimed: Claimed, route: Route, error: Unavailable, wait: float) -> Outcome:
        """Its destination is away for so many seconds."""
        cause, facts = error_text(error.__cause__ or error), facts_of(claimed, route)
        log.info("%r waits for %s: %s", claimed.event, redact(error.destination), cause, outcome="defer", **facts)
        return Defer(timedelta(seconds=wait))

    def _tell(self, caller: Caller, error: BaseException) -> None:
        """What a failure says of the destination."""
        if isinstance(error, HandlerTimeout):
            self.circuits.silent(*caller)
        elif isinstance(error, UndecodablePayload):  # nobody was called
            self.circuits.interrupted(*caller)
        else:
            self.circuits.answered(*caller)

    async def lost(self, claimed: Claimed, route: Route) -> Outcome:
        """For an event that has ended too many processes: its handler is not called again, its fallback once."""
        dead = worker_lost(claimed.abandoned)
        return await self._fall_back(claimed, route, StoredError(dead.error), dead, exhausted=True) or dead

    def judge(self, claimed: Claimed, route: Route | None, result: Result) -> Outcome:
        """The step of retries: done, another attempt, or no more."""
        policy = self._policy_of(route)
        outcome = decide(result, attempts=claimed.attempts, policy=policy, max_attempts=self._max_attempts)
        if not isinstance(result, Raised) or not isinstance(outcome, Retry | Dead):
            return outcome
        is_counted = isinstance(outcome, Retry) or outcome.counted
        attempt, handler = claimed.attempts + 1 if is_counted else 0, "" if route is None else route.id
        return noted(outcome, note_of(result.error, attempt=attempt, handler=handler))

    async def _fall_back(
        self, claimed: Claimed, route: Route, error: BaseException, before: Outcome, *, exhausted: bool
    ) -> Outcome | None:
        """The step of fallbacks; None when there is none, and the failure is permanent. `before` is what else would
        be written."""
        fallback = self._router.fallback_of(route, claimed.event)
        if fallback is None:
            return None
        failure = failure_of(claimed, route.id, error, exhausted=exhausted)
        limiter = self.limiters.of(route.id, route.options)
        result = await self.attempt.fall_back(claimed, route, fallback, failure, limiter)
        if not isinstance(result, Raised):
            log.info("the fallback of %s took over %r", route.id, claimed.event, **facts_of(claimed, route))
            return FELL_BACK
        if result.interrupted:
            return Release(was_started=True)
        text, facts = error_text(result.error), facts_of(claimed, route)
        log.warning("the fallback of %s failed for %r: %s", route.id, claimed.event, text, error=result.error, **facts)
        note = note_of(result.error, attempt=claimed.attempts + 1, handler=f"fallback of {route.id}")
        return noted(both_failed(error, result.error), *(before.failures if isinstance(before, Dead) else ()), note)

    def _policy_of(self, route: Route | None) -> RetryPolicy:
        """The handler's own, else the outbox's."""
        own = route.options.retry if route is not None and route.options is not None else None
        return self._policy if own is None else own
