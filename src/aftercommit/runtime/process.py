"""Which process this is: a forked child has its parent's memory and threads' names, and nothing else of it."""

from __future__ import annotations

import os

_forks: list[None] = []


def forks() -> int:
    """How many forks lie between the start of the program and this process; cheaper than asking for the pid."""
    return len(_forks)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _forks.append(None))
