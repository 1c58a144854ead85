"""Hands events to workers: reserves hot slots, takes claimed rows, and lets nothing run whose lease may be over."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import timedelta

from aftercommit.delivery.channel import Channel
from aftercommit.delivery.delivery import Delivery
from aftercommit.delivery.lanes import Lanes
from aftercommit.delivery.leases import Held, Holding
from aftercommit.delivery.outcomes import goes_on
from aftercommit.delivery.settler import Settler
from aftercommit.events.claims import Claimed
from aftercommit.events.order import STRICT, KeyRule, OrderKey
from aftercommit.events.outcome import RELEASE
from aftercommit.events.redact import traceback_text
from aftercommit.meter import Meter
from aftercommit.ports import EventStore, Runtime, Task

log = logging.getLogger("aftercommit.dispatcher")

#: Seconds that a cancelled async handler gets for its clean-up, after the drain.
LAST_CHANCE = 1.0

#: Seconds to wait for each worker when one of them is stuck in a handler.
LEFT_BEHIND = 0.05


class OutboxDispatcher:
    """Two lanes and the workers that drain them. `enqueue_*` may be called from any thread and never block."""

    def __init__(
        self,
        runtime: Runtime,
        store: EventStore,
        delivery: Delivery,
        settler: Settler,
        held: Held,
        meter: Meter,
        *,
        worker_count: int = 4,
        hot_queue_capacity: int = 1000,
        cold_queue_capacity: int = 1000,
        rule: KeyRule = STRICT,
        is_mine: Callable[[OrderKey], bool] = lambda _: True,
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        """`rule` says which outcomes let a key go on; `is_mine` whether an event of it may be started now."""
        self._runtime = runtime
        self._store = store
        self._delivery = delivery
        self._settler = settler
        self._held = held
        self._meter = meter
        self._worker_count = worker_count
        self._cold_queue_capacity = cold_queue_capacity
        self._rule = rule
        self._is_mine = is_mine
        self._workers: list[Task] = []
        self._is_giving_up = False
        lanes: Lanes[Holding] = Lanes(hot_capacity=hot_queue_capacity, cold_capacity=cold_queue_capacity)
        self.channel = Channel(runtime, lanes, on_room=on_room)

    def start(self) -> None:
        if not self._workers:
            self._workers = [
                self._runtime.spawn(f"aftercommit-worker-{number}", self._work) for number in range(self._worker_count)
            ]

    # ------------------------------------------------------------ offering

    def reserve_hot(self, count: int) -> int:
        """Set aside hot slots before a commit; how many it could. Each is filled or cancelled later."""
        return self.channel.reserve(count)

    def cancel_hot(self, count: int) -> None:
        self.channel.cancel(count)

    def fill_hot(self, claimed: Claimed) -> bool:
        """Use a reserved slot for an event whose commit was seen."""
        if self._is_over(claimed.lease.deadline):
            self.cancel_hot(1)
            self._settler.add(Holding(claimed.lease, claimed), RELEASE)
            return False
        holding = self._held.admit(claimed)
        if holding is None:  # a poll was faster than this commit's callback
            self.cancel_hot(1)
            return True
        if not self.channel.fill(holding):
            self._settler.add(holding, RELEASE)
            return False
        self._meter.count("hot_enqueued")
        self._record_depths()
        return True

    def enqueue_hot(self, claimed: Claimed) -> bool:
        """False when the hot lane is full or closed."""
        return self.reserve_hot(1) == 1 and self.fill_hot(claimed)

    def enqueue_cold(self, claimed: Claimed, *followers: Claimed) -> bool:
        """False when the cold lane has no room for them all, or is closed."""
        admitted = [self._held.admit(row) for row in (claimed, *followers)]
        holdings = [holding for holding in admitted if holding is not None]
        if not holdings:
            return True
        if not self.channel.offer(*holdings):
            self._held.drop(holdings)
            return False
        self._meter.count("cold_enqueued", len(holdings))
        self._record_depths()
        return True

    handle = enqueue_cold

    def has_cold_queue_capacity(self) -> bool:
        return self.channel.cold_room > 0

    def room(self) -> int:
        """Free cold slots. When there are none, `on_room` is called once half of them are."""
        room = self.channel.cold_room
        if room <= 0:
            self.channel.want_room(max(1, self._cold_queue_capacity // 2))
        return room

    # ------------------------------------------------------------ working

    async def _work(self) -> None:
        while (holding := await self.channel.take()) is not None:
            next_may_follow = False
            try:
                next_may_follow = await self.deliver(holding)
            except Exception as error:
                # Nothing of a user's gets here; a fault of ours must cost neither the worker nor the row.
                log.error("the delivery of %s broke off: %s", holding, traceback_text(error))
                if not holding.is_reported:
                    self._settler.add(holding, RELEASE)
            finally:
                self._release(self.channel.finished(holding, goes_on=next_may_follow))
            self._record_depths()
            await self._settler.space()

    async def deliver(self, holding: Holding) -> bool:
        """One event, from the last look at its lease to its outcome in the settler's hands; whether the next one of its
        key may follow."""
        if self._is_over(holding.lease.deadline) or not self._may_start(holding.order_key):
            log.debug("%s waited in memory past its lease and is left to the table", holding)
            self._settler.add(holding, RELEASE)
            return False
        if holding.is_suspect and not await self._store.mark_suspect(holding.lease):
            self._held.drop([holding])
            self._meter.count("lease_lost")
            return False
        if self._is_giving_up:
            self._settler.add(holding, RELEASE)
            return False
        holding.is_running = True
        if self._meter.exports:
            self._meter.record("dispatch_latency_ms", (self._runtime.clock() - holding.since) * 1000)
        outcome = await self._delivery.deliver(holding.claimed)
        holding.is_running = False
        entry = self._settler.add(holding, outcome)
        if holding.is_suspect:
            # It keeps its place until its outcome is written: what runs next may kill the process.
            await self._settler.answered(entry)
        # A lease that was lost meanwhile is another's, and so is what comes after it.
        return holding.order_key is None or (goes_on(outcome, self._rule) and not self._is_over(holding.lease.deadline))

    def _may_start(self, key: OrderKey | None) -> bool:
        return key is None or self._is_mine(key)

    def give_back(self, leaves: Callable[[OrderKey], bool]) -> None:
        """What waits of some keys is free for others at once. From any thread."""
        self._release(self.channel.give_back(leaves))

    def _release(self, leaving: Iterable[Holding]) -> None:
        for holding in leaving:
            self._settler.add(holding, RELEASE)

    def _record_depths(self) -> None:
        if self._meter.exports:
            self._meter.record("queue_depths", self.channel.hot_depth, self.channel.cold_depth)

    def _is_over(self, deadline: float) -> bool:
        return self._runtime.clock() >= deadline

    # ------------------------------------------------------------ ending

    async def close(self, drain_timeout: timedelta) -> None:
        """Take nothing new, finish what waits within the time, give back the rest."""
        self.channel.close()
        if self._workers and not await self.channel.quiet(drain_timeout.total_seconds()):
            await self._give_up()
        self._release(self.channel.clear())
        self._settler.let_all_pass()
        for worker in self._workers:
            await worker.join(None if self.channel.is_quiet else LEFT_BEHIND)
        self._workers = []

    async def _give_up(self) -> None:
        """The time is over: waiting events go back, async handlers are cancelled, sync ones are named."""
        self._is_giving_up = True
        self._release(self.channel.clear())
        self._runtime.interrupt()
        if await self.channel.quiet(LAST_CHANCE):
            return
        for holding in self._held.running():
            log.warning(
                "%s still runs after close(); its lease stays until it expires and the event is then delivered again",
                holding,
            )
