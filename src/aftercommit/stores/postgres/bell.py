"""A bell that one task of a loop waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from aftercommit.stores.postgres.wakeups import ANSWER, no_answer


class Bell:
    """Belongs to the loop that it was made on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()
        self._socket: int | None = None

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
        self._socket = socket
        self._loop.add_reader(socket, self._rung.set)
        try:
            yield
        finally:
            self.ring_no_more()

    def ring_no_more(self) -> None:
        """Call it before a socket is closed: its number may be another's soon."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket = None

    async def rung(self, seconds: float) -> bool:
        """Whether it rang within the time, or before."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        was_rung = self._rung.is_set()
        self._rung.clear()
        return was_rung


@asynccontextmanager
async def answered(cut: Callable[[], None]) -> AsyncIterator[None]:
    """What is asked inside has to be answered soon. Else `cut`: no farewell would be answered either."""
    try:
        async with asyncio.timeout(ANSWER):
            yield
    except TimeoutError:
        cut()
        raise no_answer() from None


async def one_turn() -> None:
    """Let the loop come round."""
    await asyncio.sleep(0)
