"""Keys that somebody should look at: now, in a while, or as soon as this process has let go of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from heapq import heappop, heappush
from typing import Final

from aftercommit.events.order import OrderKey
from aftercommit.ports import Runtime

#: How many keys are remembered. What is forgotten is found by the next round over the table.
AT_MOST: Final = 10_000


class Calls:
    """The keys by when to look at them. Safe from any thread."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        horizon: timedelta,
        is_held: Callable[[OrderKey], bool],
        on_call: Callable[[float], None],
    ) -> None:
        """Calls beyond the horizon are left to the rounds. `on_call` hears in how many seconds there will be something
        to take."""
        self._runtime = runtime
        self.horizon = horizon.total_seconds()
        self._is_held = is_held
        self._on_call = on_call
        self._lock = runtime.lock()
        # In order of calling, each key once.
        self._ready: dict[OrderKey, None] = {}
        # Called while a row of theirs is in memory: another claim would find it leased.
        self._parked: set[OrderKey] = set()
        self._later: list[tuple[float, OrderKey]] = []

    def add(self, keys: Collection[OrderKey], *, after: float = 0.0) -> bool:
        """Look at these after so many seconds; False when some are too many to remember."""
        if not keys or after > self.horizon:
            return True
        with self._lock:
            is_kept = self._add_later(keys, after) if after > 0 else self._add_ready(keys)
        self._on_call(after)
        return is_kept

    def _add_ready(self, keys: Iterable[OrderKey]) -> bool:
        for key in keys:
            if key not in self._parked:
                if len(self._ready) >= AT_MOST:
                    return False
                self._ready[key] = None
        return True

    def _add_later(self, keys: Iterable[OrderKey], after: float) -> bool:
        at = self._runtime.clock() + after
        for key in keys:
            if len(self._later) >= AT_MOST:
                return False
            heappush(self._later, (at, key))
        return True

    def take(self, limit: int, owned: Collection[int]) -> list[OrderKey]:
        """Up to `limit` keys to look at now. Those of partitions that are not owned are forgotten."""
        taken: list[OrderKey] = []
        with self._lock:
            self._fall_due()
            for key in list(self._ready):
                if len(taken) >= limit:
                    break
                del self._ready[key]
                if key.partition not in owned:
                    continue
                # Parked before it is looked at: whoever lets go of it in between sees it there.
                self._parked.add(key)
                if not self._is_held(key):
                    self._parked.discard(key)
                    taken.append(key)
        return taken

    def _fall_due(self) -> None:
        now = self._runtime.clock()
        while self._later and self._later[0][0] <= now:
            _, key = heappop(self._later)
            if key not in self._parked:
                self._ready[key] = None

    def free(self, keys: Iterable[OrderKey]) -> None:
        """No row of these is in memory any more."""
        with self._lock:
            called = [key for key in keys if key in self._parked]
            self._parked.difference_update(called)
            self._ready.update(dict.fromkeys(called))
        if called:
            self._on_call(0.0)

    def next_in(self) -> float | None:
        """Seconds until the next one that was called for later."""
        with self._lock:
            return max(0.0, self._later[0][0] - self._runtime.clock()) if self._later else None

    @property
    def ready(self) -> int:
        """How many could be taken now."""
        with self._lock:
            self._fall_due()
            return len(self._ready)
