"""The files that a program in development is made of, and whether one has changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aftercommit.settings import FILE

#: What is looked at beside Python's sources.
_NAMES: Final = (FILE, "pyproject.toml")


class Files:
    """Sources below a folder, but for hidden folders and virtual environments."""

    #: Seconds between two looks: short for somebody who waits for it, long for a disk.
    interval: Final = 0.5

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._look()

    def changed(self) -> Path | None:
        """One that was changed, made or removed since the last look."""
        before, self._seen = self._seen, self._look()
        return next(
            (path for path in before.keys() | self._seen.keys() if before.get(path) != self._seen.get(path)), None
        )

    def _look(self) -> dict[Path, int]:
        found = {}
        for path in _sources(self._folder):
            try:
                found[path] = path.stat().st_mtime_ns
            except OSError:  # removed since it was listed
                continue
        return found


def _sources(folder: Path) -> Iterator[Path]:
    for at, folders, names in os.walk(folder):
        if "pyvenv.cfg" in names:
            folders.clear()
            continue
        folders[:] = [
            each for each in folders if not each.startswith(".") and each not in ("__pycache__", "node_modules")
        ]
        yield from (Path(at, name) for name in names if name.endswith(".py") or name in _NAMES)
