"""Where workers park: the two lanes behind a mutex. Offering never blocks, and a taker sleeps until it is woken."""

from __future__ import annotations

from collections.abc import Callable

from aftercommit.delivery.lanes import Lanes
from aftercommit.delivery.leases import Holding
from aftercommit.events.order import OrderKey
from aftercommit.ports import Runtime


class Channel:
    """The lanes, shared. All but `take` and `quiet` may be called from any thread and return at once."""

    def __init__(self, runtime: Runtime, lanes: Lanes[Holding], *, on_room: Callable[[], None]) -> None:
        self._lanes = lanes
        self._monitor = runtime.monitor()
        # A room of its own: one notify on the workers' monitor must reach a worker.
        self._watchers = runtime.monitor()
        self._watched = 0
        self._busy = 0
        self._is_closed = False
        self._room_wanted = 0
        self._on_room = on_room

    def reserve(self, count: int) -> int:
        """Set aside hot slots for events that are not committed yet; how many it could."""
        with self._monitor:
            return 0 if self._is_closed else self._lanes.reserve_hot(count)

    def cancel(self, count: int) -> None:
        with self._monitor:
            self._lanes.cancel_hot(count)

    def fill(self, holding: Holding) -> bool:
        """Use a reserved slot; False when the channel was closed since."""
        with self._monitor:
            if self._is_closed:
                self._lanes.cancel_hot(1)
                return False
            self._lanes.fill_hot(holding)
            self._monitor.notify()
            return True

    def offer(self, *holdings: Holding) -> bool:
        """Put into the cold lane, all at once; False when it has not so much room, or is closed."""
        with self._monitor:
            if self._is_closed or not self._lanes.offer_cold(*holdings):
                return False
            self._monitor.notify()
            return True

    async def take(self) -> Holding | None:
        """The next event for a worker; None when the channel is closed and has nothing that may run."""
        (holding,) = await self._monitor.wait_for(self._next)
        if self._room_wanted and self._lanes.cold_room >= self._room_wanted:
            self._room_wanted = 0
            self._on_room()
        return holding

    def _next(self) -> tuple[Holding | None, ...]:
        """Empty, and so false, while there is nothing to say."""
        holding = self._lanes.take()
        if holding is not None:
            self._busy += 1
            return (holding,)
        # Suspects may still wait for the one that runs; the worker that ends it takes the next.
        return (None,) if self._is_closed else ()

    def finished(self, holding: Holding, *, goes_on: bool = True) -> list[Holding]:
        """A taken event has left its worker. Unless its key goes on, the later ones of it that wait, which are out."""
        with self._monitor:
            self._busy -= 1
            leaving = self._lanes.ended(holding, goes_on=goes_on)
            if holding.is_suspect:
                self._monitor.notify()  # what comes next of its key this worker takes itself
        self._tell_watchers()
        return leaving

    def give_back(self, leaves: Callable[[OrderKey], bool]) -> list[Holding]:
        """Take out what waits of some keys."""
        with self._monitor:
            leaving = self._lanes.give_back(leaves)
        self._tell_watchers()
        return leaving

    def _tell_watchers(self) -> None:
        if self._watched and self.is_quiet:
            with self._watchers:
                self._watchers.notify_all()

    async def quiet(self, timeout: float | None) -> bool:
        """Wait until nothing waits and nothing runs."""
        with self._monitor:
            self._watched += 1
        try:
            return await self._watchers.wait_for(lambda: self.is_quiet, timeout)
        finally:
            with self._monitor:
                self._watched -= 1

    def want_room(self, count: int) -> None:
        """Call `on_room` once that many cold slots are free; at once when they have become so meanwhile."""
        with self._monitor:
            has_room = self.cold_room >= count
            self._room_wanted = 0 if has_room else count
        if has_room:
            self._on_room()

    def close(self) -> None:
        """Take nothing new; what waits may still be taken."""
        with self._monitor:
            self._is_closed = True
            self._monitor.notify_all()

    def clear(self) -> list[Holding]:
        """Take out everything that waits."""
        with self._monitor:
            waiting = self._lanes.clear()
        self._tell_watchers()
        return waiting

    @property
    def is_quiet(self) -> bool:
        return self._busy == 0 and self._lanes.is_empty

    @property
    def hot_depth(self) -> int:
        return self._lanes.hot_depth

    @property
    def cold_depth(self) -> int:
        return self._lanes.cold_depth

    @property
    def cold_room(self) -> int:
        return 0 if self._is_closed else self._lanes.cold_room
