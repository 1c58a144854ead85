"""The clock that leases are watched by."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

#: Seconds since some fixed point; goes on during suspend where the platform can tell, never back: CLOCK_MONOTONIC
#: stands still while a machine is suspended, and a lease does not. It is asked several times for each event, so it is
#: no function of ours.
boottime: Final[Callable[[], float]] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)
