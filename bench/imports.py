"""What `import aftercommit` and a first outbox cost a program, and what they must not load."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.results import Goal, Line, Spread
from bench.rounds import Sample, Stopwatch, in_turn
from bench.sizes import Sizes

#: Names are loaded when they are asked for, so a program pays for the rest with the class, and with a first outbox.
_CODES: Final = {
    "import aftercommit": (Goal("P14", "figure", 80),),
    "from aftercommit import Outbox": (Goal("P14", "figure", 80),),
    "from aftercommit import Outbox; Outbox('sqlite://')": (),
}
_LOADED: Final = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"


def import_time(sizes: Sizes, workshop: Path) -> list[Line]:
    """A process that imports the package, less one that imports nothing."""
    environment = _with_bytecode(workshop)
    rivals = {code: partial(_process, code, environment) for code in ("pass", *_CODES)}
    samples = in_turn(rivals, max(sizes.rounds, sizes.imports), workshop)
    return [
        Line(
            measure="import_time",
            variant=code,
            rival="less a bare python",
            unit="ms",
            ours=_beyond(samples["pass"], samples[code], lambda sample: sample.wall),
            goals=goals,
            details={
                "cpu_ms": _beyond(samples["pass"], samples[code], lambda sample: sample.cpu),
                "importtime_ms": _import_time(code, environment),
                **_loaded(code),
            },
        )
        for code, goals in _CODES.items()
    ]


def _loaded(code: str) -> dict[str, Any]:
    loaded, bare = (set(_output("-c", f"{each}; {_LOADED}").split()) for each in (code, "pass"))
    others = loaded - bare - {"aftercommit"} - set(sys.stdlib_module_names)
    return {"loads_asyncio": "asyncio" in loaded, "third_party": sorted(others)}


def _with_bytecode(workshop: Path) -> dict[str, str]:
    """As a package is once it is installed: compiled. The first round, which is dropped, writes the bytecode."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**environment, "PYTHONPYCACHEPREFIX": str(workshop / "bytecode")}


def _beyond(bare: list[Sample], ours: list[Sample], figure: Callable[[Sample], float]) -> Spread:
    """Milliseconds more than a bare interpreter, round by round."""
    return Spread.of([(figure(our) - figure(less)) * 1e3 for our, less in zip(ours, bare, strict=True)])


def _process(code: str, environment: Mapping[str, str], _: Path) -> Sample:
    """The clock and the processor time of a whole interpreter."""
    before = os.times()
    with Stopwatch() as watch:
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return replace(watch.sample(1), cpu=cpu)


def _output(*arguments: str) -> str:
    return subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True).stdout


def _import_time(code: str, environment: Mapping[str, str]) -> float:
    """Milliseconds by the interpreter's own account, which is itself not free."""
    report = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    ).stderr
    took = 0
    for line in report.splitlines():
        own, _, rest = line.removeprefix("import time:").partition("|")
        name = rest.partition("|")[2]
        if name.strip().partition(".")[0] == "aftercommit" and not name.startswith("  ") and own.strip().isdigit():
            took += int(rest.partition("|")[0])
    return took / 1e3
