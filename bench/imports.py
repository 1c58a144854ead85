"""What `import aftercommit` and a first outbox cost a program, and what they must not load."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.results import Goal, Line, Spread
from bench.rounds import Sample, Stopwatch, in_turn
from bench.sizes import Sizes

#: Names are loaded when they are asked for, so a program pays for the rest with its first outbox.
_OUTBOX: Final = "from aftercommit import Outbox; Outbox('sqlite://')"
_LOADED: Final = f"{_OUTBOX}; import sys; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"


def imports(sizes: Sizes, workshop: Path) -> list[Line]:
    """A process that imports the package, less one that imports nothing."""
    environment = _with_bytecode(workshop)
    samples = in_turn(
        {
            "bare": lambda _: _process("pass", environment),
            "ours": lambda _: _process("import aftercommit", environment),
            "outbox": lambda _: _process(_OUTBOX, environment),
        },
        max(sizes.rounds, sizes.imports),
        workshop,
    )
    loaded = _output("-c", _LOADED).split()
    return [
        Line(
            measure="import",
            variant="import aftercommit",
            rival="less a bare python",
            unit="ms",
            ours=_beyond(samples["bare"], samples["ours"], lambda sample: sample.wall),
            goal=Goal("figure", target=80),
            details={
                "cpu_ms": _beyond(samples["bare"], samples["ours"], lambda sample: sample.cpu),
                "outbox_ms": _beyond(samples["bare"], samples["outbox"], lambda sample: sample.wall),
                "outbox_cpu_ms": _beyond(samples["bare"], samples["outbox"], lambda sample: sample.cpu),
                "bare_ms": Spread.of([sample.wall * 1e3 for sample in samples["bare"]]),
                "importtime_ms": _import_time(environment),
                "loads_asyncio": "asyncio" in loaded,
                "third_party": sorted(
                    set(loaded) - {"aftercommit"} - set(sys.stdlib_module_names) - set(_bare_modules())
                ),
            },
        )
    ]


def _with_bytecode(workshop: Path) -> dict[str, str]:
    """As a package is once it is installed: compiled. The first round, which is dropped, writes the bytecode."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**environment, "PYTHONPYCACHEPREFIX": str(workshop / "bytecode")}


def _beyond(bare: list[Sample], ours: list[Sample], figure: Callable[[Sample], float]) -> Spread:
    """Milliseconds more than a bare interpreter, round by round."""
    return Spread.of([(figure(our) - figure(less)) * 1e3 for our, less in zip(ours, bare, strict=True)])


def _process(code: str, environment: Mapping[str, str]) -> Sample:
    """The clock and the processor time of a whole interpreter."""
    before = os.times()
    with Stopwatch() as watch:
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return replace(watch.sample(1), cpu=cpu)


def _output(*arguments: str) -> str:
    return subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True).stdout


def _bare_modules() -> list[str]:
    """What an interpreter of this installation loads by itself."""
    return _output("-c", "import sys; print(*{name.partition('.')[0] for name in sys.modules})").split()


def _import_time(environment: Mapping[str, str]) -> float:
    """Milliseconds by the interpreter's own account, which is itself not free."""
    report = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import aftercommit"],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    ).stderr
    for line in report.splitlines():
        own, _, rest = line.removeprefix("import time:").partition("|")
        total, _, name = rest.partition("|")
        if name.strip() == "aftercommit" and own.strip().isdigit():
            return int(total) / 1e3
    raise AssertionError("the interpreter did not report the import")
