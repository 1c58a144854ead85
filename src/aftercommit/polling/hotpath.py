"""The short way from a commit to a worker, and what happens to events that cannot take it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from aftercommit.config import OutboxConfig
from aftercommit.delivery.agenda import EVERYWHERE, Agenda
from aftercommit.delivery.worker import OutboxDispatcher
from aftercommit.events.claims import Claimed
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.order import OrderKey
from aftercommit.handlers.routing import Router
from aftercommit.meter import Meter

log = logging.getLogger("aftercommit.hotpath")


class HotPathway:
    """Reserves slots for events that this process can deliver. Closed, it lets every row be born free."""

    def __init__(
        self,
        dispatcher: OutboxDispatcher,
        agenda: Agenda,
        router: Router,
        meter: Meter,
        config: OutboxConfig,
        *,
        owner: str,
    ) -> None:
        self.owner = owner
        self.lock_timeout = config.lock_timeout
        #: Whether workers and poller run, and whether events may come to them from memory.
        self.is_active = False
        self.is_open = False
        self._dispatcher = dispatcher
        self._agenda = agenda
        self._router = router
        self._meter = meter

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
        return not event.is_delayed

    def fill(self, claimed: Sequence[Claimed]) -> None:
        for each in claimed:
            self._dispatcher.fill_hot(each)

    def cancel(self, count: int) -> None:
        self._dispatcher.cancel_hot(count)

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
        self._agenda.add(EVERYWHERE)

    def unseen(self, events: Sequence[EventEnvelope]) -> None:
        self._agenda.expect([event.event_id for event in events], self._keys(events))

    def _keys(self, events: Sequence[EventEnvelope]) -> Sequence[OrderKey]:
        """What the poller is told to look at; nothing where it looks by time."""
        return ()
