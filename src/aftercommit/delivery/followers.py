"""What waits behind another event of its key: each key has one item in front, in a lane or with a worker, and the rest
in order behind it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Generic, TypeVar

from aftercommit.delivery.suspects import Laned
from aftercommit.events.order import OrderKey

T = TypeVar("T", bound=Laned)


class Followers(Generic[T]):
    """The keys that are in use, with the items behind the one in front. Only with the mutex of the lanes."""

    def __init__(self) -> None:
        self._behind: dict[OrderKey, deque[T]] = {}
        #: How many wait behind others, of all keys.
        self.count = 0

    def follows(self, key: OrderKey, item: T) -> bool:
        """Whether it waits behind another one of its key; else it is in front, and the next one waits behind it."""
        behind = self._behind.get(key)
        if behind is None:
            self._behind[key] = deque()
            return False
        behind.append(item)
        self.count += 1
        return True

    def has(self, key: OrderKey) -> bool:
        """Whether something is in front of the key."""
        return key in self._behind

    def is_any_behind(self, key: OrderKey) -> bool:
        """Whether something waits behind what is in front."""
        return bool(self._behind.get(key))

    def next_of(self, key: OrderKey) -> T | None:
        """What comes in front now that the one before it has ended; None when nothing does."""
        behind = self._behind.get(key)
        if not behind:
            return None
        self.count -= 1
        return behind.popleft()

    def next_fitting(self, key: OrderKey, fits: Callable[[T], bool]) -> T | None:
        """The next one, if it may go together with what is in front."""
        behind = self._behind.get(key)
        return self.next_of(key) if behind and fits(behind[0]) else None

    def end(self, key: OrderKey) -> list[T]:
        """Nothing is in front of the key any more: what waited behind leaves."""
        behind = self._behind.pop(key, deque())
        self.count -= len(behind)
        return list(behind)

    def leave(self, leaves: Callable[[OrderKey], bool], unstarted: Iterable[OrderKey | None]) -> list[T]:
        """What waits of some keys. Where the one in front has been started, what comes later waits for it."""
        leaving: list[T] = []
        for key in [key for key in self._behind if leaves(key)]:
            leaving += self.end(key)
            if key not in unstarted:
                self._behind[key] = deque()
        return leaving

    def clear(self) -> list[T]:
        """Everything that waits behind another one."""
        waiting = [item for behind in self._behind.values() for item in behind]
        self._behind.clear()
        self.count = 0
        return waiting


def taken_out(lane: deque[T], leaves: Callable[[OrderKey], bool]) -> list[T]:
    """What leaves a lane of some keys; the rest keeps its order."""
    leaving: list[T] = []
    for _ in range(len(lane)):
        item = lane.popleft()
        (leaving if item.order_key is not None and leaves(item.order_key) else lane).append(item)
    return leaving


def emptied(lane: deque[T]) -> list[T]:
    """All that is in a lane, out of which workers take meanwhile."""
    items: list[T] = []
    with suppress(IndexError):  # nothing is left, or a worker was quicker
        while True:
            items.append(lane.popleft())
    return items
