"""The write lock of a SQLite file in this process: its writers stand in line here, and a fork waits for the first."""

from __future__ import annotations

import os
import threading
from typing import Final
from weakref import WeakValueDictionary

from aftercommit.errors import StoreBusy
from aftercommit.runtime.process import here

#: How long a writer waits for another before it gives up, in seconds.
BUSY_TIMEOUT: Final = 5.0

#: How long a fork waits for writers of this process to finish, in seconds.
FORK_PATIENCE: Final = 1.0


class WriteLock:
    """Lets one writer of this process at a time ask SQLite for its write lock.

    SQLite's own waiting is a sleep of a millisecond and more; here the next writer goes on at once. Other processes
    are still met by the busy timeout.
    """

    def __init__(self) -> None:
        #: Held by the connection that writes. Those on the hot path take and release it themselves.
        self.writing = threading.Lock()
        #: Held while a connection is opened, which locks the file for a moment.
        self.opening = threading.Lock()
        #: The thread that took `writing`.
        self.holder: int | None = None
        self._held_for_fork: list[threading.Lock] = []

    def wait(self) -> None:
        """Take `writing` from a writer that is still at work."""
        if not self.writing.acquire(timeout=BUSY_TIMEOUT):
            raise busy(
                "another transaction of this process",
                fix="keep transactions short, and do not use the outbox inside one except through its tx",
            )

    def leave(self) -> None:
        self.holder = None
        self.writing.release()

    def hold_for_fork(self) -> None:
        """Let the writer that is at work come to its end: SQLite's locks are copied by a fork, and a copy of a held one
        is held in the child for ever. The forking thread's own transaction, or a long one, has to be let be."""
        wanted = [self.opening] if self.holder == threading.get_ident() else [self.writing, self.opening]
        self._held_for_fork = [lock for lock in wanted if lock.acquire(timeout=FORK_PATIENCE)]

    def release_after_fork(self) -> None:
        while self._held_for_fork:
            self._held_for_fork.pop().release()


_locks: WeakValueDictionary[str, WriteLock] = WeakValueDictionary()
_locks_lock = threading.Lock()


def write_lock_of(path: str) -> WriteLock:
    """One per file in this process."""
    with _locks_lock:
        lock = _locks.get(path)
        if lock is None:
            lock = _locks[path] = WriteLock()
        return lock


def _hold_all() -> None:
    for lock in list(_locks.values()):
        lock.hold_for_fork()


def _release_all() -> None:
    for lock in list(_locks.values()):
        lock.release_after_fork()


def _forget_all() -> None:
    # In a forked child the parent's writers do not exist, but a lock that one of them held would stay locked.
    global _locks, _locks_lock
    _locks, _locks_lock = WeakValueDictionary(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_forget_all)


def busy(
    who: str = "another process", fix: str = "keep transactions short; for many writing processes use a database server"
) -> StoreBusy:
    problem = f"{who} held the SQLite database for {BUSY_TIMEOUT:.0f} s"
    if here.is_forked:
        problem += ", or this process was forked inside a transaction and has inherited its lock for ever"
        fix = f"fork outside transactions; {fix}"
    return StoreBusy(problem, fix=fix)
