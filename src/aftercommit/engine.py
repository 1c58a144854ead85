"""All services of one outbox between start and close, in the order in which they need each other."""

from __future__ import annotations

from datetime import timedelta
from os import getpid
from platform import node

import msgspec

from aftercommit.assembly import Assembly
from aftercommit.config import OutboxConfig
from aftercommit.delivery.agenda import EVERYWHERE, Agenda
from aftercommit.delivery.outcomes import rule_of
from aftercommit.delivery.pauses import PauseWatch
from aftercommit.delivery.resources import Resources
from aftercommit.delivery.wakeups import Announcer, News, WakeupListener
from aftercommit.delivery.worker import HotPathway
from aftercommit.errors import InvalidOption, StoreUnavailable
from aftercommit.events.claims import Backlog
from aftercommit.events.log import Log
from aftercommit.events.measures import BLOCKED_AT_MOST
from aftercommit.events.order import BlockedKey, Cluster, Instance
from aftercommit.events.outcome import Ok, Raised
from aftercommit.events.pauses import Pause
from aftercommit.handlers.routing import Router
from aftercommit.health import NOT_STARTED, Checkup, Health, Question, SlotWatch
from aftercommit.ordering.collector import Collector
from aftercommit.ordering.fleet import Fleet, cluster_of
from aftercommit.ordering.keys import LookByKey, OrderedHotPath
from aftercommit.polling.due import Look, LookByTime
from aftercommit.polling.manual import ManualDelivery
from aftercommit.polling.poller import OutboxPoller
from aftercommit.polling.upkeep import Purge
from aftercommit.ports import EventStore, Runtime
from aftercommit.service import Countdown, Service, Troubles
from aftercommit.spans import TracedWrites
from aftercommit.writing.writer import OutboxWriter

log = Log("aftercommit.engine")


class Stats(msgspec.Struct, frozen=True):
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
    #: Handlers and event types that are paused over the fleet.
    paused: tuple[Pause, ...] = ()


class Engine(Assembly):
    """Built anew for every start: the rooms that all share, and over them those of the fleet, of looking into the table
    and of writing, from the bottom up, each with what it needs of those below it."""

    def __init__(self, runtime: Runtime, store: EventStore, router: Router, config: OutboxConfig) -> None:
        if config.ordered and not store.capabilities.keeps_order:
            raise InvalidOption(
                f"ordered=True needs a store that claims in order, and {store!r} has no heads() and claim_keys()",
                fix="leave ordered out, or use another store",
            )
        super().__init__(runtime, store, router, config)
        #: start() was called, and has come to its end.
        self.is_started = self.has_started = False
        owner, meter, agenda, settler, held = self.owner, self.meter, self.agenda, self.settler, self.held
        self._announcer, self._fleet, self._listener = self._company()
        look: Look
        if config.ordered:
            look = LookByKey(runtime, store, agenda, self.ownership, config, owner=owner)
            self.hot_path: HotPathway = OrderedHotPath(
                self.dispatcher,
                self._told_of_commits(),
                router,
                meter,
                config,
                self._announcer,
                self.ownership,
                held,
                owner=owner,
                leases_firsts=store.capabilities.leases_firsts,
            )
        else:
            look = LookByTime(runtime, store, config, owner=owner)
            self.hot_path = HotPathway(
                self.dispatcher, self._told_of_commits(), router, meter, config, self._announcer, owner=owner
            )
        is_woken = config.ordered or self._listener is not None
        self.poller = OutboxPoller(
            runtime, look, self.dispatcher, self.delivery, agenda, settler, meter, config, is_woken=is_woken
        )
        hot_path = self.hot_path if config.delivers or self._announcer is not None else None
        hook = config.writer_hook if self.spans is None else TracedWrites(self.spans, config.writer_hook)
        self.writer = OutboxWriter(runtime, store, meter, hook=hook, hot_path=hot_path, rows_of=router.rows_of)
        self.manual = ManualDelivery(runtime, store, router, self.poller, self.dispatcher, settler, held, meter, config)
        self._pause_watch = PauseWatch(runtime, self.delivery.pauses)
        self._resources = Resources(runtime, router.resources)
        self.purge = Purge(runtime, store.records, config)
        self.checkup = Checkup(self, runtime, store, self.poller, config)
        self._statistics = Question(runtime, "aftercommit-stats", self._stats)
        replication = store.replication if config.replication is not None else None
        self._slot_watch = None if replication is None else SlotWatch(runtime, replication)
        #: Only for an exporter. What it cannot find out says nothing of the health of the others.
        self.collector = Collector(runtime, store, meter, config, owner=owner) if meter.exports else None
        troubles = Troubles(runtime, is_outage=lambda error: store.outage(error) is not None)
        for service in filter(None, (*self._services(), self.collector)):
            service.troubles = troubles

    def _company(self) -> tuple[Announcer | None, Fleet | None, WakeupListener | None]:
        """Who tells the other instances, who shares the keys with them, and who hears them, where the store can."""
        wakeups, membership = self._store.wakeups if self._config.wakeups else None, self._store.membership
        announcer = None if wakeups is None else Announcer(self.runtime, wakeups, self.owner, self.meter)
        if not self._polls:
            return announcer, None, None
        fleet = None
        if self._config.ordered and membership is not None:
            me = Instance(self.owner, node(), getpid())
            fleet = Fleet(
                self.runtime,
                membership,
                me,
                self.ownership,
                self.dispatcher,
                self.agenda,
                announcer,
                self.meter,
                self._config,
            )
        if wakeups is None:
            return None, fleet, None
        coordinator, pauses = None if fleet is None else fleet.coordinator, self.delivery.pauses
        listener = WakeupListener(
            self.runtime, wakeups, self.owner, self.meter, self._told_of_commits(), self.ownership, coordinator, pauses
        )
        return announcer, fleet, listener

    def _told_of_commits(self) -> Agenda:
        """Who hears of them: of this process's, and of others'."""
        return self.agenda

    @property
    def _polls(self) -> bool:
        return self._config.delivers and self._config.poller_enabled

    def unblocked(self) -> None:
        """Dead events were replayed or discarded, of whatever keys."""
        self.agenda.add(EVERYWHERE)
        if self._announcer is not None:
            self._announcer.tell_everything()

    async def repaused(self) -> None:
        """Something was paused or resumed: known here at once, and elsewhere when it is heard or looked for."""
        self.delivery.pauses.call()
        await self.delivery.pauses.look()
        if self._announcer is not None and self.is_started:
            self._announcer.tell_pauses()
        elif self._announcer is not None:
            await self._announcer.say(News(self.owner, pauses=True))

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        self.is_started = True  # at once: another start while this one opens the store has nothing to do
        try:
            await self._store.open()
        except BaseException:
            self.is_started = False
            raise
        for warning in self._store.warnings:
            log.warning("%s", warning)
        await self._join()
        if self._config.delivers:
            self._resources.open()
            self.start_delivering()
            self.hot_path.is_open = self._config.hot_path
        self.hot_path.is_active = True
        for service in self._optional_services():
            service.start()
        self.has_started = self.is_started  # unless it was closed meanwhile
        if self.collector is not None:
            self.collector.start()
            self.collector.call()
        self._tell("started")

    def _tell(self, what: str) -> None:
        where, handlers = self._store.where, self.router.count()
        log.info(
            "%s: %s, owner %s, %s handlers", what, where, self.owner, "some" if handlers is None else handlers,
            store=where, owner=self.owner, handlers=handlers,
        )  # fmt: skip

    async def _join(self) -> None:
        """Become one of the fleet. A process that delivers nothing owns nothing, and only tells the others."""
        try:
            for messenger in (self._announcer, self._listener):
                if messenger is not None:
                    messenger.start()
            if self._fleet is not None:
                await self._fleet.start()
            elif self._config.ordered and not self._polls:
                self.ownership.share()
        except BaseException:
            self.is_started = False
            await self._leave(Countdown(self.runtime))
            raise

    async def _leave(self, time: Countdown) -> None:
        """Sign off, and let the others know."""
        if self._fleet is not None:
            await self._fleet.stop(time)
        for messenger in (self._listener, self._announcer):
            if messenger is not None:
                await messenger.stop(time.left())

    def _optional_services(self) -> list[Service]:
        services: list[Service] = []
        if self._polls:
            services.append(self.poller)
        elif self._config.delivers and self._store.pauses is not None:
            services.append(self._pause_watch)
        if self._config.purge_retention is not None:
            services.append(self.purge)
        if self._slot_watch is not None:
            services.append(self._slot_watch)
        return services

    def _services(self) -> list[Service]:
        fleet = self._fleet.services if self._fleet is not None else ()
        others = [service for service in (*fleet, self._announcer, self._listener) if service is not None]
        return [self.keeper, self.settler, *self._optional_services(), *others]

    async def stop(self) -> None:
        """Everything ends, in the order of the walk; the keeper is last, so that no lease runs out meanwhile. Nothing
        here waits for the store itself: a loop that does is left behind when its time is over."""
        self.is_started, was_started, self.has_started = False, self.has_started, False
        self.hot_path.is_active = self.hot_path.is_open = False
        time = Countdown(self.runtime)
        if self.collector is not None:
            await self.collector.stop(time.left())
        await self.purge.stop(time.left())
        await self.poller.stop(time.left())
        await self._pause_watch.stop(time.left())
        if self._slot_watch is not None:
            await self._slot_watch.stop(time.left())
        await self.stop_delivering(self._config.drain_timeout)
        await self._resources.close()
        time = Countdown(self.runtime)
        await self._leave(time)
        await self.keeper.stop(time.left())
        await self.checkup.stop(time)
        await self._statistics.stop(time.left())
        if was_started:
            self._tell("stopped")
        await self.runtime.close()

    # ------------------------------------------------------------ seeing

    async def stats(self, timeout: float | None = None) -> Stats:
        """With a timeout the store is asked by a task of its own, which is left behind when it gets no answer."""
        if timeout is None:
            return await self._stats()
        match await self._statistics.answer(timeout):
            case Ok(Stats() as stats):
                return stats
            case Raised(error):
                raise error
            case _:
                raise StoreUnavailable(
                    f"{self._store.where} has not answered within {timeout:g} s", fix="see why, or give it more time"
                )

    async def _stats(self) -> Stats:
        await self._store.open()
        return Stats(
            backlog=await self._store.records.backlog(),
            hot_depth=self.lanes.hot_depth,
            cold_depth=self.lanes.cold_depth,
            held=len(self.held),
            unsettled=self.settler.unsettled,
            counters=self.meter.counts(),
            unroutable=self.delivery.strangers.counts(),
            unavailable=self.delivery.chain.circuits.open(),
            blocked=tuple(await self._blocked()),
            paused=() if self._store.pauses is None else tuple(await self._store.pauses.all()),
        )

    async def _blocked(self) -> list[BlockedKey]:
        if not self._config.ordered or not rule_of(self._config).blocks:
            return []
        return await self._store.records.blocked(BLOCKED_AT_MOST)

    async def cluster(self) -> Cluster:
        await self._store.open()
        membership = self._store.membership
        if membership is None:
            raise InvalidOption(f"{self._store!r} knows no fleet", fix="use a store that has a membership")
        return await cluster_of(membership, me=self.owner, stale_timeout=self._config.stale_timeout)

    def health(self) -> Health:
        """What is known here; asks no database."""
        if not self.is_started:
            return NOT_STARTED
        known = self.checkup.health(self._services(), has_started=self.has_started)
        return known if self._slot_watch is None else self._slot_watch.seen(known)

    async def check_health(self, max_backlog_age: timedelta | None, timeout: float) -> Health:
        return await self.checkup.asked(self.health(), max_backlog_age=max_backlog_age, timeout=timeout)
