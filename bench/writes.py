"""What a write costs in the caller's transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aftercommit import AsyncOutbox, Outbox
from bench import hand
from bench.handlers import handle, handle_async
from bench.results import Goal, Line, compared
from bench.rounds import Rival, Sample, Stopwatch, in_turn
from bench.sizes import Sizes

#: Transactions before the clock runs: connections are open, statements known.
_WARM_UP: Final = 20

_BATCH: Final = 100

_GOALS: Final = (Goal("P11", "ratio", 0.80), Goal("P15", "cpu", 1.2))


# ---------------------------------------------------------------- threads


def sqlite_write(sizes: Sizes, workshop: Path) -> list[Line]:
    """`with outbox.transaction()`: one business insert and one event, in one thread."""
    samples = in_turn(
        {
            "hand": lambda folder: _by_hand(folder, sizes.transactions),
            "execute": lambda folder: _threads(folder, sizes.transactions, _by_execute),
            "connection": lambda folder: _threads(folder, sizes.transactions, _by_connection),
            "started": lambda folder: _threads(folder, sizes.transactions, _by_execute, is_started=True),
        },
        sizes.rounds,
        workshop,
    )
    variants = (
        ("execute", "not started, tx.execute", _GOALS),
        ("connection", "not started, tx.connection.execute", _GOALS),
        ("started", "started, delivering meanwhile", ()),
    )
    return [
        compared("sqlite_write", text, samples[name], samples["hand"], rival="two inserts", unit="tx/s", goals=goals)
        for name, text, goals in variants
    ]


def _by_hand(folder: Path, transactions: int) -> Sample:
    path = hand.new_database(folder)
    connection = hand.connect(path)
    for number in range(_WARM_UP):
        hand.write(connection, number)
    with Stopwatch() as watch:
        for number in range(_WARM_UP, _WARM_UP + transactions):
            hand.write(connection, number)
    connection.close()
    return _checked(path, watch, transactions)


def _threads(
    folder: Path, transactions: int, write: Callable[[Outbox, int], None], *, is_started: bool = False
) -> Sample:
    path = hand.new_database(folder)
    outbox = Outbox(hand.url(path)).register("OrderPlaced", handle)
    if is_started:
        outbox.start()
    for number in range(_WARM_UP):
        write(outbox, number)
    with Stopwatch() as watch:
        for number in range(_WARM_UP, _WARM_UP + transactions):
            write(outbox, number)
    outbox.close()
    return _checked(path, watch, transactions)


def _by_execute(outbox: Outbox, number: int) -> None:
    with outbox.transaction() as tx:
        tx.execute(hand.BUSINESS, hand.order(number))
        outbox.write("OrderPlaced", hand.payload(number))


def _by_connection(outbox: Outbox, number: int) -> None:
    with outbox.transaction() as tx:
        tx.connection.execute(hand.BUSINESS, hand.order(number))
        outbox.write("OrderPlaced", hand.payload(number))


# ---------------------------------------------------------------- asyncio


def sqlite_write_asyncio(sizes: Sizes, workshop: Path) -> list[Line]:
    """The same in one task. The standard library has no async sqlite3, so by hand means a thread of one's own.

    Hops: every statement is handed to that thread and awaited, as async drivers do. One job: the whole transaction is
    one function on that thread, which leaves the program no room between its statements.
    """
    samples = in_turn(
        {
            "hops": lambda folder: asyncio.run(_hops(folder, sizes.transactions, _write_by_hops)),
            "job": lambda folder: asyncio.run(_hops(folder, sizes.transactions, _write_as_job)),
            "ours": lambda folder: asyncio.run(_asyncio(folder, sizes.transactions)),
            "started": lambda folder: asyncio.run(_asyncio(folder, sizes.transactions, is_started=True)),
        },
        sizes.rounds,
        workshop,
    )
    lines = (
        ("not started / hops", "ours", "hops", "a hop per statement", _GOALS),
        ("not started / one job", "ours", "job", "the transaction as one job", ()),
        ("started, delivering meanwhile / hops", "started", "hops", "a hop per statement", ()),
    )
    return [
        compared("sqlite_write_asyncio", text, samples[name], samples[rival], rival=described, unit="tx/s", goals=goals)
        for text, name, rival, described, goals in lines
    ]


async def _asyncio(folder: Path, transactions: int, *, is_started: bool = False) -> Sample:
    path = hand.new_database(folder)
    outbox = AsyncOutbox(hand.url(path)).register("OrderPlaced", handle_async)
    if is_started:
        await outbox.start()
    for number in range(_WARM_UP):
        await _write(outbox, number)
    with Stopwatch() as watch:
        for number in range(_WARM_UP, _WARM_UP + transactions):
            await _write(outbox, number)
    await outbox.close()
    return _checked(path, watch, transactions)


async def _write(outbox: AsyncOutbox, number: int) -> None:
    async with outbox.transaction() as tx:
        await tx.execute(hand.BUSINESS, hand.order(number))
        await outbox.write("OrderPlaced", hand.payload(number))


async def _hops(folder: Path, transactions: int, write: Callable[..., Any]) -> Sample:
    path = hand.new_database(folder)
    connection, thread = hand.connect(path), ThreadPoolExecutor(1)
    for number in range(_WARM_UP):
        await write(thread, connection, number)
    with Stopwatch() as watch:
        for number in range(_WARM_UP, _WARM_UP + transactions):
            await write(thread, connection, number)
    thread.shutdown()
    connection.close()
    return _checked(path, watch, transactions)


async def _write_by_hops(thread: ThreadPoolExecutor, connection: Any, number: int) -> None:
    hop = asyncio.get_running_loop().run_in_executor
    await hop(thread, connection.execute, "BEGIN IMMEDIATE")
    await hop(thread, connection.execute, hand.BUSINESS, hand.order(number))
    await hop(thread, hand.insert_event, connection, number)
    await hop(thread, connection.execute, "COMMIT")


async def _write_as_job(thread: ThreadPoolExecutor, connection: Any, number: int) -> None:
    await asyncio.get_running_loop().run_in_executor(thread, hand.write, connection, number)


# ---------------------------------------------------------------- many at once


@dataclass(frozen=True, slots=True)
class OrderPlaced:
    """An event as an object of the program's own."""

    order: int
    customer: dict[str, str]
    items: list[dict[str, Any]]
    total: int
    currency: str
    note: str
    channel: str


def sqlite_write_all(sizes: Sizes, workshop: Path) -> list[Line]:
    """`write_all` of 100 objects in a transaction of its own, beside executemany of 100 rows."""
    contents = [OrderPlaced(**hand.payload(number)) for number in range(_BATCH)]
    rivals: dict[str, Rival[Sample]] = {
        "hand": lambda folder: _all_by_hand(folder, sizes.batches, contents),
        "ours": lambda folder: _all(folder, sizes.batches, contents),
    }
    samples = in_turn(rivals, sizes.rounds, workshop)
    return [
        compared(
            "sqlite_write_all",
            f"{_BATCH} events per transaction",
            samples["ours"],
            samples["hand"],
            rival="executemany",
            unit="events/s",
            goals=[Goal("P2", "ratio", 0.85)],
        )
    ]


def _all_by_hand(folder: Path, batches: int, contents: list[OrderPlaced]) -> Sample:
    path = hand.new_database(folder)
    connection = hand.connect(path)
    hand.write_all(connection, contents, 0)
    with Stopwatch() as watch:
        for number in range(1, batches + 1):
            hand.write_all(connection, contents, number * _BATCH)
    connection.close()
    return _checked(path, watch, batches * _BATCH, warm_up=_BATCH)


def _all(folder: Path, batches: int, contents: list[OrderPlaced]) -> Sample:
    path = hand.new_database(folder)
    outbox = Outbox(hand.url(path))
    _batch(outbox, contents)
    with Stopwatch() as watch:
        for _ in range(batches):
            _batch(outbox, contents)
    outbox.close()
    return _checked(path, watch, batches * _BATCH, warm_up=_BATCH)


def _batch(outbox: Outbox, contents: list[OrderPlaced]) -> None:
    with outbox.transaction():
        outbox.write_all(contents)


# ---------------------------------------------------------------- shared


def _checked(path: Path, watch: Stopwatch, units: int, *, warm_up: int = _WARM_UP) -> Sample:
    """The sample, once all rows are known to be there."""
    assert hand.count(path, "1") == warm_up + units
    return watch.sample(units)
