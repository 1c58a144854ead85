"""The store as the rooms of a tail see it: what comes from the log is settled by going on, and by nothing else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Any

from aftercommit.events.claims import Lease, RowKey, Settlement
from aftercommit.events.outcome import DONE, Done, Release
from aftercommit.ports import EventStore, Replication
from aftercommit.tail.progress import Progress

#: As long as a row is leased until its outcome is written, right after that.
_MEANWHILE = timedelta(seconds=30)


class CapturedStore:
    """An event of the log has no row of its own to mark: it was born done. One that fails, waits or runs for long gets
    its row back, NEW and leased, and from then on it is the table's like any other."""

    #: One tail reads at a time, so there is nothing to share.
    membership = None

    def __init__(self, store: EventStore, replication: Replication, told: Callable[[], None]) -> None:
        """`told` is called when something of the log is settled."""
        self._store, self._replication, self._told = store, replication, told
        #: What was read; nothing before somebody reads.
        self.progress: Progress | None = None
        #: What is given back is left to whoever reads the log next.
        self.is_closing = False

    def __getattr__(self, name: str) -> Any:
        """What is not said here is the store's own."""
        return getattr(self._store, name)

    def __repr__(self) -> str:
        return repr(self._store)

    async def settle(self, settlements: Sequence[Settlement]) -> Collection[RowKey]:
        progress = self.progress
        if progress is None:
            return await self._store.settle(settlements)
        done, moving, of_table = list[Settlement](), list[Settlement](), list[Settlement]()
        for each in settlements:
            if progress.of(each.lease.key) is None:
                of_table.append(each)
            elif isinstance(each.outcome, Done):
                done.append(each)
            elif not (self.is_closing and isinstance(each.outcome, Release)):
                moving.append(each)
        refused = set[RowKey]()
        if moving:
            taken = await self.take([each.lease for each in moving], _MEANWHILE)
            refused = {each.lease.key for each in moving} - set(taken)
            of_table += [each for each in moving if each.lease.key not in refused]
        if of_table:
            refused |= set(await self._store.settle(of_table))
        # Last, because all of it comes again when something above has failed.
        if late := [each for each in done if not progress.finish(each.lease.key)]:
            refused |= set(await self._store.settle(late))
        self._told()
        return refused

    async def renew(self, leases: Sequence[Lease], lock_timeout: timedelta) -> Collection[RowKey]:
        """What is not through by now gets its row, so that it holds up nothing else."""
        progress = self.progress
        if progress is None:
            return await self._store.renew(leases, lock_timeout)
        of_log = [lease for lease in leases if progress.of(lease.key) is not None]
        of_table = [lease for lease in leases if lease not in of_log]
        renewed = set(await self.take(of_log, lock_timeout)) if of_log else set()
        if of_table:
            renewed |= set(await self._store.renew(of_table, lock_timeout))
        self._told()
        return renewed

    async def take(self, leases: Sequence[Lease], lease_for: timedelta) -> Collection[RowKey]:
        """Give rows to the table, under these leases; of those that are the table's by now, nothing. Those that were
        given and are not delivered."""
        progress = self.progress
        if progress is None:
            return ()
        by_key = {lease.key: lease for lease in leases}
        entries = progress.move(list(by_key))
        taken = await self._replication.take([(by_key[each.key], each.values) for each in entries], lease_for)
        # One that was not taken has been in the table before, and is no business of the log any more either.
        late = progress.moved(entries)
        if written := [Settlement(by_key[key], DONE) for key in late if key in taken and by_key[key].owner]:
            await self._store.settle(written)
        return [key for key in taken if key not in late]
