"""Rounds: rivals take turns in fresh folders, and the clock runs only around the work."""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

T = TypeVar("T")

#: One rival: does its work once in an empty folder and says how it went.
Rival = Callable[[Path], T]


@dataclass(frozen=True, slots=True)
class Sample:
    """One round of one rival: how much was done, in how many seconds of the clock and of the processors."""

    units: int
    wall: float
    cpu: float

    @property
    def rate(self) -> float:
        return self.units / self.wall

    @property
    def cpu_micros(self) -> float:
        """Processor time per unit, over all threads of the process."""
        return self.cpu / self.units * 1e6


class Stopwatch:
    """Measures a block: `with Stopwatch() as watch: …`, then `watch.sample(units)`."""

    def __enter__(self) -> Self:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *error: object) -> None:
        self._wall, self._cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu

    @property
    def wall(self) -> float:
        return self._wall

    def sample(self, units: int) -> Sample:
        return Sample(units, self._wall, self._cpu)


def in_turn(
    rivals: Mapping[str, Rival[T]], rounds: int, workshop: Path, *, warm_up: Mapping[str, Rival[T]] | None = None
) -> dict[str, list[T]]:
    """Every rival once per round, each round begun by another one. A round before them warms up and is dropped: of the
    same rivals, or of others that have less to do."""
    for rival in (rivals if warm_up is None else warm_up).values():
        _once(rival, workshop)
    names = list(rivals)
    samples: dict[str, list[T]] = {name: [] for name in names}
    for number in range(1, rounds + 1):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            samples[name].append(_once(rivals[name], workshop))
    return samples


def _once(rival: Rival[T], workshop: Path) -> T:
    folder = workshop / "round"
    folder.mkdir()
    gc.collect()
    try:
        return rival(folder)
    finally:
        shutil.rmtree(folder)
