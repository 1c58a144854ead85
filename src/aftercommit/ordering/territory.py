"""The partitions that this instance may work on, as far as it knows, and until when it may believe so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from aftercommit.ports import Runtime

Told = Callable[[frozenset[int]], None]

_NOTHING: Final[frozenset[int]] = frozenset()
_NEVER: Final = float("-inf")


class Territory:
    """Partitions with their epochs: what heartbeats find, what was taken, what was given. From any thread.

    `on_gained` and `on_lost` hear of every change in its order, with the lock held: they must not wait for anything,
    and ask for nothing here but `owned`.
    """

    def __init__(self, runtime: Runtime, *, on_gained: Told, on_lost: Told) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._on_gained = on_gained
        self._on_lost = on_lost
        self._epochs: dict[int, int] = {}
        self._numbers = _NOTHING
        #: The epochs under which partitions were given: a heartbeat that was faster still finds them here.
        self._given: dict[int, int] = {}
        self._deadline = _NEVER

    @property
    def owned(self) -> frozenset[int]:
        """Nothing past the deadline: whoever could not be heard in time may have been replaced."""
        return self._numbers if self.is_heard else _NOTHING

    @property
    def is_heard(self) -> bool:
        return self._runtime.clock() < self._deadline

    def epochs(self) -> dict[int, int]:
        with self._lock:
            return dict(self._epochs)

    def found(self, now: Mapping[int, int], *, before: Mapping[int, int], deadline: float) -> None:
        """A heartbeat found what is owned now. What was taken since it began (`before`) it may not know of."""
        with self._lock:
            self._deadline = deadline
            self._remove(n for n, epoch in self._epochs.items() if before.get(n) == epoch and now.get(n) != epoch)
            self._add({n: epoch for n, epoch in now.items() if epoch > self._given.get(n, -1)})

    def took(self, partitions: Mapping[int, int]) -> None:
        with self._lock:
            self._add(partitions)

    def giving(self, partitions: Mapping[int, int]) -> None:
        """They are about to be given: nothing of them may be started any more."""
        with self._lock:
            self._given.update(partitions)
            self._remove(partitions)

    def not_given(self, partitions: Mapping[int, int]) -> None:
        """Nobody knows whether they were given; the next heartbeat finds out."""
        with self._lock:
            for number in partitions:
                del self._given[number]

    def clear(self) -> None:
        with self._lock:
            self._deadline = _NEVER
            self._remove(self._epochs)

    def _add(self, partitions: Mapping[int, int]) -> None:
        new = {number: epoch for number, epoch in partitions.items() if epoch > self._epochs.get(number, -1)}
        self._epochs |= new
        self._tell(self._on_gained, new)

    def _remove(self, partitions: Iterable[int]) -> None:
        gone = self._epochs.keys() & set(partitions)
        self._epochs = {number: epoch for number, epoch in self._epochs.items() if number not in gone}
        self._tell(self._on_lost, gone)

    def _tell(self, told: Told, partitions: Iterable[int]) -> None:
        self._numbers = frozenset(self._epochs)
        if changed := frozenset(partitions):
            told(changed)
