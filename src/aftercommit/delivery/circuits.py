"""Destinations that are away: which handlers talk to them, and whose turn it is to try."""

from __future__ import annotations

import logging
from typing import Final

from aftercommit.delivery.circuit import FIRST_PAUSE, Circuit
from aftercommit.events.outcome import Unavailable
from aftercommit.ports import Runtime

log = logging.getLogger("aftercommit.circuits")

#: What is remembered of a handler that has named more than one destination: which one an event is for, only it knows.
SEVERAL: Final = ""


class Circuits:
    """One circuit for each destination that was called unavailable. Safe from any thread.

    `destination` is what the handler has declared for the event; None: the one that it has named before, if any.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.clock
        self._lock = runtime.lock()
        self._destinations: dict[str, str] = {}
        self._circuits: dict[str, Circuit] = {}

    def __bool__(self) -> bool:
        """Whether any destination was ever away."""
        return bool(self._circuits)

    def wait(self, handler_id: str, destination: str | None) -> float | None:
        """Seconds that the event has to wait; None when it may be tried."""
        if not self._circuits:
            return None
        with self._lock:
            circuit = self._circuit(handler_id, destination)
            return None if circuit is None else circuit.wait(self._clock())

    def away(self, handler_id: str, destination: str | None, error: Unavailable) -> float:
        """A destination is away; the seconds until the event should come again."""
        with self._lock:
            if destination is None and not self._is_only(handler_id, error.destination):
                return FIRST_PAUSE if error.retry_in is None else error.retry_in.total_seconds()
            circuit = self._circuits.setdefault(error.destination, Circuit())
            if not circuit.is_open:
                log.warning("%s is away; its events wait, and one at a time tries again", error.destination)
            return circuit.failed(self._clock(), error.retry_in)

    def _is_only(self, handler_id: str, destination: str) -> bool:
        """Whether the handler has named no other destination; one that has needs no circuit any more."""
        known = self._destinations.setdefault(handler_id, destination)
        if known != destination:
            self._destinations[handler_id] = SEVERAL
            if known not in self._destinations.values():
                self._circuits.pop(known, None)
        return known == destination

    def answered(self, handler_id: str, destination: str | None) -> None:
        """A call ended in another way: its destination is there."""
        if not self._circuits:
            return
        with self._lock:
            circuit = self._circuit(handler_id, destination)
            if circuit is not None and circuit.is_open:
                circuit.answered()
                log.info("%s is back", destination or self._destinations[handler_id])

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
        """The destinations that are away."""
        with self._lock:
            return tuple(sorted(name for name, circuit in self._circuits.items() if circuit.is_open))

    def _circuit(self, handler_id: str, destination: str | None) -> Circuit | None:
        return self._circuits.get(destination or self._destinations.get(handler_id, SEVERAL))
