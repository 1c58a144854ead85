"""Keeps leases alive while their events wait or run, and takes back the right to start what it could not renew."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Final

from aftercommit.delivery.leases import Held
from aftercommit.events.claims import deadline_of
from aftercommit.ports import EventStore, Runtime
from aftercommit.service import Service

log = logging.getLogger("aftercommit.keeper")

_RENEWED_AT_ONCE: Final = 500


class Keeper(Service):
    """Renews at a third of the lease what has been held for more than a sixth of it."""

    def __init__(self, runtime: Runtime, store: EventStore, held: Held, *, lock_timeout: timedelta) -> None:
        super().__init__(runtime, "aftercommit-keeper")
        self._store = store
        self._held = held
        self._lock_timeout = lock_timeout
        self._interval = lock_timeout.total_seconds() / 3

    async def step(self) -> None:
        # After an error the pause is over already; the leases have no time for another third.
        pause = 0.0 if self.failures_in_a_row else self._interval
        if await self.monitor.wait_for(lambda: self.is_stopping, pause):
            return
        await self.renew()

    async def renew(self) -> None:
        """One round over everything that is held."""
        fresh = deadline_of(self.runtime.clock(), self._lock_timeout) - self._interval / 2
        leases = self._held.expiring(fresh)
        for start in range(0, len(leases), _RENEWED_AT_ONCE):
            chunk = leases[start : start + _RENEWED_AT_ONCE]
            deadline = deadline_of(self.runtime.clock(), self._lock_timeout)
            renewed = await self._store.renew(chunk, self._lock_timeout)
            self._held.renew(chunk, renewed, deadline)
            log.debug("renewed %d of %d leases", len(renewed), len(chunk))
