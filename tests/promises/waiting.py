"""How a test waits for what other processes do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tests.support import PATIENCE

T = TypeVar("T")


def until(look: Callable[[], T], *, what: str, timeout: float = PATIENCE) -> T:
    """Look again and again until something is true: other processes send no signals."""
    watch, limit = threading.Event(), time.monotonic() + timeout
    while not (value := look()):
        assert time.monotonic() < limit, f"never came: {what}"
        watch.wait(0.005)
    return value


def pause(seconds: float) -> None:
    """Let time pass where the moment itself is what is tested."""
    threading.Event().wait(seconds)
