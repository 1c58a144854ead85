"""How fast a backlog is delivered to a handler that does nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import time
from functools import partial
from pathlib import Path
from typing import Final

from aftercommit import AsyncOutbox, EventEnvelope, Outbox
from bench import hand
from bench.results import Goal, Line, compared
from bench.rounds import Rival, Sample, Stopwatch, in_turn
from bench.sizes import Sizes
from bench.writes import nothing, nothing_async

#: The outbox's default, and ten times as much.
_BATCH_SIZES: Final = (50, 500)

#: Seconds between two looks whether a started outbox is through.
_LOOK: Final = 0.002

#: Seconds until an outbox that is not through fails the run.
_PATIENCE: Final = 300

_CHUNK: Final = 500


def drain(sizes: Sizes, workshop: Path) -> list[Line]:
    """A backlog from NEW to DONE, beside a bare loop that claims, calls a function per row and marks."""
    backlog = _backlog(workshop, sizes.backlog)
    rivals: dict[str, Rival[Sample]] = {}
    for batch_size in _BATCH_SIZES:
        rivals |= {
            f"hand {batch_size}": partial(_by_hand, backlog, batch_size),
            f"threads, drain() {batch_size}": partial(_threads, backlog, batch_size, is_started=False),
            f"threads, started {batch_size}": partial(_threads, backlog, batch_size, is_started=True),
            f"asyncio, drain() {batch_size}": partial(_in_loop, backlog, batch_size, is_started=False),
            f"asyncio, started {batch_size}": partial(_in_loop, backlog, batch_size, is_started=True),
        }
    samples = in_turn(rivals, sizes.rounds, workshop)
    return [
        compared(
            "drain",
            f"{variant}, batch {batch_size}",
            samples[f"{variant} {batch_size}"],
            samples[f"hand {batch_size}"],
            rival=f"bare loop, batch {batch_size}",
            unit="rows/s",
            # The target was set for the default batch size.
            goal=Goal("ratio", target=0.25, aim=0.5) if batch_size == _BATCH_SIZES[0] else None,
        )
        for batch_size in _BATCH_SIZES
        for variant in ("threads, drain()", "threads, started", "asyncio, drain()", "asyncio, started")
    ]


def _backlog(workshop: Path, rows: int) -> Path:
    """A database with that many events that are due; every round gets a copy."""
    folder = workshop / "backlog"
    folder.mkdir()
    path = hand.new_database(folder)
    outbox = Outbox(hand.url(path))
    for start in range(0, rows, _CHUNK):
        with outbox.transaction():
            outbox.write_all(
                EventEnvelope("OrderPlaced", payload_json=hand.encode(hand.payload(number)).decode())
                for number in range(start, min(start + _CHUNK, rows))
            )
    outbox.close()
    assert hand.count(path, "status = 0") == rows
    return path


def _copy(backlog: Path, folder: Path) -> Path:
    """On disk before the clock runs, so that no round pays for its copy."""
    path = folder / backlog.name
    shutil.copyfile(backlog, path)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return path


def _by_hand(backlog: Path, batch_size: int, folder: Path) -> Sample:
    path = _copy(backlog, folder)
    connection = hand.connect(path)
    with Stopwatch() as watch:
        rows = hand.drain(connection, batch_size, nothing)
    connection.close()
    return _checked(path, watch, rows)


def _threads(backlog: Path, batch_size: int, folder: Path, *, is_started: bool) -> Sample:
    path = _copy(backlog, folder)
    outbox = Outbox(hand.url(path), batch_size=batch_size).register("OrderPlaced", nothing)
    with Stopwatch() as watch:
        if is_started:
            outbox.start()
            _until_through(path)
        else:
            assert outbox.drain().is_complete
    outbox.close()
    return _checked(path, watch)


def _in_loop(backlog: Path, batch_size: int, folder: Path, *, is_started: bool) -> Sample:
    return asyncio.run(_asyncio(backlog, batch_size, folder, is_started=is_started))


async def _asyncio(backlog: Path, batch_size: int, folder: Path, *, is_started: bool) -> Sample:
    path = _copy(backlog, folder)
    outbox = AsyncOutbox(hand.url(path), batch_size=batch_size).register("OrderPlaced", nothing_async)
    with Stopwatch() as watch:
        if is_started:
            await outbox.start()
            await _until_through_async(path)
        else:
            assert (await outbox.drain()).is_complete
    await outbox.close()
    return _checked(path, watch)


def _until_through(path: Path) -> None:
    """Look from outside: the table is the only witness that does not slow the workers down."""
    connection, limit = sqlite3.connect(path), time.monotonic() + _PATIENCE
    while _is_pending(connection):
        assert time.monotonic() < limit, "the outbox does not come to an end"
        time.sleep(_LOOK)
    connection.close()


async def _until_through_async(path: Path) -> None:
    connection, limit = sqlite3.connect(path), time.monotonic() + _PATIENCE
    while _is_pending(connection):
        assert time.monotonic() < limit, "the outbox does not come to an end"
        await asyncio.sleep(_LOOK)
    connection.close()


def _is_pending(connection: sqlite3.Connection) -> bool:
    """One step into the index of pending rows."""
    return bool(connection.execute("SELECT EXISTS (SELECT 1 FROM outbox_event WHERE status IN (0, 2))").fetchone()[0])


def _checked(path: Path, watch: Stopwatch, rows: int | None = None) -> Sample:
    """The sample, once every row is known to be DONE."""
    done = hand.count(path, "status = 1")
    assert hand.count(path, "status <> 1") == 0
    assert rows is None or rows == done
    return watch.sample(done)
