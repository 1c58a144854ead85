"""Destinations that are away: which handlers talk to them, and whose turn it is to try."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from aftercommit.events.log import Log
from aftercommit.events.outcome import Unavailable
from aftercommit.events.redact import redact
from aftercommit.ports import Runtime

log = Log("aftercommit.circuits")

#: Seconds before the first probe of a destination that named no time itself; doubled each time, up to the longest.
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0

#: Seconds that others wait while a probe is under way.
WHILE_PROBING: Final = 0.5

#: What is remembered of a handler that has named more than one destination: which one an event is for, only it knows.
SEVERAL: Final = ""


class Circuit:
    """One destination: closed while it answers, open while it is away, then tried by one event at a time."""

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


class Circuits:
    """One circuit for each destination that was called unavailable. Safe from any thread.

    `destination` is what the handler has declared for the event; None: the one that it has named before, if any.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.clock
        self._lock = runtime.lock()
        self._destinations: dict[str, str] = {}
        #: The destinations that were ever away; mostly there is none.
        self.known: dict[str, Circuit] = {}

    def wait(self, handler_id: str, destination: str | None) -> float | None:
        """Seconds that the event has to wait; None when it may be tried."""
        if not self.known:
            return None
        with self._lock:
            circuit = self._circuit(handler_id, destination)
            return None if circuit is None else circuit.wait(self._clock())

    def away(self, handler_id: str, destination: str | None, error: Unavailable) -> float:
        """A destination is away; the seconds until the event should come again."""
        with self._lock:
            if destination is None and not self._is_only(handler_id, error.destination):
                return FIRST_PAUSE if error.retry_in is None else error.retry_in.total_seconds()
            circuit = self.known.setdefault(error.destination, Circuit())
            if not circuit.is_open:
                log.warning("%s is away; its events wait, and one at a time tries again", redact(error.destination))
            return circuit.failed(self._clock(), error.retry_in)

    def _is_only(self, handler_id: str, destination: str) -> bool:
        """Whether the handler has named no other destination; one that has needs no circuit any more."""
        known = self._destinations.setdefault(handler_id, destination)
        if known != destination:
            self._destinations[handler_id] = SEVERAL
            if known not in self._destinations.values():
                self.known.pop(known, None)
        return known == destination

    def answered(self, handler_id: str, destination: str | None) -> None:
        """A call ended in another way: its destination is there."""
        if not self.known:
            return
        with self._lock:
            circuit = self._circuit(handler_id, destination)
            if circuit is not None and circuit.is_open:
                circuit.answered()
                log.info("%s is back", redact(destination or self._destinations[handler_id]))

    def silent(self, handler_id: str, destination: str | None) -> None:
        """A call ran into its timeout: a destination that was away is not back."""
        with self._lock:
            circuit = self._circuit(handler_id, destination)
            if circuit is not None and circuit.is_open:
                circuit.failed(self._clock(), None)

    def interrupted(self, handler_id: str, destination: str | None) -> None:
        """A call was broken off before it could tell anything."""
        with self._lock:
            circuit = self._circuit(handler_id, destination)
            if circuit is not None:
                circuit.interrupted()

    def open(self) -> tuple[str, ...]:
        """The destinations that are away, as people may read of them."""
        with self._lock:
            return tuple(sorted(redact(name) for name, circuit in self.known.items() if circuit.is_open))

    def _circuit(self, handler_id: str, destination: str | None) -> Circuit | None:
        return self.known.get(destination or self._destinations.get(handler_id, SEVERAL))
