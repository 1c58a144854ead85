"""The transactions that are open around the running code, innermost last."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, Protocol, TypeVar


class Ambient(Protocol):
    """A transaction that code inside its block finds without being handed it."""

    @property
    def outbox(self) -> object: ...

    @property
    def is_over(self) -> bool: ...

    def is_here(self) -> bool:
        """Open, and opened by the thread or task that asks. A task inherits its parent's context, not its right."""
        ...


T = TypeVar("T", bound=Ambient)

_open: Final[ContextVar[tuple[Ambient, ...]]] = ContextVar("aftercommit_transactions", default=())


def enter(transaction: Ambient) -> None:
    # One that was ended in another context is still in this one.
    _open.set((*(entry for entry in _open.get() if not entry.is_over), transaction))


def leave(transaction: Ambient) -> None:
    """By value: blocks may end in another order than they began, and a token would restore the dead."""
    entries = _open.get()
    if entries and entries[-1] is transaction:
        _open.set(entries[:-1])
    elif transaction in entries:
        _open.set(tuple(entry for entry in entries if entry is not transaction))


def innermost(outbox: object, kind: type[T]) -> T | None:
    """The last one of this outbox that is open here."""
    for transaction in reversed(_open.get()):
        if isinstance(transaction, kind) and transaction.outbox is outbox and transaction.is_here():
            return transaction
    return None
