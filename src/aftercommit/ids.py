"""Event ids: ULIDs that only ever grow within a process, whatever its clock does, and stay unique after a fork."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from weakref import WeakSet

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

#: Every ten bits as two characters.
_PAIRS = tuple(first + second for first in _ALPHABET for second in _ALPHABET)

#: An id is 48 bits of milliseconds and 80 of randomness. The last ten are a walk through _PAIRS; the 118 before them,
#: the head, are encoded once per walk.
_WALK_BITS = 10
_TIME_SHIFT = 80 - _WALK_BITS

#: The top random bit starts clear: 2**79 ids fit into a millisecond before one borrows from the next.
_RANDOM_MASK = (1 << 79) - 1

#: Earlier than any reading of the clock: the next id draws anew.
_AT_ONCE = -(1 << 63)


class UlidFactory:
    """Makes ULIDs, each larger than all before it. Threads may share one; a forked child draws its own randomness.

    Do not call it from a signal handler: the interrupted thread may hold its lock.
    """

    def __init__(
        self, *, clock: Callable[[], int] = time.time_ns, entropy: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._clock = clock
        self._entropy = entropy
        self._lock = threading.Lock()
        self._head = -1 << _TIME_SHIFT
        self._walk: Iterator[str] = iter(())
        self._draw_at = _AT_ONCE
        _factories.add(self)

    def __call__(self) -> str:
        with self._lock:
            now = self._clock()
            if now >= self._draw_at:
                self._draw(now)
            return next(self._walk, None) or self._carry()

    def _draw(self, now: int) -> None:
        # Past the last millisecond even when the clock is not: a forked child comes here at once, and has to be above
        # all that its parent issued.
        millisecond = max(now // 1_000_000, (self._head >> _TIME_SHIFT) + 1)
        randomness = int.from_bytes(self._entropy(10)) & _RANDOM_MASK
        self._set_out(head=millisecond << _TIME_SHIFT | randomness >> _WALK_BITS, start=randomness & 1023)

    def _carry(self) -> str:
        # Time and randomness are one number, so that an overflow of the second goes into the first.
        self._set_out(head=self._head + 1, start=0)
        return next(self._walk)

    def _set_out(self, *, head: int, start: int) -> None:
        # The head first: a fork may come between any two lines, and the child trusts nothing else.
        self._head = head
        encoded = "".join([_PAIRS[head >> shift & 1023] for shift in range(110, -1, -10)])
        # All of it runs in C: an id costs one step of this iterator.
        self._walk = map(encoded.__add__, _PAIRS[start:])
        self._draw_at = ((head >> _TIME_SHIFT) + 1) * 1_000_000

    def _begin_anew(self) -> None:
        # The thread that held the lock does not exist in the child, and would never release it.
        self._lock = threading.Lock()
        self._draw_at = _AT_ONCE


_factories: WeakSet[UlidFactory] = WeakSet()
_new_id = UlidFactory().__call__  # bound: a tenth faster than calling the object


def new_id() -> str:
    """A new ULID: 26 characters, larger than every id that this process has made.

    >>> new_id() < new_id()
    True
    """
    return _new_id()


def _begin_anew_after_fork() -> None:
    for factory in _factories:
        factory._begin_anew()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_begin_anew_after_fork)
