"""What the platform says: which process this is, and how much time has passed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Final, NoReturn

from aftercommit.events.outcome import Raised, Result
from aftercommit.events.redact import traceback_text

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


def end_child(result: Result) -> NoReturn:
    """The end of a process that a user's function has forked, and returned in: the worker, the lanes and the leases
    that it would go on with are its parent's. As os._exit() does it; the status is what a program's would be."""
    status = 0
    try:
        match result:
            case Raised(SystemExit(code=code)):
                status = code if isinstance(code, int) else int(code is not None)
            case Raised(error):
                status = 1
                os.write(2, f"in a process that a handler has forked: {traceback_text(error)}\n".encode())
    finally:
        os._exit(status & 0xFF)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=here.begin_anew)
