"""Whether an event may be started: the last look at its lease and its key, and the mark of a suspect before it."""

from __future__ import annotations

from aftercommit.delivery.lanes import Lanes
from aftercommit.delivery.leases import Holding
from aftercommit.delivery.ownership import Ownership
from aftercommit.delivery.settler import Settler
from aftercommit.events.outcome import Release
from aftercommit.meter import Meter
from aftercommit.ports import EventStore, Runtime


class Starts:
    """Asked right before each call."""

    def __init__(
        self,
        runtime: Runtime,
        store: EventStore,
        lanes: Lanes[Holding],
        settler: Settler,
        ownership: Ownership,
        meter: Meter,
    ) -> None:
        self._runtime, self._store, self._lanes = runtime, store, lanes
        self._settler, self._ownership, self._meter = settler, ownership, meter
        #: The drain is over: nothing is started any more.
        self.is_giving_up = False

    def may(self, holding: Holding) -> bool:
        """Whether its lease still holds and its key is this instance's."""
        key = holding.order_key
        return self.is_kept(holding) and not self.is_giving_up and (key is None or self._ownership.has(key))

    def is_kept(self, holding: Holding) -> bool:
        """Whether nobody else can have taken it meanwhile, or what comes after it."""
        return self._runtime.clock() < holding.lease.deadline and not holding.is_overtaken

    async def may_suspect(self, holding: Holding) -> bool:
        """Counted in the table before it starts. The answer may take long, so all is asked again after it; one that is
        not started then has killed nobody, and its mark is taken back. So is the mark of one that has lived for a
        lease's time and runs on: when the process ends now, the other did it."""
        for lived in self._lanes.lived_beside(holding):
            if not lived.is_overtaken:
                await self._store.mark_suspect(lived.lease, -1)
        lease = holding.lease
        if not await self._store.mark_suspect(lease):
            self._settler.let_go(holding, lease.epoch)
            self._meter.lost(*holding.told)
            return False
        key, is_late = holding.order_key, self._runtime.clock() >= holding.lease.deadline
        if self.is_giving_up or is_late or (key is not None and not self._ownership.has(key)):
            self._settler.add(holding, Release(was_marked=True))
            return False
        return True
