"""What a reader has to know about a run: versions and the kind of machine, no names and no paths."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).resolve().parent.parent

#: File systems in memory, where a commit costs nothing.
_VOLATILE: Final = frozenset({"tmpfs", "ramfs"})


def facts(workshop: Path) -> dict[str, Any]:
    return {
        "aftercommit": version("aftercommit"),
        "revision": revision(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite": sqlite3.sqlite_version,
        "msgspec": version("msgspec"),
        "mmh3": version("mmh3"),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "filesystem": filesystem(workshop),
        "sqlite_settings": "WAL, synchronous FULL",
        "load_before": load(),
    }


def load() -> float | None:
    """Processes that wanted a core during the last minute: more than these benchmarks need means noise."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def revision() -> str:
    """The commit that is measured, or "work" when the package differs from it or there is no repository."""
    try:
        head = _git("rev-parse", "--short", "HEAD")
        return "work" if _git("status", "--porcelain", "--", "src") else head
    except (OSError, subprocess.CalledProcessError):
        return "work"


def _git(*arguments: str) -> str:
    command = ["git", "--no-optional-locks", *arguments]
    return subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True).stdout.strip()


def is_on_disk(folder: Path) -> bool:
    return filesystem(folder) not in _VOLATILE


def filesystem(folder: Path) -> str:
    """The type of the file system that a folder is on, where the platform tells."""
    mounts = Path("/proc/self/mountinfo")
    if not mounts.exists():
        return "unknown"
    best, kind = -1, "unknown"
    for line in mounts.read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = Path(before.split()[4])
        if folder.resolve().is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), after.split()[0]
    return kind
