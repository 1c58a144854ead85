"""What went wrong, in words that all drivers share, and what to tell the user of it."""

from __future__ import annotations

from aftercommit.errors import (
    OutboxError,
    SchemaMissing,
    StoreBusy,
    StoreForbidden,
    StoreReadOnly,
    StoreUnavailable,
)
from aftercommit.events.redact import error_text
from aftercommit.stores.sql.execution import Fault
from aftercommit.stores.sql.identifiers import TableNames


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
                fix=f"GRANT SELECT, INSERT, UPDATE, DELETE ON {names.table} and SELECT ON {names.side('schema')} to "
                "this user; create_schema() needs the right to create tables",
            )
        case Fault.READ_ONLY:
            return StoreReadOnly(
                f"{where} takes no writes: {text}",
                fix="point the outbox at the primary, or end the read-only mode of this user or session",
            )
        case Fault.UNREACHABLE:
            return StoreUnavailable(
                f"{where} cannot be reached: {text}", fix="check that the server runs, its address and the login"
            )
        case Fault.BUSY:
            return StoreBusy(f"{where} was busy for too long: {text}", fix="keep transactions short")
        case Fault.ROW | Fault.CONFLICT | Fault.OTHER:
            return None


def missing(names: TableNames) -> SchemaMissing:
    return SchemaMissing(
        f"the table {names.table} is not in this database",
        fix="call outbox.create_schema() once, before write()",
    )
