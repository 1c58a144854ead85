"""Lets the fleet hear that this instance is alive, and learns in return what it still owns."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from aftercommit.events.claims import deadline_of
from aftercommit.events.fleet import Instance
from aftercommit.ordering.territory import Territory
from aftercommit.ports import Membership, Runtime
from aftercommit.service import Service

log = logging.getLogger("aftercommit.heart")


class Heart(Service):
    """Beats on a task of its own, whatever handlers do. Past its deadline the instance owns nothing in its own eyes,
    a fifth of the time before others may take over."""

    def __init__(
        self,
        runtime: Runtime,
        membership: Membership,
        instance: Instance,
        territory: Territory,
        *,
        interval: timedelta,
        stale_timeout: timedelta,
        on_change: Callable[[], None],
    ) -> None:
        super().__init__(runtime, "aftercommit-heart")
        self._membership = membership
        self._instance = instance
        self._territory = territory
        self._interval = interval.total_seconds()
        self._stale_timeout = stale_timeout
        self._on_change = on_change

    async def step(self) -> None:
        # After an error the pause is over already.
        pause = 0.0 if self.failures_in_a_row else self._interval
        if not await self.monitor.wait_for(lambda: self.is_stopping, pause):
            await self.beat()

    async def join(self) -> None:
        await self._membership.join(self._instance)
        await self.beat()
        self._on_change()

    async def beat(self) -> None:
        """Once. Who was given up meanwhile signs on again, and keeps what nobody has taken."""
        before, deadline = self._territory.epochs(), deadline_of(self.runtime.clock(), self._stale_timeout)
        owned = await self._membership.beat(self._instance.id, self._stale_timeout)
        if owned is not None:
            self._territory.found(owned, before=before, deadline=deadline)
        elif not self.is_stopping:
            log.warning("instance %s was no member of the fleet any more, and joins again", self._instance.id)
            await self.join()
