"""Clients that write at the same time: threads with blocking drivers, tasks with async ones."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count, islice, takewhile
from typing import Any, Final

from bench.rounds import Stopwatch

#: Transactions of each client before the clock runs: connections are open, statements known.
WARM_UP: Final = 10

#: Makes what one client writes with: an object with `write(number)` and `close()`, both awaited in a task.
Opens = Callable[[], Any]


def threads(opens: Opens, clients: int, transactions: int | None = None, *, seconds: float = 0) -> Stopwatch:
    """The clients share one row of numbers until it is used up, or until the time is."""
    warm, numbers = _numbers(clients, transactions, seconds)
    ready, done = threading.Barrier(clients + 1), threading.Barrier(clients + 1)
    errors: list[BaseException] = []

    def client() -> None:
        writer = opens()
        try:
            for number in islice(warm, WARM_UP):
                writer.write(number)
            ready.wait()
            for number in numbers:
                writer.write(number)
            done.wait()
        except BaseException as error:
            errors.append(error)
            ready.abort()
            done.abort()
        finally:
            writer.close()

    all_ = [threading.Thread(target=client) for _ in range(clients)]
    for thread in all_:
        thread.start()
    watch = Stopwatch()
    try:
        ready.wait()
        with watch:
            done.wait()
    except threading.BrokenBarrierError:
        raise errors[0] from None
    finally:
        for thread in all_:
            thread.join()
    return watch


async def tasks(opens: Opens, clients: int, transactions: int | None = None, *, seconds: float = 0) -> Stopwatch:
    warm, numbers = _numbers(clients, transactions, seconds)
    writers = [await opens() for _ in range(clients)]

    async def client(write: Callable[[int], Any], turns: Iterator[int]) -> None:
        for number in turns:
            await write(number)

    try:
        await asyncio.gather(*[client(writer.write, islice(warm, WARM_UP)) for writer in writers])
        with Stopwatch() as watch:
            await asyncio.gather(*[client(writer.write, numbers) for writer in writers])
    finally:
        for writer in writers:
            await writer.close()
    return watch


def _numbers(clients: int, transactions: int | None, seconds: float) -> tuple[Iterator[int], Iterator[int]]:
    first = clients * WARM_UP
    warm, numbers = iter(range(first)), count(first)
    if transactions is not None:
        return warm, iter(range(first, first + transactions))
    end: list[float] = []  # known when the first one asks

    def goes_on(_: int) -> bool:
        now = time.monotonic()
        if not end:
            end.append(now + seconds)
        return now < end[0]

    return warm, takewhile(goes_on, numbers)
