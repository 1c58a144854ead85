"""How many at once, how many in a time: when an event may start, and when one that may not should come again."""

from __future__ import annotations

from typing import Final

from aftercommit.handlers.options import Rate

#: Nothing that has to wait comes back sooner.
SHORTEST: Final = 0.01


class Bucket:
    """Starts that are left under a rate. Time is an argument; it never goes back."""

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self._left = float(rate.count)
        self._at = now

    def take(self, now: float) -> bool:
        """Whether one may start now; if so, it is counted."""
        self._left = min(self._rate.count, self._left + (now - self._at) / self._rate.interval)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Queue:
    """Spreads those that have to wait: each comes again one interval behind the one before it."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def wait(self, now: float, interval: float) -> float:
        """Seconds until the next one in line should be tried."""
        self._last = max(now, self._last) + max(interval, SHORTEST)
        return self._last - now
