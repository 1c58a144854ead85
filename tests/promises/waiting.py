"""How a test waits for what other processes do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tests.support import PATIENCE

T = TypeVar("T")


#: No look and the wait before it count for more than this. What they took beyond it the machine has given to others,
#: and the processes that are waited for had to wait for it, too.
TURN = 0.01


def until(look: Callable[[], T], *, what: str, timeout: float = PATIENCE) -> T:
    """Look again and again until something is true: other processes send no signals. A busy machine has more time."""
    watch, waited, before = threading.Event(), 0.0, time.monotonic()
    while not (value := look()):
        assert waited < timeout, f"never came: {what}"
        watch.wait(0.005)
        now = time.monotonic()
        waited, before = waited + min(now - before, TURN), now
    return value


def pause(seconds: float) -> None:
    """Let time pass where the moment itself is what is tested."""
    threading.Event().wait(seconds)
