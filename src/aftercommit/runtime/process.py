"""What the platform says: which process this is, and how much time has passed."""

from __future__ import annotations

import os
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


class Process:
    """Which one this is: a forked child has its parent's memory and its threads' names, and nothing else of it.

    The token is another object in every child; cheaper to look at than the pid, and never used again.
    """

    def __init__(self) -> None:
        self.token = object()
        self.is_forked = False

    def begin_anew(self) -> None:
        self.token = object()
        self.is_forked = True


#: `here.token` was taken in this process, or it was not.
here = Process()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=here.begin_anew)
