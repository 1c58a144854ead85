"""One delivery: who receives the event, the chain for each of them, one outcome for the row."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from aftercommit.delivery.attempt import Attempt
from aftercommit.delivery.chain import Chain, Rules, log_failure
from aftercommit.delivery.combine import combine, still_to_run
from aftercommit.delivery.outcomes import decide_unroutable
from aftercommit.delivery.strays import Strays
from aftercommit.errors import UnroutableEvent
from aftercommit.events.claims import Claimed
from aftercommit.events.outcome import Defer, Outcome, Raised, Release
from aftercommit.events.redact import error_text
from aftercommit.handlers.routing import Route, Router
from aftercommit.hooks import EventInterceptor, InFlightTracker
from aftercommit.meter import Meter
from aftercommit.ports import Runtime

log = logging.getLogger("aftercommit.delivery")

#: When an event that cannot run here now is looked at again.
LATER: Final = timedelta(seconds=1)


class Delivery:
    """Runs one event and says what is to be written. Never raises."""

    def __init__(
        self,
        runtime: Runtime,
        router: Router,
        meter: Meter,
        rules: Rules,
        *,
        interceptors: Sequence[EventInterceptor] = (),
        tracker: InFlightTracker | None = None,
    ) -> None:
        self._router = router
        self._meter = meter
        self._rules = rules
        self._tracker = tracker
        self.strays = Strays(runtime)
        self.chain = Chain(runtime, router, Attempt(runtime, router.payloads, meter, interceptors), rules)

    async def deliver(self, claimed: Claimed) -> Outcome:
        if self._tracker is None:
            return await self._deliver(claimed)
        name = "/".join(part for part in claimed.lease.key if part)
        if not self._asked(self._tracker.try_acquire, name):
            return Defer(LATER)
        try:
            return await self._deliver(claimed)
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

    async def _deliver(self, claimed: Claimed) -> Outcome:
        try:
            routes = self._routes(claimed)
        except UnroutableEvent as error:
            return self._unroutable(claimed, error)
        except Exception as error:  # a registry or a predicate of the user's own
            outcome = self.chain.judge(claimed, None, Raised(error))
            log_failure(claimed, None, error, outcome)
            return outcome
        if len(routes) == 1 and not claimed.done_handlers:
            return await self._run(claimed, routes[0])
        return await self._run_all(claimed, routes)

    async def _run(self, claimed: Claimed, route: Route) -> Outcome:
        is_lost = claimed.abandoned >= self._rules.max_abandoned
        try:
            return await (self.chain.lost if is_lost else self.chain.run)(claimed, route)
        except UnroutableEvent as error:
            return self._unroutable(claimed, error)

    async def _run_all(self, claimed: Claimed, routes: Sequence[Route]) -> Outcome:
        """One row for several handlers. None keeps the others from running, and none that has succeeded runs again."""
        done = self._router.current(claimed.done_handlers)
        waiting = still_to_run([route.id for route in routes], done)
        outcomes: dict[str, Outcome] = {}
        for route in routes:
            if route.id in waiting:
                outcomes[route.id] = await self._run(claimed, route)
                if isinstance(outcomes[route.id], Release):  # closing: the others are not begun
                    break
        return combine(outcomes, done)

    def _unroutable(self, claimed: Claimed, error: UnroutableEvent) -> Outcome:
        outcome = decide_unroutable(age=claimed.age, grace=self._rules.unroutable_grace, again=LATER, error=error)
        if isinstance(outcome, Defer):
            self.strays.met(claimed, error)
        return outcome

    def _routes(self, claimed: Claimed) -> Sequence[Route]:
        """Who receives this row: the handler that it was written for, or all that match now."""
        handler_id = claimed.lease.key.handler_id
        if handler_id:
            route = self._router.route(handler_id, claimed.event)
            routes: Sequence[Route] = () if route is None else (route,)
        else:
            routes = self._router.routes_of(claimed.event)
        if not routes:
            raise self._router.unknown(claimed.event, handler_id)
        return routes

    def has_fallback(self, claimed: Claimed) -> bool:
        """Whether somebody would take this event after its handlers."""
        try:
            routes = self._routes(claimed)
            return any(self._router.fallback_of(route, claimed.event) is not None for route in routes)
        except Exception:  # nobody here has it, or a registry of the user's own failed
            return False
