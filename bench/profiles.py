"""Profiles behind docs/performance/limits.md: `python -m bench.profiles calls` and `… cold`.

What a busy machine leaves alone: calls that are counted, and processor times beside each other, in turns.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any, Final

import psycopg

from aftercommit import Outbox
from bench import hand
from bench.servers import hand_mysql, hand_postgres, teams
from bench.servers.places import Mysql, Postgres

#: A folder on a disk; the folder for temporary files may be in memory.
_ON_DISK: Final = Path(__file__).resolve().parent

#: Turns of everything that is set beside each other, and how often each does its work in one.
_TURNS: Final = 30
_TIMES: Final = 20


def calls() -> None:
    """Functions of Python that one transaction with a business row and an event calls, by whose they are."""
    for kind, by, driver in (
        (Postgres, hand_postgres, hand_postgres.PsycopgHand),
        (Mysql, hand_mysql, hand_mysql.PymysqlHand),
    ):
        with kind.opened() as place:
            outbox = Outbox(place.url)
            writers = {
                "by hand": driver(place.url).open(),
                "transaction()": teams.Owned(outbox, by.BUSINESS),
                "tx=connection": teams.joined(driver(place.url).open(), outbox),
            }
            for turn, (name, writer) in enumerate(writers.items()):
                print(f"{kind.kind}, {name}: {_counted(writer.write, 100 * turn)}")
                writer.close()
            outbox.close()


def _counted(write: Callable[[int], Any], first: int) -> str:
    count = Counter[str]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            count[_whose(frame.f_code.co_filename)] += 1

    for number in range(first, first + 50):  # connections are open, statements known
        write(number)
    sys.setprofile(note)
    write(first + 50)
    sys.setprofile(None)
    return ", ".join(f"{whose} {number}" for whose, number in [("all", count.total()), *count.most_common()])


def _whose(file: str) -> str:
    names = {"/src/aftercommit/": "ours", "site-packages": "the driver's", "/bench/": "the benchmark's"}
    return next((whose for part, whose in names.items() if part in file), "the library's")


def cold() -> None:
    """What the part of a write that touches neither server nor driver costs, after what others did meanwhile."""
    with Postgres.opened() as place, tempfile.TemporaryFile(dir=_ON_DISK) as file:
        outbox, others = Outbox(place.url), psycopg.connect(place.url, autocommit=True)
        compose, payload = outbox._composer.compose, hand.payload(7)
        numbers = iter(range(_TURNS * _TIMES))

        def synced() -> None:
            os.write(file.fileno(), b"some bytes")
            os.fsync(file.fileno())

        _beside(
            lambda: compose("OrderPlaced", payload),
            {
                "again and again": lambda: None,
                "behind a wait of 1 ms": lambda: time.sleep(0.001),
                "behind an fsync": synced,
                "behind a commit": lambda: others.execute(hand_postgres.BUSINESS, hand.order(next(numbers))),
            },
        )
        others.close()
        outbox.close()


def _beside(work: Callable[[], Any], befores: dict[str, Callable[[], Any]]) -> None:
    """The processor time of this thread for the same work behind each of them, turn by turn."""
    spent: dict[str, list[float]] = {name: [] for name in befores}
    for _ in range(_TURNS):
        for name, before in befores.items():
            for _ in range(_TIMES):
                before()
                began = time.thread_time_ns()
                work()
                spent[name].append((time.thread_time_ns() - began) / 1e3)
    for name, micros in spent.items():
        least = sorted(micros)[len(micros) // 10]
        print(f"{name}: median {median(micros):.1f} µs, least tenth {least:.1f} µs")


if __name__ == "__main__":
    {"calls": calls, "cold": cold}[sys.argv[1]]()
