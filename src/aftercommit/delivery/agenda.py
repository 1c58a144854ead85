"""What to look at in the table, and when. Everybody adds to it; the poller takes from it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta
from heapq import heappop, heappush
from typing import Final, TypeAlias

from aftercommit.delivery.leases import Held
from aftercommit.events.order import OrderKey
from aftercommit.ports import Runtime

#: How many keys are remembered, and how many rows whose commit nobody will announce. What is forgotten is found by the
#: next round over the table.
AT_MOST: Final = 10_000

#: Seconds until the first look for rows whose commit cannot be seen; doubled after each look.
FIRST_LOOK: Final = 0.005

#: Some keys, the whole table, or what the last look had no room or no time for.
Place: TypeAlias = Collection[OrderKey] | None

EVERYWHERE: Final = None
THE_REST: Final[tuple[OrderKey, ...]] = ()


class Agenda:
    """Safe from any thread; nothing here waits.

    A round goes over the whole table. It comes once in an interval, or when somebody adds EVERYWHERE; what cannot be
    remembered here, and what nobody knew of, is found by it.
    """

    def __init__(self, runtime: Runtime, held: Held, *, interval: timedelta, horizon: timedelta) -> None:
        """What is due beyond the horizon is left to the rounds."""
        #: The poller's loop waits on it.
        self.monitor = runtime.monitor()
        self.horizon = horizon.total_seconds()
        self._runtime = runtime
        self._held = held
        self._longest = interval.total_seconds()
        self._is_called = self._goes_round = True
        #: Whether the look that is under way goes after rows that this process has committed itself.
        self.is_for_own = self._has_own = False
        self._next_look = self._next_round = self._rested_at = float("-inf")
        # Keys to look at now, in order of adding, each once.
        self._ready: dict[OrderKey, None] = {}
        # Keys that were added while a row of theirs is in memory: a claim would find it leased.
        self._parked: set[OrderKey] = set()
        self._later: list[tuple[float, OrderKey]] = []
        self._expected: set[str] = set()
        self._expected_keys: set[OrderKey] = set()
        self._expected_after = 0.0
        self._expected_at = float("inf")
        self._looks_for_expected = False

    # ------------------------------------------------------------ adding

    def add(self, place: Place, after: float = 0.0) -> bool:
        """Look there after so many seconds. False when some keys are too many to remember."""
        with self.monitor:
            return self.add_inside(place, after)

    def wrote(self, place: Place) -> None:
        """This process has committed rows there: look now. That they are found says nothing about what others write."""
        with self.monitor:
            self._has_own = True
            self.add_inside(place)

    def add_inside(self, place: Place, after: float = 0.0) -> bool:
        """The same, where the mutex is held already."""
        if place is None and after <= 0:
            self._is_called = self._goes_round = True
        elif place is None:
            self._next_round = min(self._next_round, self._runtime.clock() + after)
        elif not place:
            if after > 0:
                self._next_look = min(self._next_look, self._runtime.clock() + after)
            else:
                self._is_called = True
        elif after > self.horizon:
            return True
        elif not (self._add_later(place, after) if after > 0 else self._add_ready(place)):
            self._goes_round = True
            self.monitor.notify_all()
            return False
        self.monitor.notify_all()
        return True

    def _add_ready(self, keys: Iterable[OrderKey]) -> bool:
        self._is_called = True
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

    def freed(self, keys: Collection[OrderKey]) -> None:
        """No row of these is in memory any more."""
        with self.monitor:
            called = [key for key in keys if key in self._parked]
            self._parked.difference_update(called)
            if called:
                self.add_inside(called)

    # ------------------------------------------------------------ commits that nobody announces

    def expect(self, event_ids: Iterable[str], keys: Iterable[OrderKey] = ()) -> None:
        """Rows were written whose commit cannot be seen: look soon, then less and less often, until they were found."""
        with self.monitor:
            if len(self._expected) < AT_MOST:
                self._expected.update(event_ids)
                self._expected_keys.update(keys)
            self._expected_after = FIRST_LOOK
            self._look_for_expected(FIRST_LOOK)

    def look_for_expected(self, after: float) -> None:
        """They may be committed in so many seconds."""
        with self.monitor:
            self._look_for_expected(after)

    def _look_for_expected(self, after: float) -> None:
        self._expected_at = self._runtime.clock() + after
        self.add_inside(list(self._expected_keys) or EVERYWHERE, after)

    def found(self, event_ids: Iterable[str]) -> None:
        """A look has found these; what is still expected is looked for again, up to the interval."""
        if not self._expected:
            return
        with self.monitor:
            self._expected.difference_update(event_ids)
            if self._looks_for_expected:  # a look for something else is none of those that come less and less often
                self._expected_after *= 2
                self._expected_at = self._runtime.clock() + self._expected_after
            if self._expected_after >= self._longest:
                self._expected.clear()
            if self._expected:
                self._look_for_expected(max(0.0, self._expected_at - self._runtime.clock()))
            else:
                self._expected_keys.clear()

    # ------------------------------------------------------------ the poller's side

    def begin_look(self, interval: float) -> bool:
        """A look begins, and whatever is added from now on leads to another one. Whether it is the first of a round,
        after which the next one comes in an interval. The mutex is held."""
        now = self._runtime.clock()
        is_round = self._goes_round or now >= min(self._next_round, self._rested_at)
        if is_round:
            self._goes_round = False
            self._next_round = float("inf")
            self._rested_at = now + interval
        self._fall_due()  # now: what this look has no room for calls no second time
        self.is_for_own, self._has_own = self._has_own, False
        self._is_called = False
        self._next_look = float("inf")
        self._looks_for_expected = now >= self._expected_at
        return is_round

    def rest(self, interval: float) -> None:
        """The next round comes after so many seconds, and not in the interval that its look began with; but for what
        somebody has added."""
        with self.monitor:
            self._rested_at = self._runtime.clock() + interval

    @property
    def due_at(self) -> float:
        """When the next look should begin, on the runtime's clock, as far as is known; long ago when somebody calls."""
        if self._is_called:
            return float("-inf")
        at = min(self._next_look, self._next_round, self._rested_at)
        return min(at, self._later[0][0]) if self._later else at

    def take(self, limit: int, owned: Collection[int]) -> list[OrderKey]:
        """Up to `limit` keys to look at now. Those of partitions that are not owned are forgotten."""
        taken: list[OrderKey] = []
        with self.monitor:
            self._fall_due()
            while self._ready and len(taken) < limit:
                key = next(iter(self._ready))
                del self._ready[key]
                if key.partition not in owned:
                    continue
                # Parked before it is looked at: whoever lets go of it in between sees it there.
                self._parked.add(key)
                if not self._held.has(key):
                    self._parked.discard(key)
                    taken.append(key)
        return taken

    def held(self) -> frozenset[OrderKey]:
        """The keys of which rows are in memory."""
        return self._held.keys()

    def _fall_due(self) -> None:
        now = self._runtime.clock()
        while self._later and self._later[0][0] <= now:
            _, key = heappop(self._later)
            if key not in self._parked:
                self._ready[key] = None

    @property
    def ready(self) -> int:
        """How many keys could be taken now."""
        with self.monitor:
            self._fall_due()
            return len(self._ready)
