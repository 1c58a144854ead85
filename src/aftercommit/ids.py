"""Event ids: ULIDs that only ever grow within a process, whatever its clock does, and stay unique after a fork."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from weakref import WeakSet

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

#: Every ten bits as two characters.
_PAIRS = tuple(first + second for first in _ALPHABET for second in _ALPHABET)

#: An id is 48 bits of milliseconds and 80 of randomness. The last ten are counted; the 118 before them, the head, are
#: encoded once for many ids.
_COUNTED_BITS = 10
_TIME_SHIFT = 80 - _COUNTED_BITS
_LAST = (1 << _COUNTED_BITS) - 1

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
        self._text = ""
        self._count = 0
        self._draw_at = _AT_ONCE
        _factories.add(self)

    def __call__(self) -> str:
        with self._lock:
            now = self._clock()
            if now >= self._draw_at:
                self._draw(now)
            elif self._count == _LAST:
                # Time and randomness are one number, so that an overflow of the second goes into the first.
                self._set_out(head=self._head + 1, count=0)
            else:
                self._count += 1
            return self._text + _PAIRS[self._count]

    def _draw(self, now: int) -> None:
        # Past the last millisecond even when the clock is not: a forked child comes here at once, and has to be above
        # all that its parent issued.
        millisecond = max(now // 1_000_000, (self._head >> _TIME_SHIFT) + 1)
        randomness = int.from_bytes(self._entropy(10)) & _RANDOM_MASK
        self._set_out(head=millisecond << _TIME_SHIFT | randomness >> _COUNTED_BITS, count=randomness & _LAST)

    def _set_out(self, *, head: int, count: int) -> None:
        # The head first: a fork may come between any two lines, and the child trusts nothing else.
        self._head = head
        # In two halves, because shifts of small numbers are cheaper.
        high, low = head >> 60, head & ((1 << 60) - 1)
        pairs = _PAIRS
        self._text = (
            pairs[high >> 50] + pairs[high >> 40 & 1023] + pairs[high >> 30 & 1023] + pairs[high >> 20 & 1023]
            + pairs[high >> 10 & 1023] + pairs[high & 1023]
            + pairs[low >> 50] + pairs[low >> 40 & 1023] + pairs[low >> 30 & 1023] + pairs[low >> 20 & 1023]
            + pairs[low >> 10 & 1023] + pairs[low & 1023]
        )  # fmt: skip
        self._count = count
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
