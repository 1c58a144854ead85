"""What a reader has to know about a run: versions and the kind of machine, no names and no paths."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from bench.redis.place import Redis
from bench.servers.places import Absent, Mysql, Place, Postgres

#: By the word in the names of the measures that need it.
_SERVERS: Final[dict[str, tuple[type[Place | Redis], tuple[str, ...]]]] = {
    "postgres": (Postgres, ("psycopg", "psycopg-pool", "asyncpg")),
    "mysql": (Mysql, ("PyMySQL", "asyncmy")),
    "redis": (Redis, ("redis", "hiredis")),
}

#: A package that has the name of its server.
_TOLD_AS: Final = {"redis": "redis-py"}

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
        "processor": processor(),
        "memory": memory(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "filesystem": filesystem(workshop),
        "sqlite_settings": "WAL, synchronous FULL",
        "load_before": load(),
    }


def server_facts(kinds: Iterable[str]) -> dict[str, str]:
    """Version and settings of each of these servers, and the drivers; nothing of where they are."""
    told: dict[str, str] = {}
    for kind, (place, packages) in _SERVERS.items():
        if kind in kinds:
            with suppress(Absent):
                server = place.connected()
                told[kind] = server.facts()
                server.close()
            told |= versions(packages)
    return told


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Of those that are installed."""
    told = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            told[_TOLD_AS.get(package, package)] = version(package)
    return told


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


def processor() -> str:
    """Its model, where the platform tells."""
    with suppress(OSError, IndexError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line for line in lines if line.startswith("model name")).split(": ", 1)[1]
    return platform.processor() or "unknown"


def memory() -> str:
    if not hasattr(os, "sysconf"):
        return "unknown"
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GB"


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
