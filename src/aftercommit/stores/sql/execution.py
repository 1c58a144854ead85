"""How statements are run: the executor that each driver has one of per colour, and what its errors mean."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from typing import Any, Protocol, TypeVar

from aftercommit.ports import AdoptedTx, Colour, OpenTransaction, Tx

T = TypeVar("T")


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
