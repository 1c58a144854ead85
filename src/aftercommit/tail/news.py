"""Where a tail hears of commits: of its own process's, and of others' by wake-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aftercommit.delivery.agenda import Agenda, Place
from aftercommit.events.order import OrderKey


class NewsOfCommits(Agenda):
    """What is told of commits leads to the log, and to the table only if it was not about the log."""

    #: Calls whoever reads the log; nobody yet.
    call: Callable[[], None] | None = None

    def add(self, place: Place, after: float = 0.0) -> bool:
        self._tell()
        return True

    def wrote(self, place: Place) -> None:
        self._tell()

    def expect(self, event_ids: Iterable[str], keys: Iterable[OrderKey] = ()) -> None:
        self._tell()

    def look_for_expected(self, after: float) -> None:
        self._tell()

    def _tell(self) -> None:
        if self.call is not None:
            self.call()
