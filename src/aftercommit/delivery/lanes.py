"""The two bounded lanes where events wait for workers, and where workers park: hot events from commits, cold ones from
the table, drained two to one. Offering never blocks, and whoever takes sleeps until it is woken."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from aftercommit.delivery.agenda import THE_REST, Agenda
from aftercommit.events.order import OrderKey
from aftercommit.ports import Runtime

#: Hot events per cold one while both wait: latency first, yet the table always moves.
HOT_PER_COLD: Final = 2


class Laned(Protocol):
    """What a lane holds."""

    @property
    def is_suspect(self) -> bool: ...

    @property
    def abandoned(self) -> int:
        """How often it began as a suspect and did not report."""

    @property
    def began_at(self) -> float:
        """When it was started, on the runtime's clock."""

    @property
    def order_key(self) -> OrderKey | None:
        """What it is kept in order with; None: with nothing."""


T = TypeVar("T", bound=Laned)


class Lanes(Generic[T]):
    """What waits for a worker. A suspect waits in the cold lane's room for its turn, and an item of a key until the one
    before it has ended. All but `take` and `quiet` may be called from any thread and return at once.

    Of what a process had in hand when it ended, most only waited: suspects run side by side, each counted when it
    begins. Those that had begun so when a process ended, `alone_from` times or more, run with no other suspect, so that
    it is known which one does it; until their outcome is written, or until they have lived for long enough.
    """

    def __init__(
        self, runtime: Runtime, agenda: Agenda, *, hot_capacity: int, cold_capacity: int, alone_from: int = 1
    ) -> None:
        self._agenda = agenda
        self._hot: deque[T] = deque()
        self._cold: deque[T] = deque()
        self._suspects: deque[T] = deque()
        self._hot_capacity = hot_capacity
        self._cold_capacity = cold_capacity
        self._reserved = 0
        self._hot_streak = 0
        self._alone_from = alone_from
        # Suspects that run: those that others wait for, and those that have lived for long enough.
        self._at_work: list[T] = []
        self._lived: list[T] = []
        # Keys of which an item waits in a lane or runs, each with the items that come after that one.
        self._followers: dict[OrderKey, deque[T]] = {}
        self._following = 0
        self._busy = 0
        self._is_closed = False
        self._room_wanted = 0
        self._monitor = runtime.monitor()
        # Those who wait for quiet have a room of their own: one notify on the workers' monitor must reach a worker.
        self._watchers = runtime.monitor()
        self._watched = 0

    # ------------------------------------------------------------ offering

    def reserve(self, count: int) -> int:
        """Set aside hot slots for events that are not committed yet; how many it could."""
        with self._monitor:
            if self._is_closed:
                return 0
            granted = max(0, min(count, self._hot_capacity - len(self._hot) - self._reserved))
            self._reserved += granted
            return granted

    def cancel(self, count: int) -> None:
        """Give reserved slots back unused."""
        with self._monitor:
            self._reserved -= count

    def fill(self, item: T) -> bool:
        """Use a reserved slot; False when the lanes were closed since."""
        with self._monitor:
            self._reserved -= 1
            if self._is_closed:
                return False
            self._hot.append(item)
            self._monitor.notify()
            return True

    def offer(self, items: Sequence[T]) -> bool:
        """Put into the cold lane, all or nothing; False when it has not so much room, or is closed."""
        with self._monitor:
            if self._is_closed or self._cold_capacity - self.cold_depth < len(items):
                return False
            startable = 0
            for item in items:
                key = item.order_key
                if key is not None:
                    if (followers := self._followers.get(key)) is not None:
                        followers.append(item)
                        self._following += 1
                        continue
                    self._followers[key] = deque()
                (self._suspects if item.is_suspect else self._cold).append(item)
                startable += 1
            self._monitor.notify(startable)
            return True

    # ------------------------------------------------------------ taking

    async def take(self) -> T | None:
        """The next item for a worker; None when the lanes are closed and have nothing that may run."""
        return (await self._monitor.wait_for(self._next))[0]

    def _next(self) -> tuple[T | None, ...]:
        """Two hot to one cold. Empty, and so false, while there is nothing to say. The mutex is held."""
        if self._hot and (self._hot_streak < HOT_PER_COLD or not self._has_cold()):
            self._hot_streak += 1
            item = self._hot.popleft()
        else:
            self._hot_streak = 0
            if self._suspects and self._is_turn_of(self._suspects[0]):
                item = self._suspects.popleft()
                self._at_work.append(item)
            elif self._cold:
                item = self._cold.popleft()
            else:
                # Suspects may still wait for those that run; the worker that ends the last takes the next.
                return (None,) if self._is_closed else ()
            if self._room_wanted:
                self._tell_room()
        self._busy += 1
        return (item,)

    def _has_cold(self) -> bool:
        return bool(self._cold) or bool(self._suspects and self._is_turn_of(self._suspects[0]))

    def _is_turn_of(self, suspect: T) -> bool:
        return not self._at_work or all(item.abandoned < self._alone_from for item in (suspect, *self._at_work))

    def let_pass(self, before: float) -> None:
        """Suspects that were started before that live, and may do so for ever: the next ones begin beside them."""
        with self._monitor:
            self._lived += [item for item in self._at_work if item.began_at <= before]
            self._at_work = [item for item in self._at_work if item.began_at > before]
            self._monitor.notify(len(self._suspects))

    def lived_beside(self, suspect: T) -> list[T]:
        """Suspects beside which one begins that runs alone but for them; each is told once."""
        if suspect.abandoned < self._alone_from:
            return []
        with self._monitor:
            lived, self._lived = self._lived, []
            return lived

    def finished(self, item: T, *, goes_on: bool = True) -> list[T]:
        """A taken item has left its worker, and the next one of its key may run; or else all of them leave, and are
        returned: **when an event of a key is not completed, everything later of that key leaves memory.**"""
        leaving: list[T] = []
        with self._monitor:
            self._busy -= 1
            key = item.order_key
            if key is not None and (followers := self._followers.get(key)) is not None:
                if goes_on and followers:
                    self._following -= 1
                    follower = followers.popleft()  # which this worker takes itself
                    (self._suspects if follower.is_suspect else self._cold).append(follower)
                else:
                    del self._followers[key]
                    self._following -= len(followers)
                    leaving = list(followers)
                    if self._room_wanted:
                        self._tell_room()
            if item in self._at_work:
                self._at_work.remove(item)
                self._monitor.notify(len(self._suspects))
            elif item in self._lived:
                self._lived.remove(item)
        if self._watched:
            self._tell_watchers()
        return leaving

    def give_back(self, leaves: Callable[[OrderKey], bool]) -> list[T]:
        """Take out what waits of some keys. What runs keeps its place, and whatever comes later waits for it."""
        with self._monitor:
            waiting = [item for lane in (self._suspects, self._cold) for item in _taken_out(lane, leaves)]
            unstarted = {item.order_key for item in waiting}
            for key in [key for key in self._followers if leaves(key)]:
                followers = self._followers.pop(key)
                self._following -= len(followers)
                waiting += followers
                if key not in unstarted:
                    self._followers[key] = deque()
            self._tell_room()
        self._tell_watchers()
        return waiting

    def clear(self) -> list[T]:
        """Take out everything that waits."""
        with self._monitor:
            followers = [item for items in self._followers.values() for item in items]
            waiting = [*self._hot, *self._suspects, *self._cold, *followers]
            for lane in (self._hot, self._suspects, self._cold, self._followers):
                lane.clear()
            self._following = 0
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
        with self._monitor:
            self._is_closed = True
            self._monitor.notify_all()

    @property
    def is_quiet(self) -> bool:
        return self._busy == 0 and self.is_empty

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not (self._hot or self._cold or self._suspects or self._following)

    @property
    def hot_depth(self) -> int:
        return len(self._hot)

    @property
    def cold_depth(self) -> int:
        return len(self._cold) + len(self._suspects) + self._following

    @property
    def cold_room(self) -> int:
        return 0 if self._is_closed else self._cold_capacity - self.cold_depth


def _taken_out(lane: deque[T], leaves: Callable[[OrderKey], bool]) -> list[T]:
    """What leaves a lane; the rest keeps its order."""
    leaving = [item for item in lane if item.order_key is not None and leaves(item.order_key)]
    if leaving:
        gone = set(map(id, leaving))
        staying = [item for item in lane if id(item) not in gone]
        lane.clear()
        lane.extend(staying)
    return leaving
