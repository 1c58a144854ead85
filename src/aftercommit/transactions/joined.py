"""Transactions that somebody else steers: a driver's connection, or a library with its own way to insert rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar

from aftercommit.errors import UnsupportedTransaction
from aftercommit.events.claims import NewEvent, RowKey
from aftercommit.events.envelope import EventEnvelope
from aftercommit.ports import AdoptedTx, Callback, Tx, TxContext, WrittenRows
from aftercommit.transactions.pending import PendingWrite

T = TypeVar("T")


class Unseen:
    """Its commit cannot be seen: rows are born free, and the poller looks soon."""

    observes_commit = False
    #: What it is called, and what has callbacks.
    noun: str
    instead: str

    def after_commit(self, callback: Callback) -> None:
        raise UnsupportedTransaction(f"the commit of {self.noun} cannot be observed", fix=self.instead)

    after_rollback = after_commit

    def wrote(self, rows: WrittenRows) -> None:
        """Nothing of it is in memory, so nothing can be wrong there."""


class DbapiTransaction(Unseen):
    """The caller's own connection, in whatever transaction it is in."""

    noun, instead = "a plain DB-API connection", "use outbox.transaction() for callbacks"

    def __init__(self, connection: Any, tx: AdoptedTx) -> None:
        self._connection = connection
        self.tx = tx

    def is_transaction_active(self) -> bool:
        return self.tx.is_active

    def is_begun(self) -> bool:
        """Whether the database has it open already."""
        return self.tx.is_begun

    def current_connection(self) -> Any:
        return self._connection


class UnitOfWork(TxContext):
    """Somebody else's transaction, steered by a library that inserts rows by its own means and in its own time."""

    #: Whether `add` waits for nothing, so that an `await` may be forgotten.
    is_at_once: bool

    def takes(self, events: Sequence[EventEnvelope]) -> bool:
        """Whether these can be added at once: what has a unique key is written now, or not at all."""
        return self.is_at_once and all(event.unique_key is None for event in events)

    @property
    def tx(self) -> Tx:
        raise UnsupportedTransaction(
            f"{self.current_connection()!r} inserts rows by itself", fix="write through outbox.write(event, tx=…)"
        )

    def is_transaction_active(self) -> bool:
        """It would not have been made otherwise."""
        return True

    @abstractmethod
    def may_open_store(self) -> bool:
        """Whether nothing is locked yet, so that the table can still be made by another connection."""

    @abstractmethod
    def track(self, pending: PendingWrite[Any]) -> None:
        """A write that has to be awaited before the commit."""

    @abstractmethod
    def add(self, rows: Sequence[NewEvent]) -> None:
        """Take rows, in order; all or none."""

    @abstractmethod
    def add_unique(self, rows: Sequence[NewEvent]) -> Collection[RowKey]:
        """Write rows at once, of which some have a unique key; those that were refused. May wait."""

    @abstractmethod
    def awaiting(self, work: Callable[[], T]) -> Awaitable[T]:
        """Run something that calls `add` where `add` may wait."""


def is_of_sqlalchemy(handle: object) -> bool:
    """Without importing it."""
    for each in type(handle).__mro__:  # noqa: SIM110  (a generator costs more than all the rest)
        if each.__module__.startswith("sqlalchemy."):
            return True
    return False
