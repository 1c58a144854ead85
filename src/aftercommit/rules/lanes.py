"""The two bounded lanes: hot events from commits, cold ones from the table, drained two to one."""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, Protocol, TypeVar

#: Hot events per cold one while both wait: latency first, yet the table always moves.
HOT_PER_COLD: Final = 2


class Laned(Protocol):
    """What a lane holds."""

    @property
    def is_suspect(self) -> bool: ...


T = TypeVar("T", bound=Laned)


class Lanes(Generic[T]):
    """What waits for a worker. A suspect waits in the cold lane's room until no other suspect runs."""

    def __init__(self, *, hot_capacity: int, cold_capacity: int) -> None:
        self._hot: deque[T] = deque()
        self._cold: deque[T] = deque()
        self._suspects: deque[T] = deque()
        self._hot_capacity = hot_capacity
        self._cold_capacity = cold_capacity
        self._reserved = 0
        self._hot_streak = 0
        self._suspect_runs = False

    def reserve_hot(self, count: int) -> int:
        """Set aside up to `count` hot slots; how many it could."""
        granted = max(0, min(count, self._hot_capacity - len(self._hot) - self._reserved))
        self._reserved += granted
        return granted

    def cancel_hot(self, count: int) -> None:
        """Give reserved slots back unused."""
        self._reserved -= count

    def fill_hot(self, item: T) -> None:
        """Use one reserved slot."""
        self._reserved -= 1
        self._hot.append(item)

    def offer_cold(self, item: T) -> bool:
        """False when the cold lane is full."""
        if self.cold_room <= 0:
            return False
        (self._suspects if item.is_suspect else self._cold).append(item)
        return True

    def take(self) -> T | None:
        """The next item, two hot to one cold; None when nothing may run now."""
        if self._hot and (self._hot_streak < HOT_PER_COLD or not self._has_cold()):
            self._hot_streak += 1
            return self._hot.popleft()
        self._hot_streak = 0
        if self._suspects and not self._suspect_runs:
            self._suspect_runs = True
            return self._suspects.popleft()
        return self._cold.popleft() if self._cold else None

    def suspect_ended(self) -> None:
        """The suspect that was taken has ended; the next one may run."""
        self._suspect_runs = False

    def clear(self) -> list[T]:
        """Take out everything that waits."""
        waiting = [*self._hot, *self._suspects, *self._cold]
        for lane in (self._hot, self._suspects, self._cold):
            lane.clear()
        return waiting

    def _has_cold(self) -> bool:
        return bool(self._cold) or bool(self._suspects and not self._suspect_runs)

    @property
    def cold_room(self) -> int:
        return self._cold_capacity - self.cold_depth

    @property
    def hot_depth(self) -> int:
        return len(self._hot)

    @property
    def cold_depth(self) -> int:
        return len(self._cold) + len(self._suspects)

    @property
    def is_empty(self) -> bool:
        return not (self._hot or self._cold or self._suspects)
