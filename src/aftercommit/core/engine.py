"""All services of one outbox between start and close, in the order in which they need each other."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from uuid import uuid4

from aftercommit.claims import Backlog, Claimed
from aftercommit.core.delivery import Delivery, Rules
from aftercommit.core.dispatcher import OutboxDispatcher
from aftercommit.core.held import Held, Holding
from aftercommit.core.hotpath import HotPathway
from aftercommit.core.keeper import Keeper
from aftercommit.core.meter import Meter
from aftercommit.core.poller import OutboxPoller, PollerOptions
from aftercommit.core.service import Service
from aftercommit.core.settler import Settler
from aftercommit.core.upkeep import Purge
from aftercommit.core.writer import OutboxWriter
from aftercommit.event import EventEnvelope
from aftercommit.hooks import EventInterceptor, InFlightTracker, ListenerRegistry, MetricsExporter, WriterHook
from aftercommit.outcome import RELEASE
from aftercommit.ports import EventStore, Records, Runtime
from aftercommit.retry import RetryPolicy

log = logging.getLogger("aftercommit.engine")


class EngineOptions(Protocol):
    """What an engine reads of the configuration."""

    @property
    def worker_count(self) -> int: ...
    @property
    def hot_queue_capacity(self) -> int: ...
    @property
    def cold_queue_capacity(self) -> int: ...
    @property
    def max_attempts(self) -> int: ...
    @property
    def retry_policy(self) -> RetryPolicy: ...
    @property
    def drain_timeout(self) -> timedelta: ...
    @property
    def hot_path(self) -> bool: ...
    @property
    def poller_enabled(self) -> bool: ...
    @property
    def poll_interval(self) -> timedelta: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def skip_recent(self) -> timedelta: ...
    @property
    def lock_timeout(self) -> timedelta: ...
    @property
    def max_abandoned(self) -> int: ...
    @property
    def unroutable_grace(self) -> timedelta | None: ...
    @property
    def purge_retention(self) -> timedelta | None: ...
    @property
    def purge_interval(self) -> timedelta: ...
    @property
    def purge_batch_size(self) -> int: ...
    @property
    def purge_dead(self) -> bool: ...
    @property
    def delivers(self) -> bool: ...
    @property
    def metrics(self) -> MetricsExporter: ...
    @property
    def interceptors(self) -> Sequence[EventInterceptor]: ...
    @property
    def in_flight_tracker(self) -> InFlightTracker | None: ...
    @property
    def writer_hook(self) -> WriterHook | None: ...


@dataclass(frozen=True, slots=True)
class DrainResult:
    """What drain() did. `is_complete` is False when the time was over before nothing was due."""

    delivered: int
    retried: int
    deferred: int
    dead: int
    is_complete: bool


@dataclass(frozen=True, slots=True)
class Stats:
    """Rows in the table that are not done, events in memory, and what was counted since start."""

    backlog: Backlog
    hot_depth: int
    cold_depth: int
    held: int
    unsettled: int
    counters: dict[str, int]


@dataclass(frozen=True, slots=True)
class Health:
    """Whether every loop makes progress; if not, what stands still."""

    is_healthy: bool
    problems: tuple[str, ...] = ()


class Engine:
    """Built anew for every start, with an owner id of its own: what an earlier one held is not this one's."""

    def __init__(
        self, runtime: Runtime, store: EventStore, records: Records, registry: ListenerRegistry, options: EngineOptions
    ) -> None:
        self.runtime = runtime
        self.owner = str(uuid4())
        self.is_started = False
        self._store = store
        self._records = records
        self._registry = registry
        self._options = options
        self.meter = Meter(runtime, options.metrics)
        self.held = Held(runtime)
        self.settler = Settler(
            runtime,
            store,
            self.held,
            self.meter,
            capacity=options.hot_queue_capacity + options.cold_queue_capacity,
            on_due=self._due_in,
        )
        self.poller = OutboxPoller(
            runtime, store, self.settler, self.meter, self._poller_options(), is_needed=self._has_listeners
        )
        self.dispatcher = OutboxDispatcher(
            runtime,
            store,
            self._delivery(),
            self.settler,
            self.held,
            self.meter,
            worker_count=options.worker_count,
            hot_queue_capacity=options.hot_queue_capacity,
            cold_queue_capacity=options.cold_queue_capacity,
            on_room=self.poller.wake,
        )
        self.poller.feed(self.dispatcher)
        self.hot_path = HotPathway(
            self.dispatcher,
            self.poller,
            self.meter,
            owner=self.owner,
            lock_timeout=options.lock_timeout,
            is_routable=self._is_routable,
        )
        self.writer = OutboxWriter(
            runtime,
            store,
            self.meter,
            hook=options.writer_hook,
            hot_path=self.hot_path if options.delivers else None,
        )
        self.keeper = Keeper(runtime, store, self.held, lock_timeout=options.lock_timeout)
        self.purge = Purge(
            runtime,
            records,
            retention=options.purge_retention or timedelta(0),
            interval=options.purge_interval,
            batch_size=options.purge_batch_size,
            dead=options.purge_dead,
            by_age=not options.delivers,
        )

    def _poller_options(self) -> PollerOptions:
        return PollerOptions(
            owner=self.owner,
            interval=self._options.poll_interval,
            batch_size=self._options.batch_size,
            skip_recent=self._options.skip_recent,
            lock_timeout=self._options.lock_timeout,
            max_abandoned=self._options.max_abandoned,
        )

    def _delivery(self) -> Delivery:
        return Delivery(
            self.runtime,
            self._registry,
            self.meter,
            Rules(self._options.retry_policy, self._options.max_attempts, self._options.unroutable_grace),
            interceptors=self._options.interceptors,
            tracker=self._options.in_flight_tracker,
        )

    def _due_in(self, seconds: float) -> None:
        self.poller.due_in(seconds)

    def _has_listeners(self) -> bool:
        """A registry that cannot be counted is taken to have some."""
        try:
            return len(self._registry) > 0  # type: ignore[arg-type]
        except TypeError:
            return True

    def _is_routable(self, event: EventEnvelope) -> bool:
        try:
            return self._registry.listener_for(event.aggregate_type, event.event_type) is not None
        except Exception:
            return False  # the delivery will say what is wrong with the registry

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        await self._store.open()
        self.is_started = True
        if self._options.delivers:
            self.keeper.start()
            self.settler.start()
            self.dispatcher.start()
            self.hot_path.is_active, self.hot_path.is_open = True, self._options.hot_path
        for service in self._optional_services():
            service.start()

    def _optional_services(self) -> list[Service]:
        services: list[Service] = []
        if self._options.delivers and self._options.poller_enabled:
            services.append(self.poller)
        if self._options.purge_retention is not None:
            services.append(self.purge)
        return services

    async def stop(self) -> None:
        """Everything ends, in the order of the walk; the keeper is last, so that no lease runs out meanwhile."""
        self.is_started = False
        self.hot_path.is_active = self.hot_path.is_open = False
        await self.purge.stop()
        await self.poller.stop()
        await self.dispatcher.close(self._options.drain_timeout)
        await self.settler.finish(self._options.drain_timeout.total_seconds())
        await self.keeper.stop()
        await self.runtime.close()

    # ------------------------------------------------------------ by hand

    async def poll(self) -> int:
        """One cycle: through the workers when they run, else in the caller's thread or task."""
        await self._store.open()
        if not self.is_started:
            return await self._deliver_here()
        if self._options.poller_enabled:
            return await self.poller.next_cycle(None) or 0
        return await self.poller.cycle()

    async def _deliver_here(self) -> int:
        """Claim once and deliver one after the other."""
        if not self._has_listeners():
            return 0
        claim = await self.poller.claim(self._options.batch_size)
        rows = self.poller.deliverable(claim)
        try:
            while rows:
                await self._deliver_one(rows.pop(0))
        finally:
            for row in rows:
                self.settler.add(Holding(row.lease, row), RELEASE)
            await self.settler.flush()
        return len(claim.rows)

    async def _deliver_one(self, row: Claimed) -> None:
        holding = self.held.admit(row)
        if holding is None:
            return
        try:
            await self.dispatcher.deliver(holding)
        except BaseException:  # a cancellation, or Ctrl-C in the handler: the caller ends, the event does not
            self.settler.add(holding, RELEASE)
            raise

    async def drain(self, timeout: float | None) -> DrainResult:
        """Deliver until nothing is due."""
        await self._store.open()
        before = self.meter.counts()
        until = None if timeout is None else self.runtime.clock() + timeout
        is_complete = await (self._drain_services(until) if self.is_started else self._drain_here(until))
        counts = self.meter.counts()

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
        keeper = Keeper(self.runtime, self._store, self.held, lock_timeout=self._options.lock_timeout)
        keeper.start()
        try:
            while until is None or self.runtime.clock() < until:
                is_partial = self.poller.has_floor
                if not await self._deliver_here() and not is_partial:
                    return True
            return False
        finally:
            await keeper.stop()

    async def _drain_services(self, until: float | None) -> bool:
        while True:
            rest = None if until is None else max(0.0, until - self.runtime.clock())
            if not await self.dispatcher.channel.quiet(rest):
                return False
            await self.settler.flush()
            if not self._options.poller_enabled:
                claimed: int | None = await self.poller.cycle()
            else:
                claimed = await self.poller.next_cycle(rest)
            if claimed is None and (until is None or self.runtime.clock() >= until):
                return False
            if (
                claimed == 0
                and not self.poller.has_floor
                and self.dispatcher.channel.is_quiet
                and not self.settler.unsettled
            ):
                return True

    # ------------------------------------------------------------ seeing

    async def stats(self) -> Stats:
        await self._store.open()
        return Stats(
            backlog=await self._records.backlog(),
            hot_depth=self.dispatcher.channel.hot_depth,
            cold_depth=self.dispatcher.channel.cold_depth,
            held=len(self.held),
            unsettled=self.settler.unsettled,
            counters=self.meter.counts(),
        )

    def health(self) -> Health:
        """Not started is not healthy; nor is a loop that has only failed since its last three turns were due."""
        if not self.is_started:
            return Health(False, ("the outbox is not started",))
        problems = []
        for service in [self.keeper, self.settler, *self._optional_services()]:
            if service.failures_in_a_row >= 3:
                problems.append(f"{service.name} has failed {service.failures_in_a_row} times in a row")
        idle = self.runtime.clock() - self.poller.progressed_at
        limit = 3 * self._options.poll_interval.total_seconds() + 1
        if self.poller in self._optional_services() and idle > limit:
            problems.append(f"the poller has not come round for {idle:.0f} s")
        return Health(not problems, tuple(problems))
