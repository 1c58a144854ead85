"""Batches that are being made: what one receiver gets together. The worker that has begun one may wait for more."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, Generic, TypeVar

from aftercommit.delivery.followers import Followers, emptied, taken_out
from aftercommit.delivery.suspects import Laned
from aftercommit.events.order import OrderKey
from aftercommit.ports import Runtime

T = TypeVar("T", bound=Laned)

#: Items of a lane that are looked at for each one that a batch may hold: those of many receivers wait mixed.
LOOKS: Final = 10


class Gathering(Generic[T]):
    """The items of one batch, of each key in their order. All but `filled` only with the mutex of the lanes."""

    def __init__(self, runtime: Runtime, route: object, most: int) -> None:
        self.route = route
        self.most = most
        self.items: list[T] = []
        #: Of what is in it. Who comes next of such a key may follow it into the batch.
        self.keys: set[OrderKey] = set()
        self._is_over = False
        self._monitor = runtime.monitor()

    @property
    def room(self) -> int:
        return self.most - len(self.items)

    def fits(self, item: T) -> bool:
        return item.route is self.route and len(self.items) < self.most

    def add(self, item: T) -> None:
        self.items.append(item)
        if item.order_key is not None:
            self.keys.add(item.order_key)
        if len(self.items) >= self.most:
            self.wait_no_more()

    def give_back(self, leaves: Callable[[OrderKey], bool]) -> list[T]:
        """Take out what there is of some keys."""
        leaving = [item for item in self.items if item.order_key is not None and leaves(item.order_key)]
        self.items = [item for item in self.items if item.order_key is None or not leaves(item.order_key)]
        self.keys = {key for key in self.keys if not leaves(key)}
        if not self.items:
            self.wait_no_more()
        return leaving

    def clear(self) -> list[T]:
        """Take out everything, for good."""
        items, self.items, self.most = self.items, [], 0
        self.keys.clear()
        self.wait_no_more()
        return items

    def wait_no_more(self) -> None:
        self._is_over = True
        with self._monitor:
            self._monitor.notify_all()

    async def filled(self, linger: float) -> None:
        """Wait for so many seconds, or until there is nothing to wait for. In a room of its own: one notify on the
        monitor of the lanes must reach a worker that has nothing in hand."""
        await self._monitor.wait_for(lambda: self._is_over, linger)


class Gatherings(Generic[T]):
    """What goes from the lanes into batches, and those that wait for more. Only with both mutexes of the lanes, or with
    that of the workers where no lane is touched."""

    def __init__(
        self, runtime: Runtime, followers: Followers[T], lanes: Sequence[Sequence[deque[T]]], hot_per_cold: int
    ) -> None:
        """`lanes`: in the order in which they are looked into, the first of them for its share alone."""
        self._runtime = runtime
        self._followers = followers
        self._lanes = lanes
        self._shares = hot_per_cold + 1
        #: By receiver. Mostly there is none.
        self.waiting: dict[object, Gathering[T]] = {}

    def begin(self, first: T, most: int, *, waits: bool) -> Gathering[T] | None:
        """None: the first is in a batch that waits."""
        batch = self.waiting.get(first.route)
        if batch is not None and batch.fits(first):
            self._add(batch, first)
            return None
        batch = Gathering(self._runtime, first.route, most)
        self._add(batch, first)
        self._fill_up(batch)
        if waits and batch.room > 0:
            self.waiting[batch.route] = batch
        return batch

    def end(self, batch: Gathering[T]) -> None:
        """It waits no more."""
        if self.waiting.get(batch.route) is batch:
            del self.waiting[batch.route]
            self._fill_up(batch)

    def takes(self, item: T) -> bool:
        """Whether it goes right into a batch that waits."""
        batch, key = self.waiting.get(item.route), item.order_key
        if batch is None or not batch.fits(item):
            return False
        if key is not None and self._followers.has(key):
            if key not in batch.keys or self._followers.is_any_behind(key):
                return False
        elif key is not None:
            self._followers.follows(key, item)  # in front, and whatever comes later waits behind it
        batch.add(item)
        return True

    def _fill_up(self, batch: Gathering[T]) -> None:
        most = -(-batch.room // self._shares)
        for lanes in self._lanes:
            limit = len(batch.items) + most
            for lane in lanes:
                self._move(lane, batch, limit)
            most = batch.room

    def _move(self, lane: deque[T], batch: Gathering[T], limit: int) -> None:
        """What fits among the next items of a lane, which keeps the rest in its order."""
        passed: list[T] = []
        with suppress(IndexError):  # nothing is left, or a worker was quicker
            for _ in range(LOOKS * batch.most):
                if batch.room <= 0 or len(batch.items) >= limit:
                    break
                item = lane.popleft()
                if batch.fits(item):
                    self._add(batch, item)
                else:
                    passed.append(item)
        lane.extendleft(reversed(passed))

    def _add(self, batch: Gathering[T], item: T) -> None:
        """With those that may follow it."""
        batch.add(item)
        if item.order_key is not None:
            while (follower := self._followers.next_fitting(item.order_key, batch.fits)) is not None:
                batch.add(follower)

    def give_back(self, lanes: Iterable[deque[T]], leaves: Callable[[OrderKey], bool]) -> list[T]:
        """Take out what waits of some keys, in these lanes, in batches and behind other items."""
        waiting = [item for lane in lanes for item in taken_out(lane, leaves)]
        waiting += [item for batch in self.waiting.values() for item in batch.give_back(leaves)]
        return waiting + self._followers.leave(leaves, {item.order_key for item in waiting})

    def clear(self, lanes: Iterable[deque[T]]) -> list[T]:
        """Take out everything."""
        waiting = [item for lane in lanes for item in emptied(lane)]
        waiting += [item for batch in self.waiting.values() for item in batch.clear()]
        return waiting + self._followers.clear()

    def wait_no_more(self) -> None:
        for batch in self.waiting.values():
            batch.wait_no_more()
