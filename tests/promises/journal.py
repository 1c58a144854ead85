"""What processes did, one line each, in a file that survives them. Never the database under test."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple


class Line(NamedTuple):
    """One thing that happened."""

    at: float
    pid: int
    #: begin, ok, fail: around a commit; enter, effect: in a handler; purged: by the test; crash: just before the
    #: process killed itself.
    kind: str
    #: The event's id; for a crash the name of its point.
    what: str
    number: int


class Journal:
    """Lines that are appended whole: one write(2) each, on a file opened with O_APPEND."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def say(self, kind: str, what: str, number: int = -1) -> None:
        os.write(self._file, f"{time.monotonic_ns()},{os.getpid()},{kind},{what},{number}\n".encode())

    def lines(self, *kinds: str) -> list[Line]:
        """Everything of these kinds so far, by any process."""
        read = []
        whole, _, _ = self._path.read_text().rpartition("\n")  # of a line that is being written a part may be there
        for text in whole.splitlines():
            at, pid, kind, what, number = text.split(",")
            if kind in kinds or not kinds:
                read.append(Line(int(at) / 1e9, int(pid), kind, what, int(number)))
        return read

    def ids(self, kind: str) -> set[str]:
        return {line.what for line in self.lines(kind)}

    def counts(self, kind: str) -> dict[str, int]:
        """How often, by event id."""
        counts: dict[str, int] = {}
        for line in self.lines(kind):
            counts[line.what] = counts.get(line.what, 0) + 1
        return counts

    def count(self, kind: str, pid: int) -> int:
        """How often by one process; quick, for those who look again and again."""
        return self._path.read_bytes().count(f",{pid},{kind},".encode())

    def close(self) -> None:
        os.close(self._file)
