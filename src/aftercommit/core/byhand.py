"""Delivering when the caller says so: one poll, or until nothing is due; through the workers or in the caller's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aftercommit.claims import Claim, Claimed
from aftercommit.core.dispatcher import OutboxDispatcher
from aftercommit.core.held import Held, Holding
from aftercommit.core.keeper import Keeper
from aftercommit.core.meter import Meter
from aftercommit.core.options import EngineOptions
from aftercommit.core.poller import OutboxPoller
from aftercommit.core.settler import Settler
from aftercommit.outcome import RELEASE, Release
from aftercommit.ports import EventStore, Runtime


@dataclass(frozen=True, slots=True)
class DrainResult:
    """What drain() did. `is_complete` is False when the time was over before nothing was due."""

    delivered: int
    retried: int
    deferred: int
    dead: int
    is_complete: bool


class ByHand:
    """poll() and drain(). While the services run they do the work; else it is done here, one event after the other."""

    def __init__(
        self,
        runtime: Runtime,
        store: EventStore,
        poller: OutboxPoller,
        dispatcher: OutboxDispatcher,
        settler: Settler,
        held: Held,
        meter: Meter,
        options: EngineOptions,
        *,
        has_listeners: Callable[[], bool],
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._poller = poller
        self._dispatcher = dispatcher
        self._settler = settler
        self._held = held
        self._meter = meter
        self._options = options
        self._has_listeners = has_listeners

    async def poll(self, *, is_started: bool) -> int:
        """One cycle; how many rows it claimed."""
        await self._store.open()
        if not is_started:
            return await self._deliver_here()
        if self._options.poller_enabled:
            return await self._poller.next_cycle(None) or 0
        return await self._poller.cycle() or 0

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
        keeper = Keeper(self._runtime, self._store, self._held, lock_timeout=self._options.lock_timeout)
        keeper.start()
        try:
            while until is None or self._runtime.clock() < until:
                is_partial = self._poller.has_floor
                if not await self._deliver_here() and not is_partial:
                    return True
            return False
        finally:
            await keeper.stop()

    async def _deliver_here(self) -> int:
        """Claim once and deliver one after the other."""
        if not self._has_listeners():
            return 0
        claims: list[Claim] = []
        rows: list[Claimed] = []

        async def claim() -> None:
            claims.append(await self._poller.claim(self._options.batch_size))
            rows.extend(reversed(self._poller.deliverable(claims[0])))

        try:
            # To its end even when the caller is cancelled: what was claimed has to be given back.
            await self._runtime.shielded(claim())
            while rows:
                await self._deliver_one(rows.pop())
        finally:
            for row in rows:
                self._settler.add(Holding(row.lease, row), RELEASE)
            await self._settler.flush()
        return len(claims[0].rows)

    async def _deliver_one(self, row: Claimed) -> None:
        holding = self._held.admit(row)
        if holding is None:
            return
        try:
            await self._dispatcher.deliver(holding)
        except BaseException:  # a cancellation, or Ctrl-C in the handler: the caller ends, the event does not
            if not holding.is_reported:
                self._settler.add(holding, Release(was_started=holding.is_running))
            raise

    async def _drain_services(self, until: float | None) -> bool:
        channel = self._dispatcher.channel
        while True:
            rest = None if until is None else max(0.0, until - self._runtime.clock())
            if not await channel.quiet(rest):
                return False
            await self._settler.flush()
            claimed = await (self._poller.next_cycle(rest) if self._options.poller_enabled else self._poller.cycle())
            if self._poller.failures_in_a_row or (until is not None and self._runtime.clock() >= until):
                return False
            if claimed == 0 and channel.is_quiet and not self._settler.unsettled:
                return True
