"""A tracker of the user's own, which is asked before each delivery."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Final

from aftercommit.events.claims import Claimed
from aftercommit.events.log import Log
from aftercommit.events.outcome import Defer, Outcome
from aftercommit.events.redact import error_text
from aftercommit.hooks import InFlightTracker
from aftercommit.meter import Meter

log = Log("aftercommit.delivery")

#: When an event that cannot run here now is looked at again.
LATER: Final = timedelta(seconds=1)


class Tracked:
    """Delivers what the tracker lets pass; the rest comes again."""

    def __init__(
        self, tracker: InFlightTracker, meter: Meter, deliver: Callable[[Claimed], Coroutine[Any, Any, Outcome]]
    ) -> None:
        self._tracker = tracker
        self._meter = meter
        self._deliver = deliver

    async def deliver(self, claimed: Claimed) -> Outcome:
        if not self.enter(claimed):
            return Defer(LATER)
        try:
            return await self._deliver(claimed)
        finally:
            self.leave(claimed)

    def enter(self, claimed: Claimed) -> bool:
        """Whether it lets this one pass."""
        return bool(self._asked(self._tracker.try_acquire, _name_of(claimed)))

    def leave(self, claimed: Claimed) -> None:
        """One that passed has ended."""
        self._asked(self._tracker.release, _name_of(claimed))

    def _asked(self, question: Callable[[str], object], name: str) -> object:
        """The tracker's answer; None when it failed. It may be a user's own, and away."""
        try:
            return question(name)
        except Exception as error:
            if self._meter.may_say("tracker"):
                log.warning("the in-flight tracker failed for %s: %s", name, error_text(error), error=error)
            return None


def _name_of(claimed: Claimed) -> str:
    return "/".join(part for part in claimed.lease.key if part)
