"""Whether two processes deliver a backlog faster than one."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.results import Goal, Line, compared
from bench.rounds import Rival, Sample, Stopwatch, in_turn
from bench.servers.places import Postgres
from bench.sizes import Sizes

_DRIVERS: Final = ("psycopg", "asyncpg")

#: Seconds between two looks whether the backlog is gone.
_LOOK: Final = 0.005

_PATIENCE: Final = 120


def postgres_processes(sizes: Sizes, workshop: Path) -> list[Line]:
    """Started outboxes in processes of their own, two beside one; the hand-written loop for comparison."""
    lines = []
    with Postgres.opened() as place:
        for driver in _DRIVERS:
            rivals: dict[str, Rival[Sample]] = {
                f"{who} {number}": partial(round_of, place, sizes.server_backlog, who, driver, number)
                for who in ("outbox", "hand")
                for number in (1, 2)
            }
            samples = in_turn(rivals, sizes.rounds, workshop)
            lines += [
                _line(driver, "two / one", samples, "outbox 2", "outbox 1", Goal("ratio", target=1.6)),
                _line(driver, "by hand, two / one", samples, "hand 2", "hand 1", None),
                _line(driver, "two / two by hand", samples, "outbox 2", "hand 2", None),
            ]
    return lines


def _line(driver: str, text: str, samples: dict[str, list[Sample]], ours: str, theirs: str, goal: Goal | None) -> Line:
    variant = f"{driver}, {text}"
    return compared(
        "postgres_processes", variant, samples[ours], samples[theirs], rival=theirs, unit="rows/s", goal=goal
    )


def round_of(place: Postgres, rows: int, who: str, driver: str, number: int, _: Path) -> Sample:
    place.fill(rows)
    workers = [_started(place.url, who, driver, number) for _ in range(number)]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    limit = time.monotonic() + _PATIENCE
    with Stopwatch() as watch:
        for worker in workers:
            _tell(worker, "go")
        while place.is_pending():
            assert time.monotonic() < limit, "the workers do not come to an end"
            time.sleep(_LOOK)
    cpu = sum(float(worker.communicate("stop\n", timeout=_PATIENCE)[0]) for worker in workers)
    assert place.count("status = 1") == rows
    return replace(watch.sample(rows), cpu=cpu)


def _started(url: str, who: str, driver: str, number: int) -> Any:
    command = [sys.executable, "-m", "bench.servers.worker", who, driver, str(number)]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    _tell(worker, url)
    return worker


def _tell(worker: Any, text: str) -> None:
    worker.stdin.write(f"{text}\n")
    worker.stdin.flush()
