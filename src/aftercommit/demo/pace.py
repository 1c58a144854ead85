"""How fast the demo goes: slow enough to be watched, or as fast as a test likes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Pace:
    """Pauses for the reader in seconds, and the settings of the outbox that decide how long things take."""

    #: Between the acts.
    breath: float
    #: Between two orders.
    order: float
    #: Doubled after each failed attempt.
    first_retry: str
    #: How long a dead process keeps its events from others.
    lease: str
    poll_interval: str


NORMAL: Final = Pace(breath=0.5, order=0.05, first_retry="200ms", lease="2s", poll_interval="250ms")
FAST: Final = Pace(breath=0.0, order=0.0, first_retry="20ms", lease="800ms", poll_interval="50ms")
