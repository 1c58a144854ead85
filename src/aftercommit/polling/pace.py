"""How long the poller waits between two looks at the table."""

from __future__ import annotations

from datetime import timedelta

#: A cycle that found more than this part of a batch is followed by the next one soon.
_BUSY = 0.25


class Pace:
    """The poller's interval: always the same, or between a minimum and a maximum, as busy as the table is."""

    def __init__(self, minimum: timedelta, maximum: timedelta | None = None, *, batch_size: int = 1) -> None:
        self.interval = minimum
        self._minimum = minimum
        self._maximum = minimum if maximum is None else maximum
        self._busy_from = batch_size * _BUSY

    def after(self, count: int) -> timedelta:
        """The interval behind a cycle that claimed so many rows."""
        is_busy = count > self._busy_from
        self.interval = self._minimum if is_busy else min(2 * self.interval, self._maximum)
        return self.interval
