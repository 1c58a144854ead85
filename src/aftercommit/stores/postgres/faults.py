"""What PostgreSQL's states mean, and what we say of it, whichever driver speaks to it."""

from __future__ import annotations

from typing import Final

from aftercommit.errors import OutboxError, SchemaMismatch, StoreBusy, StoreUnavailable, TransactionEnded
from aftercommit.stores.sql.execution import Fault

#: The oldest that is still maintained, and has what the statements use.
OLDEST_SERVER: Final = 13

#: Seconds within which a server that is there answers.
ANSWER: Final = 5.0

_FAULTS: Final = {
    "40001": Fault.CONFLICT,  # serialization_failure
    "40P01": Fault.CONFLICT,  # deadlock_detected
    "42P07": Fault.CONFLICT,  # duplicate_table: somebody has made it at the same moment (CockroachDB)
    "55P03": Fault.BUSY,  # lock_not_available
    "57014": Fault.BUSY,  # query_canceled: a statement timeout
    "42P01": Fault.MISSING_TABLE,  # undefined_table
    "3F000": Fault.MISSING_TABLE,  # invalid_schema_name
    "42501": Fault.FORBIDDEN,  # insufficient_privilege
    "25006": Fault.READ_ONLY,  # read_only_sql_transaction
    "25P03": Fault.UNREACHABLE,  # idle_in_transaction_session_timeout: the session was ended
    "3D000": Fault.UNREACHABLE,  # invalid_catalog_name: no such database
    "53100": Fault.FULL,  # disk_full
    "53300": Fault.UNREACHABLE,  # too_many_connections
}

#: By the first two characters of the state.
_CLASSES: Final = {
    "08": Fault.UNREACHABLE,  # connection exceptions
    "22": Fault.ROW,  # data exceptions
    "23": Fault.ROW,  # constraints
    "28": Fault.UNREACHABLE,  # a login that is refused
    "57": Fault.UNREACHABLE,  # the server goes down, or is starting
}


def fault_of_state(state: str | None) -> Fault | None:
    """What an SQLSTATE means; None when there is none."""
    if not state:
        return None
    return _FAULTS.get(state) or _CLASSES.get(state[:2], Fault.OTHER)


def fault_of_ours(error: OutboxError) -> Fault:
    """What an error means that was explained where it happened."""
    match error:
        case StoreUnavailable():
            return Fault.UNREACHABLE
        case StoreBusy():
            return Fault.BUSY
        case _:
            return Fault.OTHER


def rolled_back() -> TransactionEnded:
    return TransactionEnded(
        "PostgreSQL rolled the transaction back, because a statement in it had failed before",
        fix="let the error of that statement end the block, or run it in a nested outbox.transaction()",
    )


def refuse_old_server(version: int) -> None:
    if version < OLDEST_SERVER:
        raise SchemaMismatch(
            f"the server is PostgreSQL {version}, aftercommit needs {OLDEST_SERVER}", fix="upgrade the server"
        )


def refuse_cockroach() -> None:
    raise SchemaMismatch(
        "the server is CockroachDB, which lacks what is done with PostgreSQL",
        fix='Outbox("cockroachdb://…"), also where connections of a pool or an engine for PostgreSQL write',
    )


def none_free(seconds: float) -> StoreBusy:
    return StoreBusy(
        f"no connection of the pool became free within {seconds:g} seconds",
        fix="keep transactions short, or pass a larger pool",
    )


def of_the_parent() -> StoreUnavailable:
    """Two processes that speak on one socket garble each other's statements."""
    return StoreUnavailable(
        "the pool was opened by the process that this one was forked from",
        fix="open a pool and an outbox in this process, or give the outbox a URL",
    )


def no_answer() -> StoreUnavailable:
    return StoreUnavailable(
        f"PostgreSQL said nothing for {ANSWER:g} seconds on the connection that listens",
        fix="nothing, if it is rare: another one is opened; else look for what cuts off idle connections",
    )
