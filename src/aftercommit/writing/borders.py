"""What a writer needs of those around it: of the delivering side, and of a transaction that inserts rows by itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Protocol

from aftercommit.events.claims import Claimed, NewEvent, RowKey
from aftercommit.events.envelope import EventEnvelope
from aftercommit.ports import TxContext


class HotPath(Protocol):
    """What a writer needs of the delivering side."""

    owner: str
    lock_timeout: timedelta
    #: Whether this process delivers at all now.
    is_active: bool

    def reserve(self, events: Sequence[EventEnvelope], *, with_firsts: bool = True) -> list[bool]:
        """For each event, which somebody in this process receives, whether a hot slot waits for it. `with_firsts`: also
        for what may be leased only as the first of its key, where somebody finds that out."""

    def fill(self, claimed: Sequence[Claimed]) -> None: ...

    def cancel(self, count: int) -> None: ...

    def expect(self, events: Sequence[EventEnvelope]) -> None:
        """These were born leased as the first of their keys: what follows them waits, also before their commit."""

    def not_expected(self, events: Sequence[EventEnvelope]) -> None:
        """They have come, or never will."""

    def give_back(self, claimed: Sequence[Claimed]) -> None:
        """These were committed, and nobody knows whether they were born leased: they are free for anybody now."""

    def left_in_table(self, events: Sequence[EventEnvelope]) -> None:
        """These were committed free: somebody should look into the table."""

    def unseen(self, events: Sequence[EventEnvelope]) -> None:
        """These were written and nobody will announce their commit."""


class TakesRows(TxContext, Protocol):
    """A transaction that inserts rows by itself, by its own means and in its own time."""

    def add(self, rows: Sequence[NewEvent]) -> None: ...

    def add_unique(self, rows: Sequence[NewEvent]) -> Collection[RowKey]:
        """Where some have a unique key: at once. Those that were not written, because another event has theirs."""
