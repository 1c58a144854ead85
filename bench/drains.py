"""How fast a backlog is delivered to a handler that parses the JSON."""

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
from bench.handlers import handle, handle_async, parse
from bench.results import Goal, Line, compared
from bench.rounds import Rival, Sample, Stopwatch, in_turn
from bench.sizes import Sizes

#: What the hand-written loop is tuned to. The outbox has its defaults.
_TUNED: Final = 500

#: Seconds between two looks whether a started outbox is through.
_LOOK: Final = 0.002

#: Seconds until an outbox that is not through fails the run.
_PATIENCE: Final = 300

_CHUNK: Final = 500


def sqlite_drain(sizes: Sizes, workshop: Path) -> list[Line]:
    """A backlog from NEW to DONE, beside a bare loop that claims, calls a function per row and marks."""
    backlog = _backlog(workshop, sizes.backlog)
    rivals: dict[str, Rival[Sample]] = {
        "hand": partial(_by_hand, backlog),
        "threads, drain()": partial(_threads, backlog, is_started=False),
        "threads, started": partial(_threads, backlog, is_started=True),
        "asyncio, drain()": partial(_in_loop, backlog, is_started=False),
        "asyncio, started": partial(_in_loop, backlog, is_started=True),
    }
    samples = in_turn(rivals, sizes.rounds, workshop)
    return [
        compared(
            "sqlite_drain",
            f"{variant}, default options",
            samples[variant],
            samples["hand"],
            rival=f"bare loop, batch {_TUNED}",
            unit="rows/s",
            goals=[Goal("P11", "ratio", 0.5), Goal("P15", "cpu", 2.5)],
        )
        for variant in samples
        if variant != "hand"
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


def _by_hand(backlog: Path, folder: Path) -> Sample:
    path = _copy(backlog, folder)
    connection = hand.connect(path)
    with Stopwatch() as watch:
        rows = hand.drain(connection, _TUNED, parse)
    connection.close()
    return _checked(path, watch, rows)


def _threads(backlog: Path, folder: Path, *, is_started: bool) -> Sample:
    path = _copy(backlog, folder)
    outbox = Outbox(hand.url(path)).register("OrderPlaced", handle)
    with Stopwatch() as watch:
        if is_started:
            outbox.start()
            _until_through(path)
        else:
            assert outbox.drain().is_complete
    outbox.close()
    return _checked(path, watch)


def _in_loop(backlog: Path, folder: Path, *, is_started: bool) -> Sample:
    return asyncio.run(_asyncio(backlog, folder, is_started=is_started))


async def _asyncio(backlog: Path, folder: Path, *, is_started: bool) -> Sample:
    path = _copy(backlog, folder)
    outbox = AsyncOutbox(hand.url(path)).register("OrderPlaced", handle_async)
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
