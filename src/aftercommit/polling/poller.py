"""Finds in the table what nobody delivered: new rows, retries that fell due, leases that ran out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final

from aftercommit.delivery.leases import holding_of
from aftercommit.delivery.outcomes import worker_lost
from aftercommit.delivery.settler import Settler
from aftercommit.events.claims import Claim, Claimed, RowKey, Undecodable
from aftercommit.events.order import OrderKey
from aftercommit.events.outcome import RELEASE, Dead
from aftercommit.events.redact import error_text
from aftercommit.hooks import OutboxPollerHandler
from aftercommit.meter import Meter
from aftercommit.polling.due import Found, Look, LookByTime, PollerOptions
from aftercommit.polling.pace import Pace
from aftercommit.ports import EventStore, Runtime
from aftercommit.service import Service

log = logging.getLogger("aftercommit.poller")

#: Seconds until the first look for rows whose commit cannot be seen; doubled after each look.
FIRST_LOOK: Final = 0.005

#: How many unseen rows are remembered by id. More are still found, by the interval.
_EXPECTED_AT_MOST: Final = 10_000


class OutboxPoller(Service):
    """Claims what is due, only as much as its handler has room for, and sleeps until something may be due again."""

    def __init__(
        self,
        runtime: Runtime,
        store: EventStore,
        settler: Settler,
        meter: Meter,
        options: PollerOptions,
        *,
        look: Look | None = None,
        is_needed: Callable[[], bool] = lambda: True,
        has_fallback: Callable[[Claimed], bool] = lambda _: False,
    ) -> None:
        """It looks by time unless it is told how."""
        super().__init__(runtime, "aftercommit-poller")
        self._look = look if look is not None else LookByTime(runtime, store, options)
        self._settler = settler
        self._meter = meter
        self._options = options
        self._is_needed = is_needed
        self._has_fallback = has_fallback
        self._handler: OutboxPollerHandler | None = None
        self._is_woken = self._goes_round = True
        self._next_look = self._next_round = float("-inf")
        self._cycles_begun = self._cycles_ended = 0
        self._last_count: int | None = None
        self._pace = Pace(options.interval, options.max_interval, batch_size=options.batch_size)
        self._expected: set[str] = set()
        self._expected_keys: set[OrderKey] = set()
        self._expected_after = 0.0

    def feed(self, handler: OutboxPollerHandler) -> None:
        """Who takes what is found."""
        self._handler = handler

    # ------------------------------------------------------------ when to look

    def wake(self) -> None:
        """Look everywhere, now. From any thread."""
        with self.monitor:
            self._is_woken = self._goes_round = True
            self.monitor.notify_all()

    def go_on(self) -> None:
        """Look now, from where the last look ended. From any thread."""
        with self.monitor:
            self._is_woken = True
            self.monitor.notify_all()

    def due_in(self, seconds: float) -> None:
        """Something falls due in a while, wherever it is. From any thread."""
        at = self.runtime.clock() + seconds
        with self.monitor:
            self._next_round = min(self._next_round, at)
            self._look_at(at)

    def called_in(self, seconds: float) -> None:
        """There is something in a while that the next look knows how to find. From any thread."""
        at = self.runtime.clock() + seconds
        with self.monitor:
            self._look_at(at)

    def _look_at(self, at: float) -> None:
        if at < self._next_look:
            self._next_look = at
            self.monitor.notify_all()

    def expect(self, event_ids: Iterable[str], keys: Iterable[OrderKey] = ()) -> None:
        """Rows were written whose commit nobody will announce: look soon, then less and less often."""
        with self.monitor:
            if len(self._expected) < _EXPECTED_AT_MOST:
                self._expected.update(event_ids)
                self._expected_keys.update(keys)
            self._expected_after = FIRST_LOOK
        self.look_for_expected(FIRST_LOOK)

    def look_for_expected(self, after: float) -> None:
        """They may be committed in so many seconds. From any thread."""
        if self._expected_keys:
            self._look.expect(list(self._expected_keys), after)
        else:
            self.due_in(after)

    async def step(self) -> None:
        await self._until_it_is_time()
        if self.is_stopping:
            return
        with self.monitor:
            self._plan_round()
            self._is_woken = False
            self._next_look = self._next_round
            self._cycles_begun += 1
            self._last_count = None
        try:
            self._last_count = await self.cycle()
        except Exception:
            self._is_woken = True  # whatever led to this look is still there, after the pause
            raise
        finally:
            with self.monitor:
                self._cycles_ended = self._cycles_begun
                self.monitor.notify_all()

    def _plan_round(self) -> None:
        now = self.runtime.clock()
        if self._goes_round or now >= self._next_round:
            self._goes_round = False
            self._next_round = now + self._pace.interval.total_seconds()
            self._look.look_everywhere()

    async def _until_it_is_time(self) -> None:
        # The plan that the pause is reckoned from is the one to watch: it may change at any time, from any thread.
        while (planned := self._next_look) > self.runtime.clock() and not self._is_called():
            await self.monitor.wait_for(self._changed(planned), planned - self.runtime.clock())

    def _is_called(self) -> bool:
        return self.is_stopping or self._is_woken

    def _changed(self, planned: float) -> Callable[[], bool]:
        return lambda: self._is_called() or self._next_look != planned

    async def next_cycle(self, timeout: float | None) -> int | None:
        """Wait for a cycle that began after this call; what it claimed.

        None when it failed, did not see the whole table, or did not come in time, and when the poller ends.
        """
        with self.monitor:
            wanted = self._cycles_begun + 1
            self._is_woken = self._goes_round = True
            self.monitor.notify_all()
        await self.monitor.wait_for(lambda: self._cycles_ended >= wanted or self.is_stopping, timeout)
        return self._last_count if self._cycles_ended >= wanted else None

    # ------------------------------------------------------------ looking

    async def cycle(self) -> int | None:
        """Claim once and hand over; how many rows were claimed.

        None when there was no room to look, or nothing was found yet, and the look did not see the whole table.
        """
        if self._handler is None or not self._is_needed():
            return 0
        limit = min(self._options.batch_size, self._handler.room())
        if limit <= 0:
            return None
        found = await self.claim(limit)
        self._hand_over(found.claim, self._handler)
        self._plan(found)
        return len(found.claim.rows) or (0 if found.is_all else None)

    def look_everywhere(self) -> None:
        """The next claims go over the whole table."""
        self._look.look_everywhere()

    async def claim(self, limit: int) -> Found:
        """Lease up to `limit` rows for this process."""
        return await self._look.claim(limit)

    def deliverable(self, claim: Claim) -> list[Claimed]:
        """What of a claim may be delivered; the rest is settled as dead at once, and what that blocks is given back."""
        good: list[Claimed] = []
        blocked: set[OrderKey | None] = set()
        for row in claim.rows:
            if row.order_key is not None and row.order_key in blocked:
                self._settler.add(holding_of(row), RELEASE)
            elif (death := self._death_of(row)) is not None:
                self._settler.add(holding_of(row), death)
                if self._options.rule.blocks:
                    blocked.add(row.order_key)
            elif isinstance(row, Claimed):
                good.append(row)
        return good

    def _death_of(self, row: Claimed | Undecodable) -> Dead | None:
        if isinstance(row, Undecodable):
            log.error("%s cannot be decoded: %s", row.lease.key.event_id, error_text(row.error))
            return Dead(error_text(row.error), counted=False)
        if row.abandoned >= self._options.max_abandoned and not self._has_last_resort(row):
            return Dead(worker_lost(row.abandoned), counted=False)
        return None

    def _has_last_resort(self, row: Claimed) -> bool:
        """Whether a fallback may still take an event that has killed its handlers; but not once it killed that too."""
        return row.abandoned == self._options.max_abandoned and self._has_fallback(row)

    def _hand_over(self, claim: Claim, handler: OutboxPollerHandler) -> None:
        runs = _runs_of(self.deliverable(claim))
        taken = 0
        try:
            # A run is taken whole: its first event may fail at once, and nothing behind it may come after that.
            while taken < len(runs) and handler.handle(*runs[taken]):
                taken += 1
        finally:
            # No room after all, or closing: what was not taken is free for anybody at once.
            for left in chain.from_iterable(runs[taken:]):
                self._settler.add(holding_of(left), RELEASE)

    def _plan(self, found: Found) -> None:
        """Set the next look by what this one saw, and tell the gauges."""
        claim = found.claim
        ages = [row.age for row in claim.rows if isinstance(row, Claimed)]
        self._meter.record("oldest_lag_ms", round(max(ages).total_seconds() * 1000) if ages else 0)
        self._pace.after(len(claim.rows))
        if not found.is_all:
            self.go_on()
        elif claim.next_due is not None:
            self.due_in(claim.next_due)
        if (seconds := self._look.next_in()) is not None:
            self.called_in(seconds)
        self._follow_expected(claim)

    def _follow_expected(self, claim: Claim) -> None:
        with self.monitor:
            self._expected.difference_update(row.lease.key.event_id for row in claim.rows)
            self._expected_after *= 2
            if self._expected and self._expected_after >= self._options.interval.total_seconds():
                self._expected.clear()
            if not self._expected:
                self._expected_keys.clear()
                return
            after = self._expected_after
        self.look_for_expected(after)


def _runs_of(rows: Iterable[Claimed]) -> list[list[Claimed]]:
    """Events of one key together, in their order; any other event alone."""
    runs: dict[OrderKey | RowKey, list[Claimed]] = {}
    for row in rows:
        runs.setdefault(row.order_key or row.lease.key, []).append(row)
    return list(runs.values())
