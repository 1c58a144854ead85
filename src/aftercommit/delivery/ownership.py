"""Which partitions, and so which keys, are this instance's, and until when it may believe so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from aftercommit.events.claims import ALL_PARTITIONS
from aftercommit.events.order import OrderKey
from aftercommit.ports import Runtime

_NOTHING: Final[frozenset[int]] = frozenset()


class Change(NamedTuple):
    """What a step has changed."""

    gained: frozenset[int] = _NOTHING
    lost: frozenset[int] = _NOTHING


class Ownership:
    """Partitions with their epochs: what heartbeats find, what was taken, what was given. From any thread.

    Order rests on the leases of rows, and partitions only spread the work: an instance that is no member of a fleet
    works on all of them.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._is_shared = False
        self._epochs: dict[int, int] = {}
        self._numbers = _NOTHING
        #: The epochs under which partitions were given: a heartbeat that was faster still finds them here.
        self._given: dict[int, int] = {}
        self._deadline = float("-inf")

    def has(self, key: OrderKey) -> bool:
        """Whether an event of this key may be started now; the worker asks right before it starts one."""
        return not self._is_shared or (key.partition in self._numbers and self._runtime.clock() < self._deadline)

    @property
    def owned(self) -> frozenset[int]:
        """Nothing past the deadline: an instance that could not be heard in time may have been replaced."""
        if not self._is_shared:
            return ALL_PARTITIONS
        return self._numbers if self.is_heard else _NOTHING

    @property
    def is_heard(self) -> bool:
        """Whether the fleet has heard this instance in time."""
        return self._runtime.clock() < self._deadline

    def share(self) -> None:
        """From now on only what heartbeats and takings say is this instance's."""
        self._is_shared = True

    def epochs(self) -> dict[int, int]:
        with self._lock:
            return dict(self._epochs)

    def found(self, now: Mapping[int, int], *, before: Mapping[int, int], deadline: float) -> Change:
        """A heartbeat found what is owned now. What was taken since it began (`before`) it may not know of."""
        with self._lock:
            self._deadline = deadline
            gone = [n for n, epoch in self._epochs.items() if before.get(n) == epoch and now.get(n) != epoch]
            lost = self._remove(gone)
            return Change(self._add({n: epoch for n, epoch in now.items() if epoch > self._given.get(n, -1)}), lost)

    def took(self, partitions: Mapping[int, int]) -> Change:
        with self._lock:
            return Change(gained=self._add(partitions))

    def giving(self, partitions: Mapping[int, int]) -> Change:
        """They are about to be given: nothing of them may be started any more."""
        with self._lock:
            self._given.update(partitions)
            return Change(lost=self._remove(partitions))

    def not_given(self, partitions: Mapping[int, int]) -> None:
        """Nobody knows whether they were given; the next heartbeat finds out."""
        with self._lock:
            for number in partitions:
                del self._given[number]

    def clear(self) -> Change:
        with self._lock:
            self._deadline = float("-inf")
            return Change(lost=self._remove(self._epochs))

    def _add(self, partitions: Mapping[int, int]) -> frozenset[int]:
        new = {number: epoch for number, epoch in partitions.items() if epoch > self._epochs.get(number, -1)}
        self._epochs |= new
        self._numbers = frozenset(self._epochs)
        return frozenset(new)

    def _remove(self, partitions: Iterable[int]) -> frozenset[int]:
        gone = frozenset(self._epochs.keys() & set(partitions))
        self._epochs = {number: epoch for number, epoch in self._epochs.items() if number not in gone}
        self._numbers = frozenset(self._epochs)
        return gone
