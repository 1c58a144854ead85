"""A schedule of the user's own for the poller."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Protocol

from aftercommit.events.durations import duration
from aftercommit.events.log import Log
from aftercommit.events.redact import error_text
from aftercommit.hooks import PollResult, PollTrigger
from aftercommit.meter import Meter

log = Log("aftercommit.poller")

#: No trigger sets less: a poller that never rests leaves no room for others.
SHORTEST: Final = timedelta(milliseconds=1)
#: And none sets more, so that what a dead process has left is found some day.
LONGEST: Final = timedelta(days=1)


class OwnPace(Protocol):
    """Fixed or adaptive, as the options say."""

    interval: timedelta

    def after(self, count: int, *, is_own: bool = False) -> timedelta: ...


class TriggeredPace:
    """The interval that a trigger sets after each poll; the outbox's own when it raises or gives no duration."""

    def __init__(self, own: OwnPace, trigger: PollTrigger, meter: Meter) -> None:
        self.interval = own.interval
        self._own = own
        self._trigger = trigger
        self._meter = meter

    def after(self, count: int, *, is_own: bool = False) -> timedelta:
        """The interval behind a cycle that claimed so many rows."""
        interval = self._own.after(count, is_own=is_own)
        try:
            chosen = duration(self._trigger(PollResult(count, interval)), name="poll_trigger")
            self.interval = min(max(chosen, SHORTEST), LONGEST)
        except Exception as error:
            self.interval = interval
            if self._meter.may_say("trigger"):
                log.warning("the poll_trigger failed, and poll_interval is used: %s", error_text(error), error=error)
        return self.interval
