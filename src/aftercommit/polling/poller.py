"""Finds in the table what nobody delivered: new rows, retries that fell due, leases that ran out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from itertools import chain
from typing import Final, Protocol

from aftercommit.config import OutboxConfig
from aftercommit.delivery.agenda import EVERYWHERE, THE_REST, Agenda
from aftercommit.delivery.chain import Delivery
from aftercommit.delivery.leases import holding_of
from aftercommit.delivery.outcomes import goes_on, note_of, rule_of, worker_lost
from aftercommit.delivery.settler import Settler
from aftercommit.delivery.worker import OutboxDispatcher
from aftercommit.events.claims import Claim, Claimed, RowKey, Undecodable
from aftercommit.events.log import Log
from aftercommit.events.order import OrderKey
from aftercommit.events.outcome import Dead
from aftercommit.events.redact import error_text
from aftercommit.meter import Meter
from aftercommit.polling.due import Found, Look
from aftercommit.polling.trigger import TriggeredPace
from aftercommit.ports import Runtime
from aftercommit.service import Service

log = Log("aftercommit.poller")

#: The interval behind a look that found something nobody had told of; it is doubled after each that finds nothing.
QUICKEST: Final = timedelta(milliseconds=20)

#: A cycle that found more than this part of a batch is followed by the next one soon.
_BUSY: Final = 0.25

Row = Claimed | Undecodable


class Taker(Protocol):
    """Takes what the poller claims."""

    def handle(self, claimed: Claimed, *followers: Claimed) -> bool:
        """False ends the cycle; the event is given back. Where order is kept the later events of its key come with it,
        and are taken with it or not at all."""

    def room(self) -> int:
        """How many more it could take now."""


class OutboxPoller(Service):
    """Claims what is due, only as much as its handler has room for, and sleeps until something may be due again."""

    def __init__(
        self,
        runtime: Runtime,
        look: Look,
        handler: Taker,
        delivery: Delivery,
        agenda: Agenda,
        settler: Settler,
        meter: Meter,
        config: OutboxConfig,
        *,
        is_woken: bool = True,
    ) -> None:
        """`look` finds, `handler` takes what is found; `delivery` knows who could receive it. Where nobody wakes it,
        it looks again soon after it has found something."""
        super().__init__(runtime, "aftercommit-poller", agenda.monitor)
        self._look = look
        self._handler = handler
        #: Our own handler takes a whole claim at once.
        self._dispatcher = handler if isinstance(handler, OutboxDispatcher) else None
        self._delivery = delivery
        self._agenda = agenda
        self._settler = settler
        self._meter = meter
        self.batch = Batch(config.batch_size, config.cold_queue_capacity)
        self._rule = rule_of(config)
        quickest = None if is_woken else QUICKEST
        pace = Pace(config.poll_interval, config.max_poll_interval, quickest, batch_size=config.batch_size)
        trigger = config.poll_trigger
        self._pace = pace if trigger is None else TriggeredPace(pace, trigger, meter)
        #: A trigger's word is for the next round; else the pace is that of the one behind it.
        self._is_triggered = trigger is not None
        self._cycles_begun = self._cycles_ended = 0
        self._last_count: int | None = None
        #: Whether it waits for the store, which may take as long as the store likes.
        self.is_asking = False

    async def step(self) -> None:
        await self._until_it_is_time()
        if self.is_stopping:
            return
        with self.monitor:
            is_round = self._agenda.begin_look(self._pace.interval.total_seconds())
            self._cycles_begun += 1
            self._last_count = None
        if is_round:
            self._look.look_everywhere()
        try:
            self._last_count = await self.cycle()
        except Exception:
            self._agenda.add(THE_REST)  # whatever led to this look is still there, after the pause
            raise
        finally:
            with self.monitor:
                self._cycles_ended = self._cycles_begun
                self.monitor.notify_all()

    async def _until_it_is_time(self) -> None:
        # The plan that the pause is reckoned from is the one to watch: it may change at any time, from any thread.
        while (planned := self._agenda.due_at) > (now := self.runtime.clock()) and not self.is_stopping:
            await self.monitor.wait_for(self._changed(planned), planned - now)

    def _changed(self, planned: float) -> Callable[[], bool]:
        return lambda: self.is_stopping or self._agenda.due_at != planned

    async def next_cycle(self, timeout: float | None) -> int | None:
        """Wait for a cycle over the whole table that began after this call; what it claimed.

        None when it failed, did not see the whole table, or did not come in time, and when the poller ends.
        """
        with self.monitor:  # no cycle begins between the wish and the count
            wanted = self._cycles_begun + 1
            self._agenda.add_inside(EVERYWHERE)
        await self.monitor.wait_for(lambda: self._cycles_ended >= wanted or self.is_stopping, timeout)
        return self._last_count if self._cycles_ended >= wanted else None

    # ------------------------------------------------------------ looking

    async def cycle(self) -> int | None:
        """Claim once and hand over; how many rows were claimed.

        None when there was no room to look, or nothing was found yet, and the look did not see the whole table.
        """
        if not self._delivery.router:
            return 0
        await self.see_pauses()  # whether there is room or not: what is in memory is put off as well
        limit = min(self.batch.size, self._handler.room())
        if limit <= 0:
            return None
        found = await self.claim(limit)
        rows = found.claim.rows
        self.batch.after(limit if found.is_full else len(rows), limit)
        if rows:
            self._hand_over(found.claim)
        self._plan(found)
        return len(rows) or (0 if found.is_all else None)

    @property
    def interval(self) -> timedelta:
        """The longest sleep of now."""
        return self._pace.interval

    def look_everywhere(self) -> None:
        """The next claims go over the whole table."""
        self._look.look_everywhere()

    async def see_pauses(self) -> None:
        """Know what is paused now, if it is time to look."""
        if self.runtime.clock() < self._delivery.pauses.look_at:
            return
        self.is_asking = True
        try:
            await self._delivery.pauses.look()
        finally:
            self.is_asking = False

    async def claim(self, limit: int) -> Found:
        """Lease up to `limit` rows for this process."""
        self.is_asking = True
        try:
            return await self._look.claim(limit)
        finally:
            self.is_asking = False

    def deliverable(self, claim: Claim) -> list[list[Claimed]]:
        """What of a claim may be delivered: events of one key together, in their order, any other event alone; what may
        end this process comes last. The rest is settled as dead at once, and what that blocks is given back."""
        if (sound := _sound(claim)) is not None and all(row.order_key is None for row in sound):
            return [[row] for row in sound]
        runs: dict[OrderKey | RowKey, list[Row]] = {}
        for row in claim.rows:
            runs.setdefault(row.order_key or row.lease.key, []).append(row)
        living = [good for run in runs.values() if (good := self._living(run))]
        return sorted(living, key=lambda run: run[0].abandoned)

    def _living(self, run: list[Row]) -> list[Claimed]:
        good: list[Claimed] = []
        for index, row in enumerate(run):
            death = self._death_of(row)
            if death is not None:
                self._settler.add(holding_of(row), death)
                if not goes_on(death, self._rule):
                    self._settler.release(map(holding_of, run[index + 1 :]))
                    break
            elif isinstance(row, Claimed):
                good.append(row)
        return good

    def _death_of(self, row: Row) -> Dead | None:
        if isinstance(row, Undecodable):
            log.error("%s cannot be decoded: %s", row.lease.key.event_id, error_text(row.error))
            return Dead(error_text(row.error), counted=False, failures=(note_of(row.error),))
        limit = self._delivery.max_abandoned
        # A fallback may still take an event that has killed its handlers; but not once it killed that too.
        if row.abandoned < limit or (row.abandoned == limit and self._delivery.has_fallback(row)):
            return None
        return worker_lost(row.abandoned)

    def _hand_over(self, claim: Claim) -> None:
        if self._dispatcher is not None and (sound := _sound(claim)) and self._dispatcher.enqueue_all(sound):
            return
        runs = self.deliverable(claim)
        if self._dispatcher is not None and self._dispatcher.enqueue_all(chain.from_iterable(runs)):
            return
        taken = 0
        try:
            # A run is taken whole: its first event may fail at once, and nothing behind it may come after that.
            while taken < len(runs) and self._handler.handle(*runs[taken]):
                taken += 1
        finally:
            # No room after all, or closing: what was not taken is free for anybody at once.
            if taken < len(runs):
                self._settler.release(map(holding_of, chain.from_iterable(runs[taken:])))

    def _plan(self, found: Found) -> None:
        """Set the next look by what this one saw, and tell the gauges."""
        claim = found.claim
        if self._meter.exports:
            self._meter.record("oldest_lag_ms", oldest_lag(claim.rows))
        interval = self._pace.after(len(claim.rows), is_own=self._agenda.is_for_own).total_seconds()
        if not found.is_all:
            self._agenda.add(THE_REST)
        elif claim.next_due is not None:
            self._agenda.add(EVERYWHERE, claim.next_due)
        if self._is_triggered:
            self._agenda.rest(interval)
        if claim.rows:
            self._agenda.add(EVERYWHERE, interval)  # there may be more where that came from
        self._agenda.found(row.lease.key.event_id for row in claim.rows)


def _sound(claim: Claim) -> list[Claimed] | None:
    """The rows, if nothing is to be said of any of them: nearly always."""
    rows = [row for row in claim.rows if isinstance(row, Claimed) and not row.abandoned]
    return rows if len(rows) == len(claim.rows) else None


def oldest_lag(rows: Iterable[Row]) -> int:
    """In milliseconds."""
    ages = [row.age for row in rows if isinstance(row, Claimed)]
    return round(max(ages).total_seconds() * 1000) if ages else 0


class Batch:
    """How many rows a claim asks for. It begins with `batch_size`; a full claim doubles it, up to what a lane holds,
    because claims cost more than rows; one that leaves nothing behind and is small halves it."""

    def __init__(self, least: int, most: int) -> None:
        self.size = least
        self._least = least
        self._most = max(least, most)

    def after(self, count: int, limit: int) -> None:
        """A claim that asked for `limit` rows got so many."""
        if count >= self.size:
            self.size = min(2 * self.size, self._most)
        elif count < limit and 2 * count < self.size:
            self.size = max(self.size // 2, self._least)


class Pace:
    """The poller's interval: always the same, or between a minimum and a maximum, as busy as the table is; and for a
    while after something was found as quick as that."""

    def __init__(
        self,
        minimum: timedelta,
        maximum: timedelta | None = None,
        quickest: timedelta | None = None,
        *,
        batch_size: int = 1,
    ) -> None:
        self.interval = minimum
        self._minimum = minimum
        self._quickest = minimum if quickest is None else min(quickest, minimum)
        self._maximum = minimum if maximum is None else maximum
        self._busy_from = batch_size * _BUSY

    def after(self, count: int, *, is_own: bool = False) -> timedelta:
        """The interval behind a cycle that claimed so many rows. This process's own say nothing about others, who
        write here and cannot wake it."""
        if count and self._quickest < self._minimum:
            self.interval = min(self.interval, self._minimum) if is_own else self._quickest
        elif count > self._busy_from:
            self.interval = self._minimum
        else:
            longest = self._minimum if self.interval < self._minimum else self._maximum
            self.interval = min(2 * self.interval, longest)
        return self.interval
