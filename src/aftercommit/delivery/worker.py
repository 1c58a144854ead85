"""Hands events to workers: takes hot and claimed rows, and lets nothing run whose lease may be over. The hot path is
the short way from a commit to a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from msgspec.structs import replace

from aftercommit.config import OutboxConfig
from aftercommit.delivery.agenda import EVERYWHERE, Agenda
from aftercommit.delivery.batches import Batches
from aftercommit.delivery.chain import Delivery
from aftercommit.delivery.lanes import Lanes
from aftercommit.delivery.leases import Held, Holding, holding_of
from aftercommit.delivery.outcomes import goes_on, rule_of
from aftercommit.delivery.ownership import Ownership
from aftercommit.delivery.settler import Settler
from aftercommit.delivery.starts import Starts
from aftercommit.delivery.wakeups import Announcer
from aftercommit.events.claims import Claimed
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.log import Log
from aftercommit.events.order import OrderKey
from aftercommit.events.outcome import RELEASE
from aftercommit.events.redact import error_text
from aftercommit.handlers.routing import Router
from aftercommit.meter import Meter
from aftercommit.ports import EventStore, Runtime, Task
from aftercommit.service import Countdown

log = Log("aftercommit.dispatcher")

#: Seconds that a cancelled async handler gets for its clean-up, after the drain.
LAST_CHANCE = 1.0
#: Seconds to wait for each worker when one of them is stuck in a handler.
LEFT_BEHIND = 0.05


class OutboxDispatcher:
    """The workers that drain the lanes. `enqueue_*` may be called from any thread and never block."""

    def __init__(
        self,
        runtime: Runtime,
        store: EventStore,
        lanes: Lanes[Holding],
        delivery: Delivery,
        settler: Settler,
        held: Held,
        ownership: Ownership,
        meter: Meter,
        config: OutboxConfig,
    ) -> None:
        self._runtime = runtime
        self.lanes = lanes
        self._delivery, self._settler, self._meter = delivery, settler, meter
        self._held, self._ownership = held, ownership
        self._worker_count, self._rule = config.worker_count, rule_of(config)
        self._enough_room = max(1, config.cold_queue_capacity // 2) if config.lease_ahead else 1
        self.starts = Starts(runtime, store, lanes, settler, ownership, meter)
        self.batches = Batches(runtime, lanes, delivery, settler, self.starts, meter, self._rule)
        self._roster = delivery.router.roster
        self.workers: list[Task] = []

    def start(self) -> None:
        if not self.workers:
            self.workers = [
                self._runtime.spawn(f"aftercommit-worker-{number}", self._work) for number in range(self._worker_count)
            ]

    # ------------------------------------------------------------ offering

    def fill_hot(self, claimed: Claimed) -> bool:
        """Use a reserved slot for an event whose commit was seen."""
        if self._runtime.clock() >= claimed.lease.deadline:
            self.lanes.cancel(1)
            self._settler.add(holding_of(claimed), RELEASE)
            return False
        admitted = self._held.admit((claimed,))
        if not admitted:  # a poll was faster than this commit's callback
            self.lanes.cancel(1)
            return True
        if self._roster.has_batches:
            self.batches.mark(admitted)
        if not self.lanes.fill(admitted[0]):
            self._settler.add(admitted[0], RELEASE)
            return False
        self._enqueued("hot_enqueued", 1)
        return True

    def give_back_if_leased(self, claimed: Claimed) -> None:
        """Free for anybody now, whether it was born leased or not; who never had the lease has lost none."""
        self._settler.add(holding_of(claimed), RELEASE).is_ambiguous = True

    def enqueue_hot(self, claimed: Claimed) -> bool:
        """False when the hot lane is full or closed."""
        return self.lanes.reserve(1) == 1 and self.fill_hot(claimed)

    def enqueue_cold(self, claimed: Claimed, *followers: Claimed) -> bool:
        """False when the cold lane has no room for them all, or is closed."""
        return self.enqueue_all((claimed, *followers))

    def enqueue_all(self, rows: Iterable[Claimed]) -> bool:
        """Events of one key together, in their order. False when the cold lane has no room for all of them."""
        admitted = self._held.admit(rows)
        if not admitted:
            return True
        if self._roster.has_batches:
            self.batches.mark(admitted)
        if not self.lanes.offer(admitted):
            for holding in admitted:
                self._settler.let_go(holding, holding.lease.epoch)
            return False
        self._enqueued("cold_enqueued", len(admitted))
        return True

    handle = enqueue_cold

    def _enqueued(self, lane: str, count: int) -> None:
        self._meter.count(lane, count)
        if self._meter.exports:
            self._record_depths()

    def has_cold_queue_capacity(self) -> bool:
        return self.lanes.cold_room > 0

    def room(self) -> int:
        """Free cold slots; none while more than half of them are taken. A claim costs more than a row: few rows at a
        time, as workers take them, would be many claims. The agenda hears once enough of them are free."""
        if (room := self.lanes.cold_room) >= self._enough_room:
            return room
        self.lanes.want_room(self._enough_room)
        return 0

    # ------------------------------------------------------------ working

    async def _work(self) -> None:
        while (holding := self.lanes.take_now() or await self.lanes.take()) is not None:
            next_may_follow = False
            if holding.route is not None:
                await self.batches.work(holding, holding.route)
            else:
                try:
                    next_may_follow = await self.deliver(holding)
                except Exception as error:
                    # Nothing of a user's gets here; a fault of ours must cost neither the worker nor the row.
                    log.error("the delivery of %s broke off: %s", holding, error_text(error), error=error)
                    if not holding.is_reported:
                        self._settler.add(holding, RELEASE)
                finally:
                    if leaving := self.lanes.finished(holding, goes_on=next_may_follow):
                        self._settler.release(leaving)
            if self._meter.exports:
                self._record_depths()
            if not self._settler.has_space:
                await self._settler.space()

    async def deliver(self, holding: Holding) -> bool:
        """One event, from the last look at its lease to its outcome in the settler's hands; whether the next one of its
        key may follow."""
        claimed, key = holding.claimed, holding.order_key
        if claimed is None:
            raise ValueError(f"{holding} cannot be decoded, and such a row is never offered")
        now = self._runtime.clock()
        if now >= holding.lease.deadline or holding.is_overtaken or (key is not None and not self._ownership.has(key)):
            log.debug("%s waited in memory past its lease and is left to the table", holding)
            self._settler.add(holding, RELEASE)
            return False
        if holding.is_suspect and not await self.starts.may_suspect(holding):
            return False
        if self.starts.is_giving_up:
            self._settler.add(holding, RELEASE)
            return False
        # The clock is not read twice for nothing.
        holding.is_running, holding.began_at = True, self._runtime.clock() if holding.is_suspect else now
        if self._meter.exports:
            self._meter.record("dispatch_latency_ms", (holding.began_at - holding.since) * 1000)
        if claimed.lease.epoch != holding.lease.epoch:  # claimed anew while it waited
            claimed = holding.claimed = replace(claimed, lease=holding.lease)
        outcome = await self._delivery.deliver(claimed)
        holding.is_running = False
        entry = self._settler.add(holding, outcome)
        if holding.is_suspect:
            # It keeps its place until its outcome is written: what runs next may kill the process.
            await self._settler.answered(entry)
        if key is None:
            return True
        # A lease that was lost meanwhile is another's, and so is what comes after it.
        is_kept = self._runtime.clock() < holding.lease.deadline and not holding.is_overtaken
        return is_kept and goes_on(outcome, self._rule)

    def give_back(self, leaves: Callable[[OrderKey], bool]) -> None:
        """What waits of some keys is free for others at once. From any thread."""
        self._settler.release(self.lanes.give_back(leaves))

    def _record_depths(self) -> None:
        self._meter.record("queue_depths", self.lanes.hot_depth, self.lanes.cold_depth)

    async def close(self, drain_timeout: timedelta) -> None:
        """Take nothing new, finish what waits within the time, give back the rest."""
        self.lanes.close()
        limit = drain_timeout.total_seconds()
        if self.workers and not await self.lanes.quiet(limit, or_else=lambda: self.starts.is_giving_up):
            await self._give_up()
        self._settler.release(self.lanes.clear())
        self._settler.let_all_pass()
        time = Countdown(self._runtime)
        for worker in self.workers:
            await worker.join(time.left() if self.lanes.is_quiet else LEFT_BEHIND)
        self.workers = []

    async def _give_up(self) -> None:
        """The time is over: who does not end now is named."""
        self.hurry()
        if await self.lanes.quiet(LAST_CHANCE):
            return
        for holding in self._held.running():
            log.warning(
                "%s still runs after close(); its lease stays until it expires and the event is then delivered again",
                holding,
            )

    def hurry(self) -> None:
        """The drain is over: waiting events go back, and async handlers are cancelled; nobody can end a sync one."""
        self.starts.is_giving_up = True
        self._settler.release(self.lanes.clear())
        self._runtime.interrupt()


class HotPathway:
    """Reserves slots for events that this process can deliver. Closed, it lets every row be born free."""

    def __init__(
        self,
        dispatcher: OutboxDispatcher,
        agenda: Agenda,
        router: Router,
        meter: Meter,
        config: OutboxConfig,
        announcer: Announcer | None,
        *,
        owner: str,
    ) -> None:
        """The announcer tells other processes of rows that are left to them, where the store can."""
        self.owner = owner
        self.lock_timeout = config.lock_timeout
        #: Whether workers and poller run, and whether events may come to them from memory.
        self.is_active = False
        self.is_open = False
        self._dispatcher, self._agenda, self._announcer = dispatcher, agenda, announcer
        self._router, self._meter = router, meter

    def reserve(self, events: Sequence[EventEnvelope], *, with_firsts: bool = True) -> list[bool]:
        if not self.is_open:
            return [False] * len(events)
        wanted = self._wanted(events, with_firsts=with_firsts)
        granted = self._dispatcher.lanes.reserve(sum(wanted))  # filled or cancelled later
        if granted == sum(wanted):
            return wanted
        hot = []
        for wants in wanted:
            hot.append(wants and granted > 0)
            granted -= hot[-1]
        return hot

    def _wanted(self, events: Sequence[EventEnvelope], *, with_firsts: bool) -> list[bool]:
        return [self._may_be_hot(event) for event in events]

    def _may_be_hot(self, event: EventEnvelope) -> bool:
        return not event.is_delayed

    def fill(self, claimed: Sequence[Claimed]) -> None:
        for each in claimed:
            self._dispatcher.fill_hot(each)

    def cancel(self, count: int) -> None:
        self._dispatcher.lanes.cancel(count)

    # Only where order is kept does anything follow another event.
    def expect(self, events: Sequence[EventEnvelope]) -> None: ...
    def not_expected(self, events: Sequence[EventEnvelope]) -> None: ...
    def give_back(self, claimed: Sequence[Claimed]) -> None: ...

    def left_in_table(self, events: Sequence[EventEnvelope]) -> None:
        """Committed, and free: let somebody look, and count what should have been hot."""
        self._tell(events)
        if not self.is_open:
            return
        dropped = 0
        for event in events:
            if event.is_delayed:
                self._meter.count("hot_skipped_delayed")
            elif self._may_be_hot(event) and self._router.is_routable(event):
                dropped += 1
        if dropped:
            self._meter.count("hot_dropped", dropped)
            if self._meter.may_say("hot_dropped"):
                log.warning("the hot lane is full: %d events are left to the poller", dropped)

    def _tell(self, events: Sequence[EventEnvelope]) -> None:
        self._agenda.wrote(EVERYWHERE)
        if self._announcer is not None:
            self._announcer.tell_everything()

    def unseen(self, events: Sequence[EventEnvelope]) -> None:
        self._agenda.expect([event.event_id for event in events], self._keys(events))

    def _keys(self, events: Sequence[EventEnvelope]) -> Sequence[OrderKey]:
        """What the poller is told to look at; nothing where it looks by time."""
        return ()
