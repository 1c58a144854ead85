"""A file for an outbox that was given none: nobody else finds it, and it goes with its store."""

from __future__ import annotations

import os
from shutil import rmtree
from tempfile import mkdtemp
from typing import TypeVar
from weakref import finalize

S = TypeVar("S")


def private_file() -> str:
    return os.path.join(mkdtemp(prefix="aftercommit-"), "outbox.db")


def gone_with(store: S, file: str) -> S:
    """The store, whose end is that of the file."""
    finalize(store, _remove, os.path.dirname(file), os.getpid())
    return store


def _remove(folder: str, pid: int) -> None:
    if os.getpid() == pid:  # a forked child shares the name, not the right to remove
        rmtree(folder, ignore_errors=True)
