"""How statements are run: transactions, and the executor that each driver has one of per colour."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from enum import Enum
from typing import Any, Protocol, TypeVar

from aftercommit.events.claims import QueryResult, RowKey

T = TypeVar("T")


class Colour(Enum):
    """Whether awaiting really suspends. Runtimes, executors and stores of one outbox have the same colour."""

    BLOCKING = "blocking"
    ASYNC = "async"


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


class Fault(Enum):
    """What a driver's error means. Each executor knows its driver's codes."""

    #: One row has a value that the database cannot take.
    ROW = "row"
    #: A deadlock or a serialisation failure: all was rolled back, and the same again is right.
    CONFLICT = "conflict"
    #: Somebody held a lock for too long, or no connection became free.
    BUSY = "busy"
    MISSING_TABLE = "missing table"
    FORBIDDEN = "forbidden"
    READ_ONLY = "read-only"
    UNREACHABLE = "unreachable"
    OTHER = "other"

    @property
    def is_of_one_row(self) -> bool:
        """Whether the other rows of a group may go on without the one that is to blame."""
        return self in (Fault.ROW, Fault.BUSY, Fault.CONFLICT)


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


class Executor(Protocol):
    """Runs statements over one driver. Two small ones per driver, one of each colour, serve the same store."""

    colour: Colour

    async def fetch(self, sql: str, parameters: Sequence[object] = (), *, writes: bool = True) -> list[Any]:
        """Run one statement in a transaction of its own; its rows."""
        ...

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run one statement in a transaction of its own; how many rows it matched."""
        ...

    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], *, writes: bool = True) -> T:
        """Run `work` in a transaction of its own and commit it; again from its start after a conflict. `work` awaits
        nothing but the Tx that it gets."""
        ...

    async def begin(self) -> OpenTransaction: ...

    def adopt(self, connection: object) -> AdoptedTx | None:
        """A Tx over a caller's own connection; None when this driver does not know it."""
        ...

    def fault_of(self, error: Exception) -> Fault:
        """What a driver's error means."""
        ...

    async def close(self) -> None: ...

    def abandon(self) -> None:
        """In a forked child: forget the parent's connections without touching them."""
