"""The clock that leases are watched by."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

# CLOCK_MONOTONIC stands still while a machine is suspended, and a lease does not.
_BOOTTIME: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)

#: Seconds since some fixed point; goes on during suspend where the platform can tell, never back.
boottime: Final[Callable[[], float]] = time.monotonic if _BOOTTIME is None else partial(time.clock_gettime, _BOOTTIME)
