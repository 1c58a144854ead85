"""The short way from a commit to a worker, and what happens to events that cannot take it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta

from aftercommit.delivery.worker import OutboxDispatcher
from aftercommit.events.claims import Claimed
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.partitions import order_key_of
from aftercommit.meter import Meter
from aftercommit.polling.poller import OutboxPoller

log = logging.getLogger("aftercommit.hotpath")


class HotPathway:
    """Reserves slots for events that this process can deliver. Closed, it lets every row be born free."""

    def __init__(
        self,
        dispatcher: OutboxDispatcher,
        poller: OutboxPoller,
        meter: Meter,
        *,
        owner: str,
        lock_timeout: timedelta,
        is_routable: Callable[[EventEnvelope], bool],
        on_ordered: Callable[[Sequence[EventEnvelope]], None] | None = None,
    ) -> None:
        """`on_ordered`, where order is kept, hears of committed events in place of the poller; only keyless ones are
        hot there."""
        self.owner = owner
        self.lock_timeout = lock_timeout
        #: Whether workers and poller run, and whether events may come to them from memory.
        self.is_active = False
        self.is_open = False
        self._dispatcher = dispatcher
        self._poller = poller
        self._meter = meter
        self._is_routable = is_routable
        self._on_ordered = on_ordered

    def reserve(self, events: Sequence[EventEnvelope]) -> list[bool]:
        if not self.is_open:
            return [False] * len(events)
        wanted = [self._may_be_hot(event) for event in events]
        granted = self._dispatcher.reserve_hot(sum(wanted))
        if granted == sum(wanted):
            return wanted
        hot = []
        for wants in wanted:
            hot.append(wants and granted > 0)
            granted -= hot[-1]
        return hot

    def _may_be_hot(self, event: EventEnvelope) -> bool:
        return not event.is_delayed and (self._on_ordered is None or event.key is None)

    def fill(self, claimed: Sequence[Claimed]) -> None:
        for each in claimed:
            self._dispatcher.fill_hot(each)

    def cancel(self, count: int) -> None:
        self._dispatcher.cancel_hot(count)

    def left_in_table(self, events: Sequence[EventEnvelope]) -> None:
        """Committed, and free: tell the poller, and count what should have been hot."""
        if self._on_ordered is None:
            self._poller.wake()
        else:
            self._on_ordered(events)
        if not self.is_open:
            return
        dropped = 0
        for event in events:
            if event.is_delayed:
                self._meter.count("hot_skipped_delayed")
            elif self._may_be_hot(event) and self._is_routable(event):
                dropped += 1
        if dropped:
            self._meter.count("hot_dropped", dropped)
            if self._meter.may_say("hot_dropped"):
                log.warning("the hot lane is full: %d events are left to the poller", dropped)

    def unseen(self, events: Sequence[EventEnvelope]) -> None:
        keys = () if self._on_ordered is None else [order_key_of(event) for event in events]
        self._poller.expect([event.event_id for event in events], keys)
