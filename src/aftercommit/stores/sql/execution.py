"""How statements are run: the executor that each driver has one of per colour, and what its errors mean to it and to
the user."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from typing import Any, Protocol, TypeVar

from aftercommit.errors import (
    OutboxError,
    SchemaMissing,
    StoreBusy,
    StoreForbidden,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from aftercommit.events.redact import error_text
from aftercommit.ports import AdoptedTx, Colour, OpenTransaction, Tx
from aftercommit.stores.sql.statements import TableNames

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
    #: The database has no room left.
    FULL = "full"
    OTHER = "other"

    @property
    def is_of_one_row(self) -> bool:
        """Whether the other rows of a group may go on without the one that is to blame."""
        return self in (Fault.ROW, Fault.BUSY, Fault.CONFLICT)

    @property
    def is_outage(self) -> bool:
        """Whether it is about the database as a whole, whatever the statement was."""
        return self in (Fault.UNREACHABLE, Fault.FULL)


def explained(error: Exception, fault: Fault, names: TableNames, where: str) -> OutboxError | None:
    """Our own error for what a user can mend; None where the driver's own is the best there is. `where` names the
    database without its secrets."""
    text = error_text(error)
    match fault:
        case Fault.MISSING_TABLE:
            return missing(names)
        case Fault.FORBIDDEN:
            return StoreForbidden(
                f"{where} forbids what the outbox does with {names.table}: {text}",
                fix=f"GRANT SELECT, INSERT, UPDATE, DELETE ON {names.table} and on the tables beside it "
                f"({names.side('failure')} …), and SELECT ON {names.side('schema')} to this user; "
                "create_schema() needs the right to create tables",
            )
        case Fault.READ_ONLY:
            return StoreReadOnly(
                f"{where} takes no writes: {text}",
                fix="point the outbox at the primary, or end the read-only mode of this user or session",
            )
        case Fault.UNREACHABLE:
            return StoreUnavailable(
                f"{where} cannot be reached: {text}",
                fix="check that the server runs and has connections left, its address and the login",
            )
        case Fault.FULL:
            return StoreFull(f"{where} has no room left: {text}", fix="make room on its disk, or raise its limit")
        case Fault.BUSY:
            return StoreBusy(f"{where} was busy for too long: {text}", fix="keep transactions short")
        case Fault.ROW | Fault.CONFLICT | Fault.OTHER:
            return None


def missing(names: TableNames) -> SchemaMissing:
    return SchemaMissing(
        f"the table {names.table} is not in this database",
        fix="call outbox.create_schema() once, before write()",
    )


class Executor(Protocol):
    """Runs statements over one driver. Two small ones per driver, one of each colour, serve the same store."""

    colour: Colour

    async def fetch(self, sql: str, parameters: Sequence[object] = (), *, writes: bool = True) -> list[Any]:
        """Run one statement in a transaction of its own; its rows."""

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run one statement in a transaction of its own; how many rows it matched."""

    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], *, writes: bool = True) -> T:
        """Run `work` in a transaction of its own and commit it; again from its start after a conflict. `work` awaits
        nothing but the Tx that it gets."""

    async def begin(self, isolation: str | None = None) -> OpenTransaction: ...

    def adopt(self, connection: object) -> AdoptedTx | None:
        """A Tx over a caller's own connection; None when this driver does not know it."""

    def fault_of(self, error: Exception) -> Fault:
        """What a driver's error means."""

    async def close(self) -> None: ...

    def abandon(self) -> None:
        """In a forked child: forget the parent's connections without touching them."""
