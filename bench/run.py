"""A run: one measure after the other, each in a process of its own, so that none can end or slow down the rest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.catalogue import Measure
from bench.results import Line
from bench.sizes import Sizes

_ROOT: Final = Path(__file__).resolve().parent.parent

#: Seconds for a measure that was told to end to remove its databases.
_GRACE: Final = 20

#: Lines of a traceback that are kept.
_TAIL: Final = 6


@dataclass
class Found:
    """What is known so far."""

    lines: list[Line] = field(default_factory=list)
    #: Measures without figures because something is not there, and those that broke, with the reason.
    left_out: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


class Failed(Exception):
    """A measure broke or hung."""


def run(
    measures: Iterable[Measure], sizes: Sizes, workshop: Path, told: Callable[[str, Found, list[Line]], None]
) -> Found:
    """All of them, whatever becomes of each; `told` hears after every one, and saves."""
    found = Found()
    for measure in measures:
        began, lines = time.monotonic(), []
        try:
            record = _record(measure, sizes, workshop)
            lines = [msgspec.convert(line, Line) for line in record.get("lines", ())]
            if "absent" in record:
                found.left_out[measure.name] = record["absent"]
        except Failed as error:
            found.failed[measure.name] = str(error)
        found.lines += lines
        found.seconds[measure.name] = round(time.monotonic() - began, 1)
        told(measure.name, found, lines)
    return found


def _record(measure: Measure, sizes: Sizes, workshop: Path) -> dict[str, Any]:
    result = workshop / f"{measure.name}.json"
    errors = workshop / f"{measure.name}.txt"
    command = [sys.executable, "-m", "bench.phase", measure.module, measure.name, str(result)]
    with errors.open("wb") as output:
        # A group of its own: it starts processes too, and all of them end with it.
        phase = subprocess.Popen(
            command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
        )
        try:
            phase.communicate(msgspec.json.encode(sizes), timeout=sizes.patience)
        except subprocess.TimeoutExpired:
            raise Failed(f"did not end within {sizes.patience:g} s") from None
        finally:
            _end(phase)
    if phase.returncode or not result.exists():
        tail = errors.read_text(errors="replace").strip().splitlines()[-_TAIL:]
        raise Failed("\n".join(tail) or f"ended with {phase.returncode}")
    record: dict[str, Any] = msgspec.json.decode(result.read_bytes())
    return record


def _end(phase: subprocess.Popen[bytes]) -> None:
    """It, and whatever it has left behind."""
    if phase.poll() is None:
        phase.terminate()
        with suppress(subprocess.TimeoutExpired):
            phase.wait(_GRACE)
    with suppress(ProcessLookupError):
        os.killpg(phase.pid, signal.SIGKILL)
    phase.wait()
