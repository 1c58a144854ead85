"""Finds in the table what nobody delivered: new rows, retries that fell due, leases that ran out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from aftercommit.claims import Claim, Claimed, ClaimRequest, Undecodable
from aftercommit.core.held import Holding
from aftercommit.core.keeper import deadline_of
from aftercommit.core.meter import Meter
from aftercommit.core.service import Service
from aftercommit.core.settler import Settler
from aftercommit.hooks import OutboxPollerHandler
from aftercommit.outcome import RELEASE, Dead
from aftercommit.ports import EventStore, Runtime
from aftercommit.redact import error_text
from aftercommit.rules.decide import worker_lost

log = logging.getLogger("aftercommit.poller")

#: Seconds until the first look for rows whose commit cannot be seen; doubled after each look.
FIRST_LOOK: Final = 0.005

#: Seconds after which a claim looks at all due rows again, also at those that were passed over as held by others.
FLOOR_AGE: Final = 2.0

#: How many unseen rows are remembered by id. More are still found, by the interval.
_EXPECTED_AT_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class PollerOptions:
    """How to look."""

    owner: str
    interval: timedelta = timedelta(seconds=5)
    batch_size: int = 50
    skip_recent: timedelta = timedelta(0)
    lock_timeout: timedelta = timedelta(seconds=30)
    max_abandoned: int = 5


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
        is_needed: Callable[[], bool] = lambda: True,
        has_fallback: Callable[[Claimed], bool] = lambda _: False,
    ) -> None:
        super().__init__(runtime, "aftercommit-poller")
        self._store = store
        self._settler = settler
        self._meter = meter
        self._options = options
        self._is_needed = is_needed
        self._has_fallback = has_fallback
        self._handler: OutboxPollerHandler | None = None
        self._is_woken = True
        self._next_look = float("-inf")
        self._cycles_begun = self._cycles_ended = 0
        self._last_count: int | None = None
        self._expected: set[str] = set()
        self._expected_after = 0.0
        self._floor: object = None
        self._floor_since = 0.0

    def feed(self, handler: OutboxPollerHandler) -> None:
        """Who takes what is found."""
        self._handler = handler

    # ------------------------------------------------------------ when to look

    def wake(self) -> None:
        """Look now. From any thread."""
        with self.monitor:
            self._is_woken = True
            self.monitor.notify_all()

    def due_in(self, seconds: float) -> None:
        """Something falls due in a while. From any thread."""
        at = self.runtime.clock() + seconds
        with self.monitor:
            if at < self._next_look:
                self._next_look = at
                self.monitor.notify_all()

    def expect(self, event_ids: Iterable[str]) -> None:
        """Rows were written whose commit nobody will announce: look soon, then less and less often."""
        with self.monitor:
            if len(self._expected) < _EXPECTED_AT_MOST:
                self._expected.update(event_ids)
            self._expected_after = FIRST_LOOK
        self.due_in(FIRST_LOOK)

    async def step(self) -> None:
        await self._until_it_is_time()
        if self.is_stopping:
            return
        with self.monitor:
            self._is_woken = False
            self._next_look = self.runtime.clock() + self._options.interval.total_seconds()
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
            self._is_woken = True
            self.monitor.notify_all()
        await self.monitor.wait_for(lambda: self._cycles_ended >= wanted or self.is_stopping, timeout)
        return self._last_count if self._cycles_ended >= wanted else None

    # ------------------------------------------------------------ looking

    async def cycle(self) -> int | None:
        """Claim once and hand over; how many rows were claimed.

        None when there was no room to look, or nothing was found behind the floor, which is not the whole table.
        """
        if self._handler is None or not self._is_needed():
            return 0
        limit = min(self._options.batch_size, self._handler.room())
        if limit <= 0:
            return None
        is_partial = self.has_floor
        claim = await self.claim(limit)
        self._hand_over(claim, self._handler)
        self._plan(claim, look_again=is_partial or len(claim.rows) >= limit)
        return len(claim.rows) or (None if is_partial else 0)

    @property
    def has_floor(self) -> bool:
        """Whether the next claim passes over rows that earlier ones have seen."""
        return self._floor is not None and self.runtime.clock() - self._floor_since <= FLOOR_AGE

    async def claim(self, limit: int) -> Claim:
        """Lease up to `limit` rows for this process."""
        now = self.runtime.clock()
        if not self.has_floor:
            self._floor, self._floor_since = None, now
        claim = await self._store.claim(
            ClaimRequest(
                owner=self._options.owner,
                limit=limit,
                lock_timeout=self._options.lock_timeout,
                deadline=deadline_of(now, self._options.lock_timeout),
                skip_recent=self._options.skip_recent,
                floor=self._floor,
            )
        )
        self._floor = claim.floor
        return claim

    def deliverable(self, claim: Claim) -> list[Claimed]:
        """What of a claim may be delivered; the rest is settled as dead at once."""
        good = []
        for row in claim.rows:
            if isinstance(row, Undecodable):
                log.error("%s cannot be decoded: %s", row.lease.key.event_id, error_text(row.error))
                self._settler.add(Holding(row.lease), Dead(error_text(row.error), counted=False))
            elif row.abandoned >= self._options.max_abandoned and not self._has_last_resort(row):
                self._settler.add(Holding(row.lease, row), Dead(worker_lost(row.abandoned), counted=False))
            else:
                good.append(row)
        return good

    def _has_last_resort(self, row: Claimed) -> bool:
        """Whether a fallback may still take an event that has killed its handlers; but not once it killed that too."""
        return row.abandoned == self._options.max_abandoned and self._has_fallback(row)

    def _hand_over(self, claim: Claim, handler: OutboxPollerHandler) -> None:
        rows = self.deliverable(claim)
        taken = 0
        try:
            while taken < len(rows) and handler.handle(rows[taken]):
                taken += 1
        finally:
            # No room after all, or closing: what was not taken is free for anybody at once.
            for left in rows[taken:]:
                self._settler.add(Holding(left.lease, left), RELEASE)

    def _plan(self, claim: Claim, *, look_again: bool) -> None:
        """Set the next look by what this one saw, and tell the gauges."""
        ages = [row.age for row in claim.rows if isinstance(row, Claimed)]
        self._meter.record("oldest_lag_ms", round(max(ages).total_seconds() * 1000) if ages else 0)
        if look_again:
            self.wake()
        elif claim.next_due is not None:
            self.due_in(claim.next_due)
        self._follow_expected(claim)

    def _follow_expected(self, claim: Claim) -> None:
        with self.monitor:
            self._expected.difference_update(row.lease.key.event_id for row in claim.rows)
            if not self._expected:
                return
            self._expected_after *= 2
            if self._expected_after >= self._options.interval.total_seconds():
                self._expected.clear()
                return
            after = self._expected_after
        self.due_in(after)
