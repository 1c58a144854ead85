"""The event loop of a program of ours, in its main thread: one that is entered now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
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


async def until_readable(files: Sequence[int]) -> None:
    """Wait until one of these file descriptors has something to read, or has ended; the loop turns meanwhile."""
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    for each in files:
        loop.add_reader(each, came.set)
    try:
        await came.wait()
    finally:
        for each in files:
            loop.remove_reader(each)
