"""A circuit: closed while its destination answers, open while it is away, tried by one event at a time."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

#: Seconds before the first probe of a destination that named no time itself; doubled each time, up to the longest.
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0

#: Seconds that others wait while a probe is under way.
WHILE_PROBING: Final = 0.5


class Circuit:
    """The state of one destination. Time is an argument."""

    def __init__(self) -> None:
        self._failures = 0
        self._until = float("-inf")
        self._is_probed = False

    @property
    def is_open(self) -> bool:
        return self._failures > 0

    def wait(self, now: float) -> float | None:
        """None: go on. Else the seconds to wait. Whoever is let through an open circuit is its probe."""
        if not self.is_open:
            return None
        if now < self._until:
            return self._until - now
        if self._is_probed:
            return WHILE_PROBING
        self._is_probed = True
        return None

    def failed(self, now: float, retry_in: timedelta | None) -> float:
        """The destination is away; the seconds until it is tried again."""
        self._is_probed = False
        if now < self._until:  # one of those that were under way when it opened: it says nothing new
            return self._until - now
        self._failures += 1
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (min(self._failures, 12) - 1))
        self._until = now + (pause if retry_in is None else retry_in.total_seconds())
        return self._until - now

    def answered(self) -> None:
        """Something got through."""
        self._failures, self._until, self._is_probed = 0, float("-inf"), False

    def interrupted(self) -> None:
        """The probe ended without an answer; the next one may try."""
        self._is_probed = False
