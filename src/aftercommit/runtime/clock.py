"""The clock that leases are watched by."""

from __future__ import annotations

import time

# CLOCK_MONOTONIC stands still while a machine is suspended, and a lease does not.
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)


def boottime() -> float:
    """Seconds since some fixed point; goes on during suspend where the platform can tell, never back."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)
