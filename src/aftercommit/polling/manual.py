"""Delivering when the caller says so: one poll, or until nothing is due; through the workers or in the caller's own."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from itertools import chain
from typing import Final

import msgspec

from aftercommit.config import OutboxConfig
from aftercommit.delivery.leases import Held, Holding, Keeper
from aftercommit.delivery.settler import Settler
from aftercommit.delivery.worker import OutboxDispatcher
from aftercommit.events.claims import Claim, Claimed
from aftercommit.events.order import OrderKey
from aftercommit.events.outcome import Release
from aftercommit.handlers.routing import Route, Router
from aftercommit.meter import Meter
from aftercommit.polling.due import Found
from aftercommit.polling.poller import OutboxPoller
from aftercommit.ports import EventStore, Runtime

#: Seconds after which the rows of one claim should be through, so that others get their share of what is slow.
_QUICK: Final = 0.5


class DrainResult(msgspec.Struct, frozen=True):
    """What drain() did. `is_complete` is False when the time was over before nothing was due."""

    delivered: int
    retried: int
    deferred: int
    dead: int
    is_complete: bool


class ManualDelivery:
    """poll() and drain(). While the services run they do the work; else it is done here, one event or one batch after
    the other."""

    def __init__(
        self,
        runtime: Runtime,
        store: EventStore,
        router: Router,
        poller: OutboxPoller,
        dispatcher: OutboxDispatcher,
        settler: Settler,
        held: Held,
        meter: Meter,
        config: OutboxConfig,
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._router = router
        self._poller = poller
        self._dispatcher = dispatcher
        self._settler = settler
        self._held = held
        self._meter = meter
        self._config = config

    async def poll(self, *, is_started: bool) -> int:
        """One cycle; how many rows it claimed."""
        await self._store.open()
        if not is_started:
            self._poller.look_everywhere()
            return len((await self._deliver_here(self._config.batch_size)).claim.rows)
        return await self._cycle(None) or 0

    async def _cycle(self, timeout: float | None) -> int | None:
        """One cycle over the whole table, of the running poller or in its place."""
        if self._config.poller_enabled:
            return await self._poller.next_cycle(timeout)
        self._poller.look_everywhere()
        return await self._poller.cycle()

    async def drain(self, timeout: float | None, *, is_started: bool) -> DrainResult:
        """Deliver until nothing is due."""
        await self._store.open()
        before = self._meter.counts()
        until = None if timeout is None else self._runtime.clock() + timeout
        is_complete = await (self._drain_services(until) if is_started else self._drain_here(until))
        counts = self._meter.counts()

        def since(name: str) -> int:
            return counts.get(name, 0) - before.get(name, 0)

        return DrainResult(
            delivered=since("dispatch_success"),
            retried=since("dispatch_failure"),
            deferred=since("dispatch_deferred"),
            dead=since("dispatch_dead"),
            is_complete=is_complete,
        )

    async def _drain_here(self, until: float | None) -> bool:
        keeper = Keeper(
            self._runtime, self._store, self._held, self._dispatcher.lanes, lock_timeout=self._config.lock_timeout
        )
        keeper.start()
        try:
            self._poller.look_everywhere()
            while until is None or self._runtime.clock() < until:
                limit, began = self._poller.batch.size, self._runtime.clock()
                found = await self._deliver_here(limit)
                is_quick = self._runtime.clock() - began < _QUICK
                size = limit if found.is_full else len(found.claim.rows)
                self._poller.batch.after(size if is_quick else 0, limit)
                if found.is_all and not found.claim.rows:
                    return True
                if found.is_all:
                    self._poller.look_everywhere()
            return False
        finally:
            await keeper.stop()

    async def _deliver_here(self, limit: int) -> Found:
        """Claim once and deliver one after the other, or together what goes together."""
        if not self._router:
            return Found(Claim(()), is_all=True)
        await self._poller.see_pauses()
        claims: list[Found] = []
        runs: deque[deque[Holding]] = deque()

        async def claim() -> None:
            claims.append(await self._poller.claim(limit))
            runs.extend(map(self._admitted, self._poller.deliverable(claims[0].claim)))

        try:
            # To its end even when the caller is cancelled: what was claimed has to be given back.
            await self._runtime.shielded(claim())
            while runs:
                if runs[0]:
                    await self._deliver_next(runs)
                else:
                    runs.popleft()
        finally:
            self._settler.release(chain.from_iterable(runs))
            await self._settler.flush()
        return claims[0]

    def _admitted(self, run: list[Claimed]) -> deque[Holding]:
        admitted = self._held.admit(run)
        self._dispatcher.batches.mark(admitted)
        return deque(admitted)

    async def _deliver_next(self, runs: deque[deque[Holding]]) -> None:
        """The next event, or the next batch. When one is not completed, everything behind it in its run is given
        back."""
        first = runs[0][0]
        if first.route is None:
            if not await self._deliver_one(runs[0].popleft()):
                self._settler.release(runs.popleft())
            return
        stopped = await self._deliver_batch(_together(runs, first.route), first.route)
        for run in runs:
            if run and run[0].order_key in stopped:
                self._settler.release(run)
                run.clear()

    async def _deliver_one(self, holding: Holding) -> bool:
        try:
            return await self._dispatcher.deliver(holding)
        except BaseException:  # a cancellation, or Ctrl-C in the handler: the caller ends, the event does not
            self._interrupted([holding])
            raise

    async def _deliver_batch(self, holdings: list[Holding], route: Route) -> Collection[OrderKey]:
        try:
            return await self._dispatcher.batches.deliver(holdings, route)
        except BaseException:
            self._interrupted(holdings)
            raise

    def _interrupted(self, holdings: Iterable[Holding]) -> None:
        for holding in holdings:
            if not holding.is_reported:
                self._settler.add(holding, Release(was_started=holding.is_running))

    async def _drain_services(self, until: float | None) -> bool:
        lanes = self._dispatcher.lanes
        while True:
            rest = None if until is None else max(0.0, until - self._runtime.clock())
            if not await lanes.quiet(rest):
                return False
            await self._settler.flush()
            claimed = await self._cycle(rest)
            if self._poller.failures_in_a_row or (until is not None and self._runtime.clock() >= until):
                return False
            if claimed == 0 and lanes.is_quiet and not self._settler.unsettled:
                return True


def _together(runs: Iterable[deque[Holding]], route: Route) -> list[Holding]:
    """The next batch for a receiver: of each run what comes next, as long as it is for this one."""
    batch: list[Holding] = []
    for run in runs:
        while run and run[0].route is route and len(batch) < (route.batch or 1):
            batch.append(run.popleft())
    return batch
