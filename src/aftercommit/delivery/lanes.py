"""The two bounded lanes where events wait for workers, and where workers park: hot events from commits, cold ones from
the table, drained two to one. Offering never blocks, and whoever takes sleeps until it is woken."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Final, Generic, TypeVar

from aftercommit.delivery.agenda import THE_REST, Agenda
from aftercommit.delivery.followers import Followers
from aftercommit.delivery.gathering import Gathering, Gatherings
from aftercommit.delivery.suspects import Laned, Turns
from aftercommit.events.order import OrderKey
from aftercommit.ports import Runtime

#: Hot events per cold one while both wait: latency first, yet the table always moves.
HOT_PER_COLD: Final = 2

T = TypeVar("T", bound=Laned)


class Lanes(Generic[T]):
    """What waits for a worker. A suspect waits in the cold lane's room for its turn, and an item of a key until the one
    before it has ended. All but `take` and `quiet` may be called from any thread and return at once.

    **An item that nothing has to wait for passes without the mutex.** A deque's `append` and `popleft` are atomic, and
    two rules keep the rest right: whoever parks says so before its last look, and whoever offers looks for the parked
    after it; a worker counts as busy before it takes, and who asks whether all is quiet looks at the lanes first.
    """

    def __init__(
        self, runtime: Runtime, agenda: Agenda, *, hot_capacity: int, cold_capacity: int, alone_from: int = 1
    ) -> None:
        self._agenda = agenda
        self._hot: deque[T] = deque()
        self._cold: deque[T] = deque()
        # The same for items of keys, and for what comes behind one while it waits; suspects. Only with the mutex.
        self._hot_guarded: deque[T] = deque()
        self._cold_guarded: deque[T] = deque()
        self._suspects: deque[T] = deque()
        self._hot_capacity, self._cold_capacity = hot_capacity, cold_capacity
        self._reserved = self._hot_streak = 0
        self._turns: Turns[T] = Turns(alone_from)
        self._followers: Followers[T] = Followers()
        cold, hot = (self._cold, self._cold_guarded), (self._hot, self._hot_guarded)
        self._gathering: Gatherings[T] = Gatherings(runtime, self._followers, (cold, hot, cold), HOT_PER_COLD)
        # An entry for each worker that has an item, and for each that parks: numbers that change without a lock.
        self._busy: deque[None] = deque()
        self._parked: deque[None] = deque()
        self._is_closed, self._room_wanted, self._watched = False, 0, 0
        self._monitor = runtime.monitor()
        self._slots = runtime.lock()  # for the hot slots alone: writers never wait for workers
        # Those who wait for quiet have a room of their own: one notify on the workers' monitor must reach a worker.
        self._watchers = runtime.monitor()

    # ------------------------------------------------------------ offering

    def reserve(self, count: int) -> int:
        """Set aside hot slots for events that are not committed yet; how many it could."""
        with self._slots:
            if self._is_closed:
                return 0
            granted = max(0, min(count, self._hot_capacity - self.hot_depth - self._reserved))
            self._reserved += granted
            return granted

    def cancel(self, count: int) -> None:
        """Give reserved slots back unused."""
        with self._slots:
            self._reserved -= count

    def fill(self, item: T) -> bool:
        """Use a reserved slot; False when the lanes were closed since."""
        if item.order_key is not None or self._hot_guarded or self._gathering.waiting:
            return self._fill_guarded(item)
        with self._slots:
            self._reserved -= 1
            if self._is_closed:
                return False
            self._hot.append(item)
        if self._parked:
            with self._monitor:
                self._monitor.notify()
        return True

    def _fill_guarded(self, item: T) -> bool:
        with self._monitor, self._slots:
            self._reserved -= 1
            if self._is_closed:
                return False
            if not self._has_place(item):
                self._hot_guarded.append(item)
                self._monitor.notify()
            return True

    def offer(self, items: Sequence[T]) -> bool:
        """Put into the cold lane, all or nothing; False when it has not so much room, or is closed."""
        with self._monitor:
            if self._is_closed or self._cold_capacity - self.cold_depth < len(items):
                return False
            startable = 0
            for item in items:
                if (item.order_key is None and not self._gathering.waiting) or not self._has_place(item):
                    self._append_cold(item)
                    startable += 1
            self._monitor.notify(startable)
            return True

    def _append_cold(self, item: T) -> None:
        is_guarded = item.order_key is not None or self._cold_guarded
        (self._suspects if item.is_suspect else self._cold_guarded if is_guarded else self._cold).append(item)

    def _has_place(self, item: T) -> bool:
        """Whether it waits in a batch, or behind another one of its key. The mutex is held."""
        if self._gathering.waiting and self._gathering.takes(item):
            return True
        return item.order_key is not None and self._followers.follows(item.order_key, item)

    # ------------------------------------------------------------ taking

    def take_now(self) -> T | None:
        """The next item, if there is one; without the mutex where it is not needed."""
        if self._suspects or self._cold_guarded or self._hot_guarded:
            with self._monitor:
                return (self._next() or (None,))[0]
        self._busy.append(None)
        hot, cold = self._hot, self._cold
        try:
            if hot and (self._hot_streak < HOT_PER_COLD or not cold):
                self._hot_streak += 1
                return hot.popleft()
            self._hot_streak = 0
            item = cold.popleft()
        except IndexError:  # there is nothing, or another worker was quicker
            self._busy.pop()
            if self._watched:
                self._tell_watchers()
            return None
        # A short look first: there is never less in the whole lane.
        if self._room_wanted and self._cold_capacity - len(cold) >= self._room_wanted:
            with self._monitor:
                self._tell_room()
        return item

    async def take(self) -> T | None:
        """The next item for a worker; None when the lanes are closed and have nothing that may run."""
        self._parked.append(None)
        try:
            return (await self._monitor.wait_for(self._next))[0]
        finally:
            self._parked.pop()

    def _next(self) -> tuple[T | None, ...]:
        """Two hot to one cold. Empty, and so false, while there is nothing to say. The mutex is held."""
        self._busy.append(None)
        try:
            if (self._hot or self._hot_guarded) and (self._hot_streak < HOT_PER_COLD or not self._has_cold()):
                self._hot_streak += 1
                return ((self._hot or self._hot_guarded).popleft(),)
            self._hot_streak = 0
            if self._suspects and self._turns.may_begin(self._suspects[0]):
                self._turns.begin(item := self._suspects.popleft())
            else:
                item = (self._cold or self._cold_guarded).popleft()
        except IndexError:
            self._busy.pop()
            self._tell_watchers()
            # A worker without the mutex was quicker, and has left some.
            if self._hot or self._cold or self._hot_guarded or self._cold_guarded:
                return self._next()
            # Suspects may still wait for those that run; the worker that ends the last takes the next.
            return (None,) if self._is_closed else ()
        if self._room_wanted:
            self._tell_room()
        return (item,)

    def _has_cold(self) -> bool:
        return bool(self._cold or self._cold_guarded or (self._suspects and self._turns.may_begin(self._suspects[0])))

    def let_pass(self, before: float) -> None:
        """Suspects that were started before that live, and may do so for ever: the next ones begin beside them."""
        with self._monitor:
            self._turns.let_pass(before)
            self._monitor.notify(len(self._suspects))

    def lived_beside(self, suspect: T) -> list[T]:
        """Suspects beside which one begins that runs alone but for them; each is told once."""
        with self._monitor:
            return self._turns.lived_beside(suspect)

    def finished(self, item: T, *, goes_on: bool = True) -> list[T]:
        """A taken item has left its worker, and the next one of its key may run; or else all of them leave, and are
        returned: **when an event of a key is not completed, everything later of that key leaves memory.**"""
        leaving: list[T] = []
        if item.order_key is not None or item.is_suspect:
            with self._monitor:
                leaving = self._leaving_behind(item, goes_on=goes_on)
        self._busy.pop()
        if self._watched:
            self._tell_watchers()
        return leaving

    def _leaving_behind(self, item: T, *, goes_on: bool) -> list[T]:
        leaving: list[T] = []
        if (key := item.order_key) is not None:
            if goes_on and (following := self._followers.next_of(key)) is not None:
                self._append_cold(following)  # which this worker takes itself
            else:
                leaving = self._followers.end(key)
                self._tell_room()
        if item.is_suspect and self._turns.end(item):
            self._monitor.notify(len(self._suspects))
        return leaving

    def gather(self, first: T, most: int, *, waits: bool) -> Gathering[T] | None:
        """A batch of an item that this worker has taken, and of what waits for the same receiver, or comes while it
        waits. None: another worker's batch has taken the item in."""
        with self._monitor, self._slots:
            batch = self._gathering.begin(first, most, waits=waits and not self._is_closed)
            self._tell_room()
        if batch is None:
            self._left()
        return batch

    def gathered(self, batch: Gathering[T]) -> list[T]:
        """Its worker waits no more: what is in it, and what it finds in the lanes."""
        with self._monitor, self._slots:
            self._gathering.end(batch)
            self._tell_room()
            return batch.items

    def finished_all(self, items: Sequence[T], stopped: Collection[OrderKey]) -> list[T]:
        """As `finished`, for a batch: the next ones of its keys may run, and those of keys that have stopped leave."""
        with self._monitor:
            behind, last = self._followers.count, {item.order_key: item for item in items}
            ends = [self._leaving_behind(item, goes_on=key not in stopped) for key, item in last.items()]
            leaving = [item for each in ends for item in each]
            self._monitor.notify(max(0, behind - self._followers.count - len(leaving) - 1))  # one is this worker's
        self._left()
        return leaving

    def _left(self) -> None:
        """A worker has nothing in hand any more."""
        self._busy.pop()
        if self._watched:
            self._tell_watchers()

    def give_back(self, leaves: Callable[[OrderKey], bool]) -> list[T]:
        """Take out what waits of some keys. What runs keeps its place, and whatever comes later waits for it."""
        with self._monitor:
            waiting = self._gathering.give_back((self._hot_guarded, self._suspects, self._cold_guarded), leaves)
            self._tell_room()
        self._tell_watchers()
        return waiting

    def clear(self) -> list[T]:
        """Take out everything that waits."""
        with self._monitor, self._slots:
            lanes = (self._hot_guarded, self._hot, self._suspects, self._cold_guarded, self._cold)
            waiting = self._gathering.clear(lanes)
        with self._watchers:
            self._watchers.notify_all()
        return waiting

    # ------------------------------------------------------------ watching

    def want_room(self, count: int) -> None:
        """Tell the agenda once that many cold slots are free; at once when they have become so meanwhile."""
        with self._monitor:
            self._room_wanted = count
            self._tell_room()

    def _tell_room(self) -> None:
        if self._room_wanted and self.cold_room >= self._room_wanted:
            self._room_wanted = 0
            self._agenda.add(THE_REST)

    async def quiet(self, timeout: float | None, *, or_else: Callable[[], bool] = lambda: False) -> bool:
        """Wait until nothing waits and nothing runs, or else; `or_else` is asked whenever everything was cleared."""
        with self._monitor:
            self._watched += 1
        try:
            await self._watchers.wait_for(lambda: self.is_quiet or or_else(), timeout)
            return self.is_quiet
        finally:
            with self._monitor:
                self._watched -= 1

    def _tell_watchers(self) -> None:
        if self._watched and self.is_quiet:
            with self._watchers:
                self._watchers.notify_all()

    def close(self) -> None:
        """Take nothing new; what waits may still be taken."""
        with self._monitor, self._slots:
            self._is_closed = True
            self._gathering.wait_no_more()
            self._monitor.notify_all()

    @property
    def is_quiet(self) -> bool:
        return self.is_empty and not self._busy

    @property
    def is_empty(self) -> bool:
        return not (self.hot_depth or self.cold_depth)

    @property
    def hot_depth(self) -> int:
        return len(self._hot) + len(self._hot_guarded)

    @property
    def cold_depth(self) -> int:
        return len(self._cold) + len(self._cold_guarded) + len(self._suspects) + self._followers.count

    @property
    def cold_room(self) -> int:
        return 0 if self._is_closed else self._cold_capacity - self.cold_depth
