"""What is paused over the fleet, as this process knows it: its events are put off, and nothing of them is counted."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Final

from aftercommit.delivery.agenda import EVERYWHERE, Agenda
from aftercommit.events.claims import Claimed
from aftercommit.events.log import Log
from aftercommit.events.outcome import Defer, Outcome
from aftercommit.events.pauses import PUT_OFF_AT_LEAST, PUT_OFF_AT_MOST, Pause, PauseKey, PauseKind
from aftercommit.handlers.routing import Route
from aftercommit.ports import Pauses, Runtime
from aftercommit.service import Repeating

log = Log("aftercommit.pauses")

#: Seconds between two looks that nobody has called for.
APART: Final = 1.0


class Known:
    """One pause, on this process's clock."""

    def __init__(self, pause: Pause, now: float, types: set[str]) -> None:
        self.key = pause.key
        self._began_at = now - pause.lasted.total_seconds()
        self._ends_at = float("inf") if pause.ends_in is None else now + pause.ends_in.total_seconds()
        #: The types of the events that were put off.
        self.types = types

    def wait(self, now: float) -> float:
        """Seconds until an event of it should come again; 0 when it is over."""
        least, most = PUT_OFF_AT_LEAST.total_seconds(), PUT_OFF_AT_MOST.total_seconds()
        return max(0.0, min(self._ends_at - now, most, max(least, now - self._began_at)))


class KnownPauses:
    """Read by the poller's loop with its looks into the table, at most once a second, and at once when somebody says
    that they have changed. Asked from any thread."""

    def __init__(self, runtime: Runtime, kept: Pauses | None = None, agenda: Agenda | None = None) -> None:
        self._clock = runtime.clock
        self._lock = runtime.lock()
        self._kept = kept
        self._agenda = agenda
        #: When to look again, on the runtime's clock.
        self.look_at = float("inf") if kept is None else float("-inf")
        #: Mostly there is none.
        self.known: dict[PauseKey, Known] = {}
        #: Ended since the last look. What was put off of them right before may be written only now.
        self._over: list[Known] = []

    # ------------------------------------------------------------ delivering

    async def unless_paused(
        self, run: Callable[[Claimed, Route], Coroutine[Any, Any, Outcome]], claimed: Claimed, route: Route
    ) -> Outcome:
        """A suspect is put off like any other, and is none any more: nobody may start it, and it must not come round
        and round."""
        wait = self.wait(route.id, claimed.event.event_type)
        return Defer(timedelta(seconds=wait)) if wait > 0 else await run(claimed, route)

    def wait(self, handler_id: str, event_type: str) -> float:
        """Seconds that the event has to wait; 0 when it may be tried."""
        now, wait = self._clock(), 0.0
        with self._lock:
            for key in (PauseKey(PauseKind.HANDLER, handler_id), PauseKey(PauseKind.TYPE, event_type)):
                known = self.known.get(key)
                if known is not None and (its := known.wait(now)) > 0:
                    known.types.add(event_type)
                    wait = max(wait, its)
        return wait

    # ------------------------------------------------------------ knowing

    def call(self) -> None:
        """They have changed. From any thread."""
        if self._kept is not None:
            self.look_at = float("-inf")
        if self._agenda is not None:
            self._agenda.add(EVERYWHERE)

    async def look(self) -> None:
        """What there is now, unless that is known well enough."""
        now = self._clock()
        if self._kept is None or now < self.look_at:
            return
        self.look_at = now + APART
        try:
            found = {pause.key: pause for pause in await self._kept.all()}
        except BaseException:
            self.look_at = float("-inf")
            raise
        if found or self.known or self._over:
            again, self._over = self._over, self._changed(found, now)
            for over in (*again, *self._over):
                await self._hasten(over)

    def _changed(self, found: dict[PauseKey, Pause], now: float) -> list[Known]:
        """Those that are over."""
        with self._lock:
            before = self.known
            self.known = {
                key: Known(pause, now, before[key].types if key in before else set()) for key, pause in found.items()
            }
        for key in sorted(found.keys() - before.keys(), key=str):
            pause = found[key]
            until = "" if pause.until is None else f" until {pause.until:%Y-%m-%d %H:%M:%S} UTC"
            log.warning("%s is paused%s by %s: %s", key, until, pause.paused_by, pause.reason or "no reason was given")
        over = sorted(before.keys() - found.keys(), key=str)
        for key in over:
            log.warning("%s is paused no more", key)
        return [before[key] for key in over]

    async def _hasten(self, over: Known) -> None:
        """What this process has put off is due now. Others do the same, and whoever resumes for those that are gone."""
        if self._kept is None or self._agenda is None:
            return
        for event_type in sorted(over.types):
            if over.key.kind is PauseKind.TYPE:
                await self._kept.hasten(event_type, None)
            else:
                await self._kept.hasten(event_type, over.key.name)
                await self._kept.hasten(event_type, "")
        self._agenda.add(EVERYWHERE)
        self._agenda.add(EVERYWHERE, APART)


class PauseWatch(Repeating):
    """Looks where no poller does."""

    is_vital = False

    def __init__(self, runtime: Runtime, pauses: KnownPauses) -> None:
        super().__init__(runtime, "aftercommit-pauses", timedelta(seconds=APART))
        self._pauses = pauses

    async def work(self) -> None:
        await self._pauses.look()
