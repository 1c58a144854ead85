"""Which process this is: a forked child has its parent's memory and its threads' names, and nothing else of it."""

from __future__ import annotations

import os


class Process:
    """Another object in every forked child; cheaper to look at than the pid, and never used again."""

    def __init__(self) -> None:
        self.token = object()
        self.is_forked = False

    def begin_anew(self) -> None:
        self.token = object()
        self.is_forked = True


#: `here.token` was taken in this process, or it was not.
here = Process()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=here.begin_anew)
