"""Event ids: ULIDs that only ever grow within a process, whatever its clock does, and stay unique after a fork."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, Final
from weakref import WeakSet

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

#: Every ten bits as two characters.
_PAIRS: Final = tuple(first + second for first in _ALPHABET for second in _ALPHABET)

#: An id is 48 bits of milliseconds, 60 that are drawn once for the process, and 20 that are counted. Drawing anew in
#: every millisecond would be the dearest part of a write.
_COUNTED_BITS: Final = 20
_LAST: Final = (1 << _COUNTED_BITS) - 1

#: The count starts in the lower half, so that a process does not begin with a carry.
_FIRST_MASK: Final = _LAST >> 1


class UlidFactory:
    """Makes ULIDs, each larger than all before it. Threads may share one; a forked child draws its own randomness.

    Do not call it from a signal handler: the interrupted thread may hold its lock.

    >>> new_id() < new_id()
    True
    """

    def __init__(
        self, *, clock: Callable[[], int] = time.time_ns, entropy: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._clock = clock
        self._entropy = entropy
        self._lock = threading.Lock()
        self._millisecond = -1
        self._drawn = ""
        #: The milliseconds without their last ten bits, as characters: the same for a second.
        self._second = ""
        self._head = ""
        self._count = 0
        _factories.add(self)

    def __call__(self) -> str:
        with self._lock:
            millisecond = self._clock() // 1_000_000
            self._count += 1
            if self._count > _LAST or not self._drawn:
                self._leap(millisecond)
            elif millisecond > self._millisecond:
                self._begin(millisecond)
            return self._head + _PAIRS[self._count >> 10] + _PAIRS[self._count & 1023]

    def many(self, count: int) -> list[str]:
        """So many in a row, of one reading of the clock."""
        with self._lock:
            first, last = self._count + 1, self._count + count
            if self._drawn and last <= _LAST:
                millisecond = self._clock() // 1_000_000
                self._count = last
                if millisecond > self._millisecond:
                    self._begin(millisecond)
                head = self._head
                return [head + _PAIRS[number >> 10] + _PAIRS[number & 1023] for number in range(first, last + 1)]
        return [self() for _ in range(count)]

    def _leap(self, millisecond: int) -> None:
        """When the count is full or a child begins: at least into the next millisecond."""
        later = max(millisecond, self._millisecond + 1)
        if self._drawn:
            self._count = 0
        else:
            number = int.from_bytes(self._entropy(10))
            # Before the draw: a fork may come between any two lines, and the child goes by what is drawn.
            self._millisecond, self._count, self._second = later, number & _FIRST_MASK, ""
            self._drawn = _encoded(number >> _COUNTED_BITS, 60)
        self._begin(later)

    def _begin(self, millisecond: int) -> None:
        if not self._second or millisecond >> 10 != self._millisecond >> 10:
            self._second = _encoded(millisecond >> 10, 40)
        self._millisecond = millisecond
        self._head = self._second + _PAIRS[millisecond & 1023] + self._drawn

    def _begin_anew(self) -> None:
        # The thread that held the lock does not exist in the child, and would never release it.
        self._lock = threading.Lock()
        self._drawn = ""


def _encoded(number: int, bits: int) -> str:
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(bits - 10, -1, -10)])


_factories: WeakSet[UlidFactory] = WeakSet()

_factory: Final = UlidFactory()

#: A new ULID: 26 characters, larger than every id that this process has made. Bound: a tenth faster than the object.
new_id: Final = _factory.__call__

#: Many of them at once.
new_ids: Final = _factory.many


def _begin_anew_after_fork() -> None:
    for factory in _factories:
        factory._begin_anew()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_begin_anew_after_fork)


class EventId(str):
    """The id of an event that joined a unit of work. It may be awaited, which does nothing: the event is on its way."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, str]:
        return str(self)  # not itself: who awaits until there is nothing to await would never end
        yield  # a generator, although it never waits


class EventIds(list[str]):
    """The ids of several such events; it may be awaited as well."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, list[str]]:
        return list(map(str, self))
        yield  # a generator, although it never waits
