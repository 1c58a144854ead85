"""Which process this is: a forked child has its parent's memory and threads' names, and nothing else of it."""

from __future__ import annotations

import os

_forks = 0


def forks() -> int:
    """How many forks lie between the start of the program and this process; cheaper than asking for the pid."""
    return _forks


def _count() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count)
