"""All services of one outbox between start and close, in the order in which they need each other."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from os import getpid
from platform import node
from typing import Final
from uuid import uuid4

from aftercommit.delivery.chain import Rules
from aftercommit.delivery.delivery import Delivery
from aftercommit.delivery.keeper import Keeper
from aftercommit.delivery.leases import Held
from aftercommit.delivery.settler import Settler
from aftercommit.delivery.worker import OutboxDispatcher
from aftercommit.errors import InvalidOption
from aftercommit.events.claims import Backlog
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.fleet import Cluster, Instance
from aftercommit.events.order import BlockedKey, KeyRule, OrderKey
from aftercommit.handlers.routing import Router
from aftercommit.meter import Meter
from aftercommit.ordering.fleet import cluster_of
from aftercommit.ordering.ordering import Ordering
from aftercommit.polling.due import PollerOptions
from aftercommit.polling.hotpath import HotPathway
from aftercommit.polling.manual import ByHand
from aftercommit.polling.options import EngineOptions
from aftercommit.polling.poller import OutboxPoller
from aftercommit.polling.upkeep import Purge
from aftercommit.ports import EventStore, Records, Runtime
from aftercommit.service import Service
from aftercommit.writing.writer import OutboxWriter

log = logging.getLogger("aftercommit.engine")

_BLOCKED_AT_MOST: Final = 100


@dataclass(frozen=True, slots=True)
class Stats:
    """Rows in the table that are not done, events in memory, and what was counted since start."""

    backlog: Backlog
    hot_depth: int
    cold_depth: int
    held: int
    unsettled: int
    counters: dict[str, int]
    #: Rows met since start that nobody in this process can handle, by the handler or route that they wait for.
    unroutable: dict[str, int]
    #: Destinations that handlers have called unavailable and that are not back yet.
    unavailable: tuple[str, ...]
    #: Keys that stand still behind a dead event, where order is kept and a dead event blocks; the first hundred.
    blocked: tuple[BlockedKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Health:
    """Whether every loop makes progress; if not, what stands still."""

    is_healthy: bool
    problems: tuple[str, ...] = ()


class Engine:
    """Built anew for every start, with an owner id of its own: what an earlier one held is not this one's."""

    def __init__(
        self, runtime: Runtime, store: EventStore, records: Records, router: Router, options: EngineOptions
    ) -> None:
        self.runtime = runtime
        self.owner = str(uuid4())
        self.is_started = False
        self._store = store
        self._records = records
        self._router = router
        self._options = options
        self.meter = Meter(runtime, options.metrics)
        self.held = Held(runtime)
        self.ordering = self._ordering() if options.ordered else None
        self.settler = Settler(
            runtime,
            store,
            self.held,
            self.meter,
            capacity=options.hot_queue_capacity + options.cold_queue_capacity,
            on_due=self._due_in,
            on_lost=lambda lost: self.dispatcher.give_back(lambda key: key == lost),
            blocks=self._rule().blocks,
        )
        self.delivery = self._delivery()
        self.poller = OutboxPoller(
            runtime,
            store,
            self.settler,
            self.meter,
            self._poller_options(),
            look=self.ordering.by_key(runtime, self._poller_options()) if self.ordering else None,
            is_needed=self._has_listeners,
            has_fallback=self.delivery.has_fallback,
        )
        self.dispatcher = OutboxDispatcher(
            runtime,
            store,
            self.delivery,
            self.settler,
            self.held,
            self.meter,
            worker_count=options.worker_count,
            hot_queue_capacity=options.hot_queue_capacity,
            cold_queue_capacity=options.cold_queue_capacity,
            rule=self._rule(),
            is_mine=self.ordering.is_mine if self.ordering else lambda _: True,
            on_room=self.poller.go_on,
        )
        self.poller.feed(self.dispatcher)
        if self.ordering is not None:
            self.ordering.connect(self.poller, self.dispatcher)
        self.hot_path = HotPathway(
            self.dispatcher,
            self.poller,
            self.meter,
            owner=self.owner,
            lock_timeout=options.lock_timeout,
            is_routable=self._is_routable,
            on_ordered=self.ordering.committed if self.ordering else None,
        )
        self.writer = OutboxWriter(
            runtime,
            store,
            self.meter,
            hook=options.writer_hook,
            hot_path=self.hot_path if options.delivers or self.ordering else None,
            rows_of=router.rows_of,
        )
        self.by_hand = ByHand(
            runtime,
            store,
            self.poller,
            self.dispatcher,
            self.settler,
            self.held,
            self.meter,
            options,
            has_listeners=self._has_listeners,
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
            max_interval=self._options.max_poll_interval,
            rule=self._rule(),
        )

    def _rule(self) -> KeyRule:
        return KeyRule(stops=self._options.stop_on_first_failure, blocks=self._options.on_dead == "block")

    def _ordering(self) -> Ordering:
        instance = Instance(self.owner, node(), getpid())
        return Ordering(self.runtime, self._store, self.meter, instance, self._options, self.held)

    def _delivery(self) -> Delivery:
        return Delivery(
            self.runtime,
            self._router,
            self.meter,
            Rules(
                self._options.retry_policy,
                self._options.max_attempts,
                self._options.unroutable_grace,
                self._options.max_abandoned,
            ),
            interceptors=self._options.interceptors,
            tracker=self._options.in_flight_tracker,
        )

    def _due_in(self, seconds: float, key: OrderKey | None) -> None:
        if self.ordering is None or key is None:
            self.poller.due_in(seconds)
        else:
            self.ordering.due_in(seconds, key)

    def unblocked(self) -> None:
        """Dead events were replayed or discarded."""
        self.poller.wake()
        if self.ordering is not None:
            self.ordering.unblocked()

    def _has_listeners(self) -> bool:
        return bool(self._router)

    def _is_routable(self, event: EventEnvelope) -> bool:
        try:
            return len(self._router.routes_of(event)) > 0
        except Exception:
            return False  # the delivery will say what is wrong with the registry

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        self.is_started = True  # at once: another start while this one opens the store has nothing to do
        try:
            await self._store.open()
        except BaseException:
            self.is_started = False
            raise
        if self.ordering is not None:
            await self._joined(self.ordering)
        if self._options.delivers:
            self.keeper.start()
            self.settler.start()
            self.dispatcher.start()
            self.hot_path.is_open = self._options.hot_path
        self.hot_path.is_active = True
        for service in self._optional_services():
            service.start()

    async def _joined(self, ordering: Ordering) -> None:
        try:
            await ordering.start()
        except BaseException:
            self.is_started = False
            await ordering.stop()
            raise

    def _optional_services(self) -> list[Service]:
        services: list[Service] = []
        if self._options.delivers and self._options.poller_enabled:
            services.append(self.poller)
        if self._options.purge_retention is not None:
            services.append(self.purge)
        return services

    def _services(self) -> list[Service]:
        ordering = self.ordering.services if self.ordering is not None else []
        return [self.keeper, self.settler, *self._optional_services(), *ordering]

    async def stop(self) -> None:
        """Everything ends, in the order of the walk; the keeper is last, so that no lease runs out meanwhile."""
        self.is_started = False
        self.hot_path.is_active = self.hot_path.is_open = False
        await self.purge.stop()
        await self.poller.stop()
        await self.dispatcher.close(self._options.drain_timeout)
        await self.settler.finish(self._options.drain_timeout.total_seconds())
        if self.ordering is not None:
            await self.ordering.stop()
        await self.keeper.stop()
        await self.runtime.close()

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
            unroutable=self.delivery.strays.counts(),
            unavailable=self.delivery.chain.circuits.open(),
            blocked=tuple(await self._blocked()),
        )

    async def _blocked(self) -> list[BlockedKey]:
        if self.ordering is None or not self._rule().blocks:
            return []
        return await self._records.blocked(_BLOCKED_AT_MOST)

    async def cluster(self) -> Cluster:
        await self._store.open()
        membership = self._store.membership
        if membership is None:
            raise InvalidOption(f"{self._store!r} knows no fleet", fix="use a store that has a membership")
        return await cluster_of(membership, me=self.owner, stale_timeout=self._options.stale_timeout)

    def health(self) -> Health:
        """Not started is not healthy; nor is a loop that has only failed since its last three turns were due."""
        if not self.is_started:
            return Health(False, ("the outbox is not started",))
        problems = []
        for service in self._services():
            if service.failures_in_a_row >= 3:
                problems.append(f"{service.name} has failed {service.failures_in_a_row} times in a row")
        for name, count in self.delivery.chain.gates.stuck().items():
            problems.append(f"{count} calls of the handler {name} are past its timeout and still run")
        idle = self.runtime.clock() - self.poller.progressed_at
        limit = 3 * (self._options.max_poll_interval or self._options.poll_interval).total_seconds() + 1
        if self.poller in self._optional_services() and idle > limit:
            problems.append(f"the poller has not come round for {idle:.0f} s")
        return Health(not problems, tuple(problems))
