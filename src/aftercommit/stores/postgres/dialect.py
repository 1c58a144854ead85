"""What PostgreSQL is like, whichever driver speaks to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from aftercommit.errors import OutboxError, SchemaMismatch, StoreBusy, StoreUnavailable, TransactionEnded
from aftercommit.events.columns import PARAMETERS, Kind
from aftercommit.execution import Fault
from aftercommit.stores.sql.changes import ByStatement
from aftercommit.stores.sql.runs import RunsByStatement
from aftercommit.stores.sql.statements import Dialect


def array_literal(values: Sequence[Any]) -> str:
    """An array as PostgreSQL reads it from text: quicker than letting psycopg dump a list."""
    try:
        # Nearly always all are texts without quotes, and one look at all of them together is enough.
        joined = '","'.join(values)
        if "\\" not in joined and joined.count('"') == 2 * (len(values) - 1):
            return f'{{"{joined}"}}'
    except TypeError:
        pass  # other kinds, or NULL
    return "{" + ",".join([_element(value) for value in values]) + "}"


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        if '"' in value or "\\" in value:
            value = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{value}"'
    if isinstance(value, bytes):
        return f'"\\\\x{value.hex()}"'
    if isinstance(value, datetime):
        return f'"{value.isoformat()}"'
    return str(value)


#: The oldest that is still maintained, and has what the statements use.
OLDEST_SERVER: Final = 13

#: The types of arrays, for the groups of an INSERT of many rows.
_ELEMENTS: Final = {
    Kind.SMALL: "smallint",
    Kind.NUMBER: "integer",
    Kind.LARGE: "bigint",
    **dict.fromkeys((Kind.NAME, Kind.LABEL, Kind.TEXT), "text"),
    Kind.BYTES: "bytea",
    Kind.INSTANT: "timestamptz",
}

#: For psycopg, which writes parameters as %s.
PSYCOPG: Final = Dialect(
    name="PostgreSQL",
    package="aftercommit.stores.postgres",
    # The start of the statement, not of the transaction: an event of a long transaction is not born old. An index
    # serves comparisons with it, which it could not do with clock_timestamp().
    now="statement_timestamp()",
    marker=lambda _: "%s",
    changes=ByStatement,
    runs=RunsByStatement,
    words={
        "held": (
            "unnest(:event_id::text[], :handler_id::text[], :owner::text[], :epoch::integer[], :delay::bigint[],"
            " :error::text[], :counted::integer[], :done::text[])"
            " AS held (event_id, handler_id, owner, epoch, delay, error, counted, done)"
        ),
        "held_keys": (
            "unnest(:event_id::text[], :handler_id::text[], :owner::text[], :epoch::integer[])"
            " AS held (event_id, handler_id, owner, epoch)"
        ),
        "if_held_returning": "{if_held} RETURNING {table}.event_id, {table}.handler_id",
        "new_rows": (
            f"unnest({', '.join(f':{name}::{_ELEMENTS[kind]}[]' for name, kind in PARAMETERS)})"
            f" WITH ORDINALITY AS new ({', '.join(name for name, _ in PARAMETERS)}, number)"
        ),
        "now_plus": "{now} + $ * interval '1 microsecond'",
        "now_minus": "{now} - $ * interval '1 microsecond'",
        "since": "(extract(epoch FROM {now} - $) * 1000000)::bigint",
        "until": "(extract(epoch FROM $ - {now}) * 1000000)::bigint",
        "read": "$ AT TIME ZONE 'UTC'",
        # Said as exceptions and as open to one side, which the planner takes for common before there are statistics.
        "unfinished": "status NOT IN (1, 3)",
        "is_dead": "status >= 3",
    },
    parameters={
        **dict.fromkeys(("limit", "run", "reach", "position", "floor_position"), "$::bigint"),
        **dict.fromkeys(("delay", "lock_timeout", "skip_recent", "older_than", "silent_for", "lasts"), "$::bigint"),
        **dict.fromkeys(("owner", "handler_id", "event_type", "aggregate_type"), "$::text"),
        **dict.fromkeys(("table", "name", "after_key"), "$::text"),
        **dict.fromkeys(("stops", "blocks", "is_alone"), "$::boolean"),
        "status": "$::smallint",
        "floor_at": "$::timestamptz",
    },
    array=array_literal,
)

#: For asyncpg, which numbers them and takes lists.
ASYNCPG: Final = replace(PSYCOPG, marker=lambda number: f"${number}", array=list)

#: How the store's own transactions begin. A process that stands still inside one (a stopped machine, a network that
#: is gone) would keep its rows locked, and others would pass over them long after its leases have run out.
BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '10s'"

#: The process that really serves a session. A pooler has told the client of another one.
WHO_SERVES: Final = "SELECT pg_backend_pid()"

_FAULTS: Final = {
    "40001": Fault.CONFLICT,  # serialization_failure
    "40P01": Fault.CONFLICT,  # deadlock_detected
    "55P03": Fault.BUSY,  # lock_not_available
    "57014": Fault.BUSY,  # query_canceled: a statement timeout
    "42P01": Fault.MISSING_TABLE,  # undefined_table
    "3F000": Fault.MISSING_TABLE,  # invalid_schema_name
    "42501": Fault.FORBIDDEN,  # insufficient_privilege
    "25006": Fault.READ_ONLY,  # read_only_sql_transaction
    "25P03": Fault.UNREACHABLE,  # idle_in_transaction_session_timeout: the session was ended
    "3D000": Fault.UNREACHABLE,  # invalid_catalog_name: no such database
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


def refuse_rollback(answer: str | None) -> None:
    """A transaction in which a statement has failed answers COMMIT with ROLLBACK, and no error."""
    if answer != "COMMIT":
        raise rolled_back()


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
