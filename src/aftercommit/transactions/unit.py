"""Transactions that take rows and insert them by themselves, by their own means and in their own time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from aftercommit.errors import UnsupportedTransaction
from aftercommit.events.claims import NewEvent
from aftercommit.ports import Callback, Tx, WrittenRows

T = TypeVar("T")


class UnitOfWork(ABC):
    """Somebody else's transaction, steered by a library that has its own way to insert rows."""

    observes_commit: bool
    #: Whether `add` waits for nothing, so that an `await` may be forgotten.
    is_at_once: bool

    @property
    def tx(self) -> Tx:
        raise UnsupportedTransaction(
            f"{self.current_connection()!r} inserts rows by itself", fix="write through outbox.write(event, tx=…)"
        )

    def is_transaction_active(self) -> bool:
        """It would not have been made otherwise."""
        return True

    @abstractmethod
    def current_connection(self) -> Any: ...

    @abstractmethod
    def may_open_store(self) -> bool:
        """Whether nothing is locked yet, so that the table can still be made by another connection."""

    @abstractmethod
    def add(self, rows: Sequence[NewEvent]) -> None:
        """Take rows, in order; all or none."""

    @abstractmethod
    def awaiting(self, work: Callable[[], T]) -> Awaitable[T]:
        """Run something that calls `add` where `add` may wait."""

    @abstractmethod
    def after_commit(self, callback: Callback) -> None: ...

    @abstractmethod
    def after_rollback(self, callback: Callback) -> None: ...

    @abstractmethod
    def wrote(self, rows: WrittenRows) -> None: ...
