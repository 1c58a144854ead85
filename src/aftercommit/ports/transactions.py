"""Transactions: the store's own, a caller's own connection, and what a write needs to know of either."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from aftercommit.events.claims import QueryResult, RowKey


class Tx(Protocol):
    """Where statements run: an open transaction, the caller's or the store's own. Parameters are positional."""

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """The number of rows that it matched."""

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int: ...

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]: ...


class OpenTransaction(Tx, Protocol):
    """A transaction on a connection that the executor lent."""

    @property
    def connection(self) -> Any: ...

    @property
    def is_open(self) -> bool:
        """Whether the database still has the transaction that was begun, or its session has ended: a statement can do
        no harm then, and says best what has happened."""

    async def query(self, sql: str, parameters: Any = ()) -> QueryResult: ...

    async def commit(self) -> None:
        """Commit, and give the connection back. When it raises, the transaction is still to be ended."""

    async def savepoint(self, name: str) -> None: ...

    async def release(self, name: str) -> None: ...

    async def rollback_to(self, name: str) -> None: ...

    async def end(self) -> None:
        """Roll back, and give the connection back, unless it has been."""


class AdoptedTx(Tx, Protocol):
    """A caller's own connection, in whatever transaction it is in."""

    @property
    def is_active(self) -> bool:
        """Whether a statement now would be part of a transaction: begun, or begun by the driver before it."""

    @property
    def is_begun(self) -> bool:
        """Whether the database has an open transaction."""

    @property
    def mark(self) -> object:
        """Another one after every statement on the connection, whoever ran it; None where the driver cannot tell."""


Callback = Callable[[], None]


class WrittenRows(Protocol):
    """The rows of one write, from their INSERT to the end of their transaction."""

    @property
    def keys(self) -> Sequence[RowKey]: ...

    def undone(self, keys: Collection[RowKey]) -> None:
        """Some are gone again, although the transaction goes on. Told before the commit."""

    def committed(self) -> None: ...

    def rolled_back(self) -> None:
        """Or the outcome of the commit is unknown."""


class TxContext(Protocol):
    """The transaction that a write is part of."""

    #: Whether callbacks and what was written really hear of the end. They cannot on a bare driver connection.
    observes_commit: bool

    @property
    def tx(self) -> Tx: ...

    def is_transaction_active(self) -> bool: ...

    def current_connection(self) -> Any: ...

    def after_commit(self, callback: Callback) -> None: ...

    def after_rollback(self, callback: Callback) -> None: ...

    def wrote(self, rows: WrittenRows) -> None:
        """These are in this transaction now, and hear of its end. Called only where commits are observed."""
