"""What the async drivers need of event loops: cancellations that are not lost, and a signal that one task waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import nullcontext, suppress
from typing import TypeVar

T = TypeVar("T")


def cancellations() -> int:
    """How often this task has been asked to end."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


async def heard(work: Awaitable[T]) -> T:
    """The value, unless the task was cancelled meanwhile. Before Python 3.12 `asyncio.wait_for`, by which psycopg
    waits, loses a cancellation that comes together with its result."""
    before = cancellations()
    value = await work
    if cancellations() > before:
        raise not_heard()
    return value


async def arrived(socket: int, *, writable: bool = False) -> bool:
    """Until there is something to read on a socket, which is True; or until it takes more, where that is waited for."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[bool] = loop.create_future()
    loop.add_reader(socket, _settle, ready, True)
    if writable:
        loop.add_writer(socket, _settle, ready, False)
    try:
        return await ready
    finally:
        loop.remove_reader(socket)
        if writable:
            loop.remove_writer(socket)


def _settle(ready: asyncio.Future[bool], is_readable: bool) -> None:
    if not ready.done():
        ready.set_result(is_readable)


def not_heard() -> asyncio.CancelledError:
    return asyncio.CancelledError()


class LoopSignal:
    """Something that one task waits for. It belongs to the loop that it was made on."""

    #: On a loop nobody else runs while a connection is used.
    in_use = nullcontext()

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._given = asyncio.Event()
        self._socket: int | None = None

    @property
    def is_here(self) -> bool:
        return asyncio.get_running_loop() is self._loop

    def wake(self) -> None:
        """From any thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._given.set)

    async def wait(self, seconds: float, socket: int | None = None) -> bool:
        """Whether it was given within the time, or before; or there is something to read on the socket."""
        if socket is not None:
            self._socket = socket
            self._loop.add_reader(socket, self._given.set)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._given.wait()
        finally:
            self.end()
        was_given = self._given.is_set()
        self._given.clear()
        return was_given

    def end(self) -> None:
        """Call it before a socket is closed: its number may be another's soon."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket = None
