"""The seams: what the core needs of runtimes, stores and transactions.

Core functions are `async def` and await only what is declared here. Under threads none of it ever suspends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import AbstractContextManager
from contextvars import Context
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol, TypeVar, runtime_checkable

from aftercommit.events.claims import (
    Backlog,
    Claim,
    ClaimRequest,
    DeadEvent,
    DeadFilter,
    Lease,
    NewEvent,
    RowKey,
    Settlement,
)
from aftercommit.events.fleet import FleetView, Instance
from aftercommit.events.order import BlockedKey, Heads, HeadsRequest, KeyClaimRequest
from aftercommit.events.outcome import Result
from aftercommit.execution import Callback, Colour, OpenTransaction, Tx, WrittenRows

T = TypeVar("T")


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

    async def begin(self) -> OpenTransaction:
        """A transaction that the user steers, on a connection of the store's."""
        ...

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


@runtime_checkable
class OrderedStore(EventStore, Protocol):
    """A store that can also claim in order of position, key by key."""

    async def heads(self, request: HeadsRequest) -> Heads:
        """Walk the heads of keys without leasing anything, one probe for each, `limit` of them at most."""
        ...

    async def claim_keys(self, request: KeyClaimRequest) -> Claim:
        """Lease the runs of keys. A row is leased only when every earlier unfinished row of its key is leased by the
        same claim, as the rule says; whatever another transaction has locked ends the run. Raises the epoch of each.
        """
        ...


class Membership(Protocol):
    """The fleet in the database. All times are the database's; every method is one transaction."""

    async def join(self, instance: Instance) -> None:
        """Sign on; again is fine."""

    async def beat(self, instance_id: str, lasts: timedelta) -> dict[int, int] | None:
        """Be heard, and prolong what is owned, from now on, by `lasts`: the partitions that still are this instance's,
        with their epochs. None when the instance has no row any more and must join again."""
        ...

    async def view(self) -> FleetView: ...

    async def take(self, instance_id: str, partitions: dict[int, int], lasts: timedelta) -> dict[int, int]:
        """Own partitions that nobody owns or whose time is over, where the epoch is still the one that was seen. What
        was taken, with the new epochs, each raised by one; others may have been faster for the rest."""
        ...

    async def give(self, instance_id: str, partitions: dict[int, int]) -> None:
        """Own these no more, where owner and epoch still stand. Raises the epochs."""

    async def leave(self, instance_id: str) -> None:
        """Sign off: own nothing, be no member. Again is fine."""

    async def bury(self, silent_for: timedelta, *, but: str) -> list[str]:
        """Remove members that were silent for longer than that, whatever they own, all but one; who they were."""
        ...

    async def lags(self) -> dict[int, timedelta]:
        """The age of the oldest unfinished event of each partition that has one."""
        ...


class WakeupsUnavailable(Exception):
    """No messages can be received here, and why. It stays so; what they would have saved is done by looking."""


class Wakeups(Protocol):
    """Short messages between the processes of a fleet. Any may be lost; they only save waiting."""

    async def send(self, message: str) -> None:
        """On a connection of its own, never in a caller's transaction."""

    async def receive(self) -> list[str]:
        """Wait for messages. Nothing, when it was interrupted, and when it has only now begun to listen: what was said
        before was missed. Raises when the connection is broken, and the next call opens another; WakeupsUnavailable
        when no call ever will."""
        ...

    def interrupt(self) -> None:
        """Let the `receive` that waits return, or else the next one. From any thread."""

    async def close(self) -> None: ...

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

    async def blocked(self, limit: int) -> list[BlockedKey]:
        """Keys that have a dead event, each with its first one, in order of position."""
        ...


# ---------------------------------------------------------------- transactions


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
