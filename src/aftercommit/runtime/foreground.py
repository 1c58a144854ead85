"""The event loop of a program of ours, in its main thread: one that is entered now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Foreground:
    """Runs one coroutine after another on one loop, so that what belongs to a loop goes on from call to call."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(coroutine)

    def close(self) -> None:
        self._runner.close()
