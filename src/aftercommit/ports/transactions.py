"""Transactions: the store's own, a caller's own connection, and what a write needs to know of either."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from aftercommit.events.claims import QueryResult, RowKey


class Tx(Protocol):
    """Where statements run: an open transaction, the caller's or the store's own. Parameters are positional."""

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """The number of rows that it matched."""
        ...

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int: ...

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]: ...


class OpenTransaction(Tx, Protocol):
    """A transaction on a connection that the executor lent."""

    @property
    def connection(self) -> Any: ...

    @property
    def is_open(self) -> bool:
        """Whether the database still has the transaction that was begun."""
        ...

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
        ...

    @property
    def is_begun(self) -> bool:
        """Whether the database has an open transaction."""
        ...


class TxContext(Protocol):
    """The transaction that a write is part of."""

    #: Whether after_commit and after_rollback really fire. They cannot on a bare driver connection.
    observes_commit: bool

    @property
    def tx(self) -> Tx: ...

    def is_transaction_active(self) -> bool: ...

    def current_connection(self) -> Any: ...

    def after_commit(self, callback: Callable[[], None]) -> None: ...

    def after_rollback(self, callback: Callable[[], None]) -> None: ...

    def wrote(self, keys: Sequence[RowKey], lost: Callable[[Collection[RowKey]], None]) -> None:
        """Rows that are in this transaction now; `lost` hears before the commit which have been undone since."""
