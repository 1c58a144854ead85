"""Lanes for rows that are leased when a worker is there to start them (`lease_ahead=False`)."""

from __future__ import annotations

from typing import TypeVar

from aftercommit.delivery.lanes import Lanes
from aftercommit.delivery.suspects import Laned

T = TypeVar("T", bound=Laned)


class LanesOfIdle(Lanes[T]):
    """With as much cold room as there are workers: one that runs takes up the room of one that waits. So room comes
    free when a worker has nothing in hand, and the agenda is told then."""

    @property
    def cold_room(self) -> int:
        return max(0, super().cold_room - len(self._busy))

    def take_now(self) -> T | None:
        # Each who looks counts as busy meanwhile, and may be what somebody found who asked for room.
        item = super().take_now()
        if item is None:
            self._got_idle()
        return item

    def _next(self) -> tuple[T | None, ...]:
        found = super()._next()
        if not found:
            self._tell_room()
        return found

    def finished(self, item: T, *, goes_on: bool = True) -> list[T]:
        leaving = super().finished(item, goes_on=goes_on)
        self._got_idle()
        return leaving

    def _left(self) -> None:
        super()._left()
        self._got_idle()

    def _got_idle(self) -> None:
        """Whoever wants room says so before it looks, and this looks after the room is there: one sees the other."""
        if self._room_wanted:
            with self._monitor:
                self._tell_room()
