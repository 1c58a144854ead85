"""A bell that one task of a loop waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from aftercommit.stores.postgres.wakeups import ANSWER, no_answer


class Bell:
    """Belongs to the loop that it was made on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    @property
    def is_here(self) -> bool:
        return asyncio.get_running_loop() is self._loop

    def wake(self) -> None:
        """Ring, from any thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._rung.set)

    @contextmanager
    def ringing_for(self, socket: int) -> Iterator[None]:
        """Ring when there is something to read, too."""
        self._loop.add_reader(socket, self._rung.set)
        try:
            yield
        finally:
            self._loop.remove_reader(socket)

    async def rung(self, seconds: float) -> bool:
        """Whether it rang within the time, or before."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        was_rung = self._rung.is_set()
        self._rung.clear()
        return was_rung


@asynccontextmanager
async def answered() -> AsyncIterator[None]:
    """What is asked inside has to be answered soon."""
    try:
        async with asyncio.timeout(ANSWER):
            yield
    except TimeoutError:
        raise no_answer() from None


async def one_turn() -> None:
    """Let the loop come round."""
    await asyncio.sleep(0)
