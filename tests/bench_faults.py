"""Measures that go wrong, for the tests of the benchmarks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.results import Line, Spread
from bench.servers.places import Absent
from bench.sizes import Sizes


def breaks(sizes: Sizes, workshop: Path) -> list[Line]:
    raise ZeroDivisionError("nobody expected this")


def hangs(sizes: Sizes, workshop: Path) -> list[Line]:
    """With a process of its own, which says that it is here and would live for ever."""
    code = "import sys, threading; pipe = open(sys.argv[1], 'wb', 0); pipe.write(b'here'); threading.Event().wait()"
    subprocess.run([sys.executable, "-c", code, str(workshop.parent / "pipe")], check=True)
    raise AssertionError("it came back")


def lacks(sizes: Sizes, workshop: Path) -> list[Line]:
    raise Absent("no such server")


def works(sizes: Sizes, workshop: Path) -> list[Line]:
    assert workshop.is_dir()
    return [Line("works", "as it should", "", "things/s", ours=Spread.of([1.0, 3.0, 2.0]))]
