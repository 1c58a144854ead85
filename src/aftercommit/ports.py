"""The seams: what the core needs of runtimes, stores and transactions.

Core functions are `async def` and await only what is declared here. Under threads none of it ever suspends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import AbstractContextManager
from contextvars import Context
from datetime import timedelta
from enum import Enum
from types import TracebackType
from typing import Any, Protocol, TypeVar, runtime_checkable

from aftercommit.claims import (
    Backlog,
    Claim,
    ClaimRequest,
    DeadEvent,
    DeadFilter,
    Lease,
    NewEvent,
    QueryResult,
    RowKey,
    Settlement,
)
from aftercommit.outcome import Result

T = TypeVar("T")


class Colour(Enum):
    """Whether awaiting really suspends. Runtimes, executors and stores of one outbox have the same colour."""

    BLOCKING = "blocking"
    ASYNC = "async"


# ---------------------------------------------------------------- runtime


class Monitor(Protocol):
    """A mutex with a waiting room. Everything but `wait_for` may be called from any thread."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def notify(self, count: int = 1) -> None:
        """Wake up to `count` waiters. Call it with the mutex held."""

    def notify_all(self) -> None:
        """Wake every waiter. Call it with the mutex held."""

    async def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """The first true value of `predicate`, which is asked with the mutex held; its last value on timeout."""
        ...


class Task(Protocol):
    """Something that the runtime runs beside the caller."""

    async def join(self, timeout: float | None) -> bool:
        """Whether it ended within the time."""
        ...


class Runtime(Protocol):
    """Threads or asyncio: clocks, waiting, running beside each other, and calling functions of either colour."""

    @property
    def colour(self) -> Colour: ...

    def clock(self) -> float:
        """Seconds that go on while the machine sleeps, never back."""
        ...

    def identity(self) -> object:
        """What is running now: an object for the thread, or the task (None outside one)."""
        ...

    def is_here(self) -> bool:
        """Whether this runtime can be awaited from here: always, or on its own loop."""
        ...

    def is_gone(self) -> bool:
        """Whether it can be awaited nowhere any more."""
        ...

    def monitor(self) -> Monitor: ...

    def lock(self) -> AbstractContextManager[Any]:
        """A mutex for a few lines that await nothing. From any thread."""
        ...

    def spawn(self, name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> Task: ...

    async def call(
        self,
        function: Callable[..., object],
        *arguments: object,
        context: Context,
        timeout: float | None = None,
        ended: Callable[[], None] | None = None,
    ) -> Result:
        """Run a user's function to its end, whatever its colour. Never raises: a BaseException comes back Raised.

        After `timeout` seconds it comes back Raised(HandlerTimeout): an async function is cancelled; one that goes on
        all the same is left behind, and `ended` is called, from any thread, when it is over at last.
        """
        ...

    def interrupt(self) -> None:
        """Cancel the async functions that run in `call` now; they come back Raised(interrupted=True)."""

    async def shielded(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end although the caller is cancelled; the cancellation comes afterwards."""
        ...

    async def close(self) -> None:
        """Stop the threads that `call` has started. Functions that still run are left behind."""


# ---------------------------------------------------------------- stores


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
        """Roll back, and give the connection back."""


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


@runtime_checkable
class EventStore(Protocol):
    """The table of events, as delivery needs it.

    Every method but `insert` runs in a transaction of its own that is committed when it returns. `settle`, `renew`
    and `mark_suspect` change a row only where owner and epoch of the lease still stand on it, and raise nothing
    when they do not.
    """

    colour: Colour

    @property
    def is_ready(self) -> bool:
        """Whether `open` has succeeded."""
        ...

    async def open(self) -> None:
        """Make sure that the table is there and fits this release. Idempotent."""

    async def insert(self, tx: Tx, events: Sequence[NewEvent]) -> None:
        """Write rows in the caller's transaction, in order. Raises before it writes or writes all."""

    async def claim(self, request: ClaimRequest) -> Claim:
        """Lease up to `limit` rows that are due and free, or whose lease has passed. Raises the epoch of each."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> Collection[RowKey]:
        """Write outcomes, all or none, and clear the leases. Returns the rows that the fence refused."""
        ...

    async def renew(self, leases: Sequence[Lease], lock_timeout: timedelta) -> Collection[RowKey]:
        """Prolong leases from now on. Returns the rows that were renewed."""
        ...

    async def mark_suspect(self, lease: Lease) -> bool:
        """Count one more delivery that begins as a suspect. False when the lease is lost."""
        ...

    async def surviving(self, tx: Tx, keys: Sequence[RowKey]) -> Collection[RowKey]:
        """Which of these rows the open transaction still has."""
        ...

    def is_row_fault(self, error: Exception) -> bool:
        """Whether a failed `settle` should be tried again row by row (a data error, a lock wait)."""
        ...

    async def close(self) -> None:
        """Give up connections; the next use opens new ones."""

    def abandon(self) -> None:
        """In a forked child: leave the parent's connections alone."""


class Records(Protocol):
    """The table of events, as people look at it and clean it."""

    async def query_dead(self, where: DeadFilter, limit: int) -> list[DeadEvent]: ...

    async def count_dead(self, where: DeadFilter) -> int: ...

    async def replay(self, event_id: str, handler_id: str | None) -> int:
        """Make dead rows NEW again: attempts and abandoned at 0, due now, under a new epoch."""
        ...

    async def replay_after(self, where: DeadFilter, position: int, limit: int) -> tuple[int, int | None]:
        """Replay the next dead rows behind a position; how many, and the last position (None: no more)."""
        ...

    async def discard(self, event_id: str, handler_id: str | None, reason: str) -> int:
        """End dead rows as DONE without delivering them."""
        ...

    async def purge(self, older_than: timedelta, *, dead: bool, limit: int) -> int:
        """Delete terminal rows that ended longer ago than that."""
        ...

    async def purge_aged(self, older_than: timedelta, *, limit: int) -> int:
        """Delete the oldest rows whatever their status, as long as they are older than that."""
        ...

    async def backlog(self) -> Backlog: ...


# ---------------------------------------------------------------- transactions


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
