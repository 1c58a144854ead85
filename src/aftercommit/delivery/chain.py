"""What happens to one event at one handler: handler, retry, fallback, permanent failure. It ends in one outcome."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta

from aftercommit.delivery.attempt import Attempt, failure_of
from aftercommit.delivery.circuits import Circuits
from aftercommit.delivery.gates import Gate, Gates
from aftercommit.delivery.outcomes import both_failed, decide, falls_back, worker_lost
from aftercommit.errors import HandlerTimeout, UndecodablePayload, UnroutableEvent
from aftercommit.events.claims import Claimed
from aftercommit.events.metadata import StoredError
from aftercommit.events.outcome import DONE, Dead, Defer, Discard, Outcome, Raised, Release, Result, Retry, Unavailable
from aftercommit.events.redact import error_text, traceback_text
from aftercommit.events.retry import RetryPolicy, limit_of
from aftercommit.handlers.routing import Route, Router
from aftercommit.ports import Runtime

log = logging.getLogger("aftercommit.delivery")


#: Whose destination it is, and the one that is declared for the event.
Line = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Rules:
    """How failures are judged where a handler has no policy of its own."""

    policy: RetryPolicy
    max_attempts: int
    unroutable_grace: timedelta | None
    max_abandoned: int = 5


class Chain:
    """The steps, in order. Each takes what the one before left over."""

    def __init__(self, runtime: Runtime, router: Router, attempt: Attempt, rules: Rules) -> None:
        self._runtime = runtime
        self._router = router
        self._attempt = attempt
        self._rules = rules
        self.circuits = Circuits(runtime)
        self.gates = Gates(runtime)

    async def run(self, claimed: Claimed, route: Route) -> Outcome:
        """All steps for one event and one handler."""
        if route.is_free and not self.circuits:
            return await self._after(
                claimed, route, (route.line, None), await self._attempt.handle(claimed, route, None)
            )
        return await self._run_limited(claimed, route)

    async def _run_limited(self, claimed: Claimed, route: Route) -> Outcome:
        """With a look at its limits and its destination before."""
        try:
            line = self._line(claimed, route)
        except Exception as error:  # a function of the user's own
            return await self._failed(claimed, route, (route.line, None), Raised(error))
        gate = self.gates.of(route.id, route.options)
        wait = self._wait(claimed, line, gate)
        if wait is not None:
            return Defer(timedelta(seconds=wait))
        started = self._runtime.clock()
        try:
            result = await self._attempt.handle(claimed, route, gate)
            return await self._after(claimed, route, line, result)
        except BaseException:  # the caller is cancelled, or nobody here knows the event: no word of its destination
            self.circuits.interrupted(*line)
            raise
        finally:
            if gate is not None:
                gate.leave(self._runtime.clock() - started)

    def _line(self, claimed: Claimed, route: Route) -> Line:
        """The handler, and the destination that it has declared for this event."""
        declared = route.options.destination if route.options is not None else None
        return route.line, declared(claimed.event) if declared is not None else None

    def _wait(self, claimed: Claimed, line: Line, gate: Gate | None) -> float | None:
        """Seconds that the event has to wait before it is begun; None when it may begin now."""
        # A suspect is never put off: that would be a report, and what it may have killed would be forgotten.
        wait = None if claimed.is_suspect else self.circuits.wait(*line)
        if wait is not None or gate is None:
            return wait
        wait = gate.enter(must=claimed.is_suspect)
        if wait is not None:
            self.circuits.interrupted(*line)
        return wait

    async def _after(self, claimed: Claimed, route: Route, line: Line, result: Result) -> Outcome:
        """What follows from the call: done, another attempt, the fallback, or the end."""
        if isinstance(result, Raised):
            return await self._failed(claimed, route, line, result)
        self.circuits.answered(*line)
        return self.judge(claimed, route, result)

    async def _failed(self, claimed: Claimed, route: Route, line: Line, result: Raised) -> Outcome:
        error = result.error
        if isinstance(error, UnroutableEvent):
            raise error  # a newer release has written it; others may know it
        if result.interrupted:
            self.circuits.interrupted(*line)
            return Release(was_started=True)
        if isinstance(error, Unavailable):
            wait = self.circuits.away(*line, error)
            log.info("%r waits for %s: %s", claimed.event, error.destination, error_text(error.__cause__ or error))
            return Defer(timedelta(seconds=wait))
        self._tell(line, error)
        outcome = self.judge(claimed, route, result)
        if isinstance(error, Discard):
            log.info("%s discarded %r: %s", route.id, claimed.event, error.message)
        else:
            log_failure(claimed, route, error, outcome)
        if not falls_back(error, outcome):
            return outcome
        policy, limit = self._policy(route)
        exhausted = claimed.attempts + 1 >= limit_of(policy, limit)
        return await self._fall_back(claimed, route, error, exhausted=exhausted) or outcome

    def _tell(self, line: Line, error: BaseException) -> None:
        """What a failure says of the destination."""
        if isinstance(error, HandlerTimeout):
            self.circuits.silent(*line)
        elif isinstance(error, UndecodablePayload):  # nobody was called
            self.circuits.interrupted(*line)
        else:
            self.circuits.answered(*line)

    async def lost(self, claimed: Claimed, route: Route) -> Outcome:
        """For an event that has ended too many processes: its handler is not called again, its fallback once."""
        text = worker_lost(claimed.abandoned)
        return await self._fall_back(claimed, route, StoredError(text), exhausted=True) or Dead(text, counted=False)

    def judge(self, claimed: Claimed, route: Route | None, result: Result) -> Outcome:
        """The step of retries: done, another attempt, or no more."""
        policy, limit = self._policy(route)
        return decide(result, attempts=claimed.attempts, policy=policy, max_attempts=limit)

    async def _fall_back(
        self, claimed: Claimed, route: Route, error: BaseException, *, exhausted: bool
    ) -> Outcome | None:
        """The step of fallbacks; None when there is none, and the failure is permanent."""
        fallback = self._router.fallback_of(route, claimed.event)
        if fallback is None:
            return None
        failure = failure_of(claimed, route.id, error, exhausted=exhausted)
        gate = self.gates.of(route.id, route.options)
        result = await self._attempt.fall_back(claimed, route, fallback, failure, gate)
        if not isinstance(result, Raised):
            log.info("the fallback of %s took over %r", route.id, claimed.event)
            return DONE
        if result.interrupted:
            return Release(was_started=True)
        log.warning("the fallback of %s failed for %r: %s", route.id, claimed.event, traceback_text(result.error))
        return both_failed(error, result.error)

    def _policy(self, route: Route | None) -> tuple[RetryPolicy, int]:
        own = route.options.retry if route is not None and route.options is not None else None
        return (self._rules.policy if own is None else own), self._rules.max_attempts


def log_failure(claimed: Claimed, route: Route | None, error: BaseException, outcome: Outcome) -> None:
    then = f"again in {outcome.delay.total_seconds():.3g} s" if isinstance(outcome, Retry) else "no more attempts"
    at = f" at {route.id}" if route is not None and route.handler is not None else ""
    log.warning(
        "attempt %d of %r%s failed, %s: %s", claimed.attempts + 1, claimed.event, at, then, traceback_text(error)
    )
