"""Whose turn it is among suspects: rows that were taken over from a process that never reported them."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from aftercommit.events.order import OrderKey


class Laned(Protocol):
    """What a lane holds."""

    @property
    def is_suspect(self) -> bool: ...

    @property
    def abandoned(self) -> int:
        """How often it began as a suspect and did not report."""

    @property
    def began_at(self) -> float:
        """When it was started, on the runtime's clock."""

    @property
    def order_key(self) -> OrderKey | None:
        """What it is kept in order with; None: with nothing."""

    @property
    def route(self) -> object:
        """The receiver that may get it together with others; None: it goes alone."""


T = TypeVar("T", bound=Laned)


class Turns(Generic[T]):
    """The suspects that run. Of what a process had in hand when it ended, most only waited: suspects run side by side,
    each counted when it begins. Those that had begun so when a process ended, `alone_from` times or more, run with no
    other suspect, so that it is known which one does it; until their outcome is written, or until they have lived for
    long enough."""

    def __init__(self, alone_from: int) -> None:
        self._alone_from = alone_from
        # Those that others wait for, and those that have lived for long enough.
        self._at_work: list[T] = []
        self._lived: list[T] = []

    def may_begin(self, suspect: T) -> bool:
        return not self._at_work or all(item.abandoned < self._alone_from for item in (suspect, *self._at_work))

    def begin(self, suspect: T) -> None:
        self._at_work.append(suspect)

    def end(self, suspect: T) -> bool:
        """Whether others may have waited for it."""
        if suspect in self._at_work:
            self._at_work.remove(suspect)
            return True
        if suspect in self._lived:
            self._lived.remove(suspect)
        return False

    def let_pass(self, before: float) -> None:
        """Those that were started before that live, and may do so for ever."""
        self._lived += [item for item in self._at_work if item.began_at <= before]
        self._at_work = [item for item in self._at_work if item.began_at > before]

    def lived_beside(self, suspect: T) -> list[T]:
        """Those beside which one begins that runs alone but for them; each is told once."""
        if suspect.abandoned < self._alone_from:
            return []
        lived, self._lived = self._lived, []
        return lived
