"""The two bounded lanes: hot events from commits, cold ones from the table, drained two to one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from aftercommit.events.order import OrderKey

#: Hot events per cold one while both wait: latency first, yet the table always moves.
HOT_PER_COLD: Final = 2


class Laned(Protocol):
    """What a lane holds."""

    @property
    def is_suspect(self) -> bool: ...

    @property
    def order_key(self) -> OrderKey | None:
        """What it is kept in order with; None: with nothing."""
        ...


T = TypeVar("T", bound=Laned)


class Lanes(Generic[T]):
    """What waits for a worker. A suspect waits in the cold lane's room until no other suspect runs, and an item of a
    key until the one before it has ended."""

    def __init__(self, *, hot_capacity: int, cold_capacity: int) -> None:
        self._hot: deque[T] = deque()
        self._cold: deque[T] = deque()
        self._suspects: deque[T] = deque()
        self._hot_capacity = hot_capacity
        self._cold_capacity = cold_capacity
        self._reserved = 0
        self._hot_streak = 0
        self._suspect_runs = False
        # Keys of which an item waits in a lane or runs, each with the items that come after that one.
        self._followers: dict[OrderKey, deque[T]] = {}
        self._following = 0

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

    def offer_cold(self, *items: T) -> bool:
        """False, and nothing is taken, when the cold lane has not so much room."""
        if self.cold_room < len(items):
            return False
        for item in items:
            self._place(item)
        return True

    def _place(self, item: T) -> None:
        key = item.order_key
        if key is None:
            self._line_up(item)
        elif key in self._followers:
            self._followers[key].append(item)
            self._following += 1
        else:
            self._followers[key] = deque()
            self._line_up(item)

    def _line_up(self, item: T) -> None:
        (self._suspects if item.is_suspect else self._cold).append(item)

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

    def ended(self, item: T, *, goes_on: bool = True) -> list[T]:
        """A taken item has ended, and the next one of its key may run; or else all of them leave."""
        if item.is_suspect:
            self._suspect_runs = False
        key = item.order_key
        if key is None or (followers := self._followers.get(key)) is None:
            return []
        if goes_on and followers:
            self._following -= 1
            self._line_up(followers.popleft())
            return []
        del self._followers[key]
        self._following -= len(followers)
        return list(followers)

    def give_back(self, leaves: Callable[[OrderKey], bool]) -> list[T]:
        """Take out what waits of some keys. What runs keeps its place, and whatever comes later waits for it."""
        waiting = [item for lane in (self._suspects, self._cold) for item in _taken_out(lane, leaves)]
        unstarted = {item.order_key for item in waiting}
        for key in [key for key in self._followers if leaves(key)]:
            followers = self._followers.pop(key)
            self._following -= len(followers)
            waiting += followers
            if key not in unstarted:
                self._followers[key] = deque()
        return waiting

    def clear(self) -> list[T]:
        """Take out everything that waits."""
        followers = [item for items in self._followers.values() for item in items]
        waiting = [*self._hot, *self._suspects, *self._cold, *followers]
        for lane in (self._hot, self._suspects, self._cold, self._followers):
            lane.clear()
        self._following = 0
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
        return len(self._cold) + len(self._suspects) + self._following

    @property
    def is_empty(self) -> bool:
        return not (self._hot or self._cold or self._suspects or self._following)


def _taken_out(lane: deque[T], leaves: Callable[[OrderKey], bool]) -> list[T]:
    """What leaves a lane; the rest keeps its order."""
    leaving = [item for item in lane if item.order_key is not None and leaves(item.order_key)]
    if leaving:
        gone = set(map(id, leaving))
        staying = [item for item in lane if id(item) not in gone]
        lane.clear()
        lane.extend(staying)
    return leaving
