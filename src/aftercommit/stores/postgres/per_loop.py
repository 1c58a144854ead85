"""Pools under asyncio: each belongs to a loop."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import Generic, TypeVar

from aftercommit.stores.sql.connections import abandoned

Pool = TypeVar("Pool")
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


def not_heard() -> asyncio.CancelledError:
    return asyncio.CancelledError()


class PerLoop(ABC, Generic[Pool]):
    """A pool belongs to the loop that it was opened on; on another loop there is another one."""

    def __init__(self) -> None:
        self._pool: Pool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening: asyncio.Lock | None = None

    async def current(self) -> Pool:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self.abandon()  # of a loop that has ended, so its connections can only be left alone
            self._loop, self._opening = loop, asyncio.Lock()
        if self._pool is None:
            assert self._opening is not None  # noqa: S101
            async with self._opening:
                if self._pool is None:
                    self._pool = await self.opened()
        return self._pool

    @abstractmethod
    async def opened(self) -> Pool:
        """A new pool, on the running loop."""

    def let_go(self) -> Pool | None:
        pool, self._pool = self._pool, None
        return pool if self._loop is asyncio.get_running_loop() else None

    def abandon(self) -> None:
        if self._pool is not None:
            abandoned.append(self._pool)
        self._pool = self._loop = None
