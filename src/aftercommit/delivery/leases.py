"""Every row that this process holds a lease on: one copy each, with the lease as it stands now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from aftercommit.events.claims import Claimed, Lease, RowKey, Undecodable
from aftercommit.events.order import OrderKey
from aftercommit.ports import Runtime


class Holding:
    """A claimed row in memory. Its lease is replaced when it is renewed or claimed again."""

    __slots__ = ("_claimed", "is_reported", "is_running", "lease", "order_key", "since")

    def __init__(self, lease: Lease, claimed: Claimed | None = None, since: float = 0.0) -> None:
        self.lease = lease
        self.is_running = False
        #: It has an outcome, which is written or will be; there is no second one.
        self.is_reported = False
        #: When it came into memory, on the runtime's clock.
        self.since = since
        self.order_key = None if claimed is None else claimed.order_key
        self._claimed = claimed

    @property
    def claimed(self) -> Claimed:
        """What was claimed; only an undecodable row has none, and such a row is never delivered."""
        if self._claimed is None:
            raise ValueError(f"{self} cannot be decoded")
        return self._claimed

    @property
    def is_suspect(self) -> bool:
        return self._claimed is not None and self._claimed.is_suspect

    def __str__(self) -> str:
        key = self.lease.key
        kind = f"{self._claimed.event.event_type} " if self._claimed else ""
        return f"{kind}{key.event_id}" + (f"/{key.handler_id}" if key.handler_id else "")


def holding_of(row: Claimed | Undecodable) -> Holding:
    """A holding of a row that never gets into memory."""
    holding = Holding(row.lease, row if isinstance(row, Claimed) else None)
    holding.order_key = row.order_key
    return holding


class Held:
    """The holdings by row. Safe from any thread."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._rows: dict[RowKey, Holding] = {}
        self._keys: Counter[OrderKey] = Counter()
        #: Hears of keys whose last row was let go.
        self.on_free: Callable[[list[OrderKey]], None] = lambda _: None

    def admit(self, claimed: Claimed) -> Holding | None:
        """A new holding; None when the row is held already, whose epoch and deadline are then replaced."""
        lease = claimed.lease
        with self._lock:
            held = self._rows.get(lease.key)
            if held is not None:
                if lease.epoch > held.lease.epoch:  # of two claims the later one stands on the row
                    held.lease = lease
                return None
            holding = self._rows[lease.key] = Holding(lease, claimed, self._runtime.clock())
            if holding.order_key is not None:
                self._keys[holding.order_key] += 1
            return holding

    def drop(self, holdings: Iterable[Holding]) -> None:
        """Let go of these; a newer holding of the same row stays."""
        self.let_go((holding, holding.lease.epoch) for holding in holdings)

    def let_go(self, holdings: Iterable[tuple[Holding, int]]) -> list[Holding]:
        """Let go of these, each held under an epoch. Those that were claimed anew meanwhile stay, and are returned."""
        free, kept = [], []
        with self._lock:
            for holding, epoch in holdings:
                if self._rows.get(holding.lease.key) is not holding:
                    continue
                if holding.lease.epoch != epoch:
                    kept.append(holding)
                    continue
                del self._rows[holding.lease.key]
                if holding.order_key is not None and self._is_last(holding.order_key):
                    free.append(holding.order_key)
        if free:
            self.on_free(free)
        return kept

    def _is_last(self, key: OrderKey) -> bool:
        self._keys[key] -= 1
        if self._keys[key]:
            return False
        del self._keys[key]
        return True

    def has(self, key: OrderKey) -> bool:
        """Whether a row of this key is held."""
        return key in self._keys

    def expiring(self, before: float) -> list[Lease]:
        """The leases whose deadline comes before that."""
        with self._lock:
            return [held.lease for held in self._rows.values() if held.lease.deadline < before]

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
