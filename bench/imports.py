"""What `import aftercommit` costs a program, and what it must not load."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.results import Goal, Line, Spread
from bench.rounds import Sample, Stopwatch, in_turn
from bench.sizes import Sizes

_LOADED: Final = "import sys, aftercommit; print(*sorted({name.partition('.')[0] for name in sys.modules}))"


def imports(sizes: Sizes, workshop: Path) -> list[Line]:
    """A process that imports the package, less one that imports nothing."""
    samples = in_turn(
        {"bare": lambda _: _process("pass"), "ours": lambda _: _process("import aftercommit")},
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
            ours=Spread.of(
                [(our.wall - bare.wall) * 1e3 for our, bare in zip(samples["ours"], samples["bare"], strict=True)]
            ),
            goal=Goal("figure", target=80),
            details={
                "cpu_ms": Spread.of(
                    [(our.cpu - bare.cpu) * 1e3 for our, bare in zip(samples["ours"], samples["bare"], strict=True)]
                ),
                "bare_ms": Spread.of([sample.wall * 1e3 for sample in samples["bare"]]),
                "importtime_ms": _import_time(),
                "loads_asyncio": "asyncio" in loaded,
                "third_party": sorted(
                    set(loaded) - {"aftercommit"} - set(sys.stdlib_module_names) - set(_bare_modules())
                ),
            },
        )
    ]


def _process(code: str) -> Sample:
    """The clock and the processor time of a whole interpreter."""
    before = os.times()
    with Stopwatch() as watch:
        subprocess.run([sys.executable, "-c", code], check=True)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return replace(watch.sample(1), cpu=cpu)


def _output(*arguments: str) -> str:
    return subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True).stdout


def _bare_modules() -> list[str]:
    """What an interpreter of this installation loads by itself."""
    return _output("-c", "import sys; print(*{name.partition('.')[0] for name in sys.modules})").split()


def _import_time() -> float:
    """Milliseconds by the interpreter's own account, which is itself not free."""
    report = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import aftercommit"], check=True, capture_output=True, text=True
    ).stderr
    for line in report.splitlines():
        own, _, rest = line.removeprefix("import time:").partition("|")
        total, _, name = rest.partition("|")
        if name.strip() == "aftercommit" and own.strip().isdigit():
            return int(total) / 1e3
    raise AssertionError("the interpreter did not report the import")
