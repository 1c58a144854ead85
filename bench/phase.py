"""One measure in a process of its own: `python -m bench.phase MODULE NAME RESULT`, sizes on standard input.

It writes a record to the file RESULT: lines, or why there are none.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from bench.servers.places import Absent
from bench.sizes import Sizes


def main(module: str, name: str, result: str) -> None:
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that databases are removed
    sizes = msgspec.json.decode(sys.stdin.buffer.read(), type=Sizes)
    target = Path(result)
    workshop = Path(tempfile.mkdtemp(dir=target.parent))
    try:
        target.write_bytes(msgspec.json.encode(_record(module, name, sizes, workshop)))
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def _record(module: str, name: str, sizes: Sizes, workshop: Path) -> dict[str, Any]:
    try:
        measure = getattr(import_module(module), name)
        return {"lines": [line.as_json() for line in measure(sizes, workshop)]}
    except Absent as reason:
        return {"absent": str(reason)}
    except ModuleNotFoundError as error:
        return {"absent": f"{error.name} is not installed"}


if __name__ == "__main__":
    main(*sys.argv[1:])
