"""Every row that this process holds a lease on, one copy each, under which lease its outcome is written, and the keeper
that keeps those leases alive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from aftercommit.events.claims import Claimed, Lease, RowKey, Settlement, Undecodable, deadline_of
from aftercommit.events.log import Log
from aftercommit.events.measures import ANY_HANDLER
from aftercommit.events.order import OrderKey
from aftercommit.events.outcome import RELEASE, Done, Outcome, Release
from aftercommit.ports import EventStore, Runtime
from aftercommit.service import Repeating

if TYPE_CHECKING:
    from aftercommit.delivery.lanes import Lanes
    from aftercommit.handlers.routing import Route

log = Log("aftercommit.keeper")

_RENEWED_AT_ONCE: Final = 500


class Holding(msgspec.Struct, eq=False, gc=False):
    """A claimed row in memory. Its lease is replaced when it is renewed or claimed again."""

    lease: Lease
    #: What was claimed; only an undecodable row has none, and such a row is never delivered.
    claimed: Claimed | None = None
    #: When it came into memory, on the runtime's clock.
    since: float = 0.0
    order_key: OrderKey | None = None
    is_suspect: bool = False
    is_running: bool = False
    #: When its handler was called, on the runtime's clock.
    began_at: float = float("inf")
    #: Others have had the row since it came into memory, and may have replayed it: whatever began before knows nothing
    #: of that, and must not settle it.
    is_overtaken: bool = False
    #: It has an outcome, which is written or will be; there is no second one.
    is_reported: bool = False
    #: Its only receiver, if that takes events in batches and this one may be among others.
    route: Route | None = None

    @property
    def abandoned(self) -> int:
        """Deliveries that began as a suspect and never reported."""
        return self.claimed.abandoned if self.claimed else 0

    @property
    def told(self) -> tuple[str, str]:
        """The event type and the handler, for exporters."""
        kind = self.claimed.event.event_type if self.claimed else "undecodable"
        return kind, self.lease.key.handler_id or ANY_HANDLER

    def __str__(self) -> str:
        key = self.lease.key
        kind = f"{self.claimed.event.event_type} " if self.claimed else ""
        return f"{kind}{key.event_id}" + (f"/{key.handler_id}" if key.handler_id else "")


def holding_of(row: Claimed | Undecodable) -> Holding:
    """A holding of a row that never gets into memory."""
    if isinstance(row, Undecodable):
        return Holding(row.lease, None, 0.0, row.order_key)
    return Holding(row.lease, row, 0.0, row.order_key, row.is_suspect)


class Held:
    """The holdings by row. Safe from any thread."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._rows: dict[RowKey, Holding] = {}
        self._keys: Counter[OrderKey] = Counter()

    def admit(self, rows: Iterable[Claimed]) -> list[Holding]:
        """New holdings; none for a row that is held already, whose epoch and deadline are then replaced."""
        admitted, keys, now = [], list[OrderKey](), self._runtime.clock()
        with self._lock:
            for claimed in rows:
                lease, key = claimed.lease, claimed.order_key
                held = self._rows.get(lease.key)
                if held is None:
                    holding = self._rows[lease.key] = Holding(lease, claimed, now, key, claimed.is_suspect)
                    admitted.append(holding)
                    if key is not None:
                        keys.append(key)
                elif lease.epoch > held.lease.epoch:  # of two claims the later one stands on the row
                    if lease.epoch > held.lease.epoch + 1:  # which a claim raises by one
                        held.is_overtaken = True
                        held.is_suspect = held.is_suspect or claimed.is_suspect
                    held.lease = lease
            if keys:
                self._keys.update(keys)
        return admitted

    def expect(self, keys: Iterable[OrderKey]) -> None:
        """A row of each is leased to this process, and comes with its commit: the key is taken for held until then."""
        with self._lock:
            self._keys.update(keys)

    def not_expected(self, keys: Iterable[OrderKey]) -> list[OrderKey]:
        """The rows have come, or never will: the keys of which nothing is held any more."""
        with self._lock:
            return self._free_without(keys)

    def _free_without(self, keys: Iterable[OrderKey]) -> list[OrderKey]:
        """One row less of each, as often as it is among them."""
        free = []
        for key, count in Counter(keys).items():
            self._keys[key] -= count
            if not self._keys[key]:
                del self._keys[key]
                free.append(key)
        return free

    def let_go(self, settled: Iterable[Unsettled]) -> tuple[list[OrderKey], list[Holding]]:
        """Let go of these, each held under an epoch: the keys of which nothing is held any more, and the holdings that
        were claimed anew meanwhile and stay."""
        keys, kept, rows = list[OrderKey](), list[Holding](), self._rows
        with self._lock:
            for entry in settled:
                holding = entry.holding
                lease = holding.lease
                if rows.get(lease.key) is not holding:
                    continue
                if lease.epoch != entry.epoch:
                    kept.append(holding)
                    continue
                del rows[lease.key]
                if (key := holding.order_key) is not None:
                    keys.append(key)
            return self._free_without(keys) if keys else [], kept

    def has(self, key: OrderKey) -> bool:
        """Whether a row of this key is held."""
        return key in self._keys

    def keys(self) -> frozenset[OrderKey]:
        """The keys of which rows are held."""
        with self._lock:
            return frozenset(self._keys)

    def expiring(self, before: float) -> list[Lease]:
        """The leases whose deadline comes before that. Nobody delivers under those of overtaken rows; let others."""
        with self._lock:
            return [
                held.lease for held in self._rows.values() if held.lease.deadline < before and not held.is_overtaken
            ]

    def renew(self, leases: Iterable[Lease], renewed: Collection[RowKey], deadline: float) -> None:
        """Move the deadline of what was renewed; what was not may be started no more."""
        with self._lock:
            for lease in leases:
                held = self._rows.get(lease.key)
                # A claim may have come between; its lease is not the one that was asked for.
                if held is not None and held.lease.epoch == lease.epoch:
                    limit = deadline if lease.key in renewed else float("-inf")
                    held.lease = Lease(lease.key, lease.owner, lease.epoch, limit)

    def running(self) -> list[Holding]:
        with self._lock:
            return [held for held in self._rows.values() if held.is_running]

    def __len__(self) -> int:
        return len(self._rows)


class Unsettled(msgspec.Struct, eq=False, gc=False):
    """An outcome on its way into the table."""

    holding: Holding
    outcome: Outcome
    #: The epoch under which it was last sent.
    epoch: int
    #: A try of it ended in an error, so it may have been written.
    is_ambiguous: bool = False
    #: The store has taken or refused it.
    is_answered: bool = False


def settlements_of(group: Iterable[Unsettled]) -> list[Settlement]:
    """What the store is asked to write, each outcome under the lease that stands now."""
    settlements = []
    for entry in group:
        holding, lease = entry.holding, entry.holding.lease
        is_claimed_anew = entry.is_ambiguous and lease.epoch != entry.epoch
        if holding.is_overtaken or (is_claimed_anew and not isinstance(entry.outcome, Done)):
            # It may be written, and the row was claimed anew: a failure must not count twice, nor end a replayed event.
            entry.outcome = RELEASE
        if holding.is_suspect and isinstance(entry.outcome, Release):
            entry.outcome = replace(entry.outcome, is_suspect=True)
        entry.epoch = lease.epoch
        settlements.append(Settlement(lease, entry.outcome))
    return settlements


class Keeper(Repeating):
    """Renews at a third of the lease what has been held for more than a sixth of it, and takes back the right to start
    what it could not renew. A suspect that it has kept alive for a lease's time stands in no other's way any more."""

    def __init__(
        self, runtime: Runtime, store: EventStore, held: Held, lanes: Lanes[Holding], *, lock_timeout: timedelta
    ) -> None:
        super().__init__(runtime, "aftercommit-keeper", lock_timeout / 3)
        self._store = store
        self._held = held
        self._lanes = lanes
        self._lock_timeout = lock_timeout

    async def work(self) -> None:
        """One round over everything that is held."""
        self._lanes.let_pass(self.runtime.clock() - self._lock_timeout.total_seconds())
        fresh = deadline_of(self.runtime.clock(), self._lock_timeout) - self.interval / 2
        leases = self._held.expiring(fresh)
        for start in range(0, len(leases), _RENEWED_AT_ONCE):
            chunk = leases[start : start + _RENEWED_AT_ONCE]
            deadline = deadline_of(self.runtime.clock(), self._lock_timeout)
            renewed = await self._store.renew(chunk, self._lock_timeout)
            self._held.renew(chunk, renewed, deadline)
            log.debug("renewed %d of %d leases", len(renewed), len(chunk))
