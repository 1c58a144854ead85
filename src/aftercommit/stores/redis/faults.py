"""What the errors of Redis and its driver mean, in our words."""

from __future__ import annotations

from typing import Final

from redis import exceptions

from aftercommit.errors import (
    InvalidEvent,
    OutboxError,
    SchemaMismatch,
    SchemaMissing,
    StoreBusy,
    StoreForbidden,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from aftercommit.events.redact import error_text
from aftercommit.stores.redis.scripts import LAYOUT

#: What a server says that is away, moving or not whole.
_AWAY: Final = ("MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK")

#: How a pool of the driver's says that all its connections are in use.
_IN_USE: Final = ("No connection available", "Too many connections")


def is_outage(error: Exception) -> bool:
    """Whether it is about the server as a whole, whatever the command was."""
    return is_away(error) or _says(error, "OOM")


def is_away(error: Exception) -> bool:
    """Also for a login that is missing, which the server notices by the length of a command."""
    is_lost = isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError)
    return is_lost or _says(error, *_AWAY) or "unauthenticated" in str(error)


def explained(error: Exception, table: str, where: str) -> OutboxError | None:
    """Our own error for what a user can mend; None where the driver's own is the best there is."""
    text = error_text(error)
    if isinstance(error, exceptions.ConnectionError) and any(each in str(error) for each in _IN_USE):
        return StoreBusy(
            f"all connections to {where} are in use: {text}",
            fix="pass a larger pool, or keep handlers from using it up",
        )
    if is_away(error):
        return StoreUnavailable(
            f"{where} cannot be reached: {text}", fix="check that the server runs, its address and the login"
        )
    if isinstance(error, exceptions.NoPermissionError):
        return StoreForbidden(
            f"{where} forbids what the outbox does: {text}",
            fix=f"ACL SETUSER … ~{{{table}}}:* &{{{table}}}:* +@all -@dangerous +info, for this user",
        )
    if _says(error, "READONLY", "MISCONF"):
        return StoreReadOnly(
            f"{where} takes no writes: {text}",
            fix="point the outbox at the primary, or mend what keeps it from its disk",
        )
    if _says(error, "OOM") or "OOM command not allowed" in str(error):
        return StoreFull(
            f"{where} has no room left: {text}", fix="raise maxmemory, or let what waits be delivered and purged"
        )
    if _says(error, "BUSY"):
        return StoreBusy(f"{where} is busy with a script of somebody's: {text}", fix="SCRIPT KILL, if it is stuck")
    if _says(error, "DUPLICATE"):
        return duplicate(str(error).partition(" ")[2])
    if _says(error, "NOLAYOUT"):
        return missing(table, where)
    if _says(error, "NEWERLAYOUT"):
        return SchemaMismatch(
            f"the keys of {table} have the layout {str(error).rpartition(' ')[2]}, this release has {LAYOUT}",
            fix="run one release of aftercommit on one outbox",
        )
    return None


def missing(table: str, where: str) -> SchemaMissing:
    return SchemaMissing(
        f"there is no outbox {table} in {where}", fix="call outbox.create_schema() once, before write()"
    )


def duplicate(row: str) -> InvalidEvent:
    return InvalidEvent(f"{row} is a duplicate: it is there already", fix="give each event an id of its own")


#: Codes that the driver cuts off, by the class that it makes of them.
_CODES: Final = {
    exceptions.OutOfMemoryError: "OOM",
    exceptions.ReadOnlyError: "READONLY",
    exceptions.MasterDownError: "MASTERDOWN",
    exceptions.ClusterDownError: "CLUSTERDOWN",
    exceptions.TryAgainError: "TRYAGAIN",
    exceptions.MovedError: "MOVED",
    exceptions.AskError: "ASK",
}


def _says(error: Exception, *codes: str) -> bool:
    """Whether the server's answer begins with one of these."""
    if not isinstance(error, exceptions.ResponseError):
        return False
    named = next((code for kind, code in _CODES.items() if isinstance(error, kind)), "")
    return (named or str(error).partition(" ")[0]) in codes
