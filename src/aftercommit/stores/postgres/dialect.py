"""What PostgreSQL is like, whichever driver speaks to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

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


#: For psycopg, which writes parameters as %s.
PSYCOPG: Final = Dialect(
    name="PostgreSQL",
    package="aftercommit.stores.postgres",
    # The start of the statement, not of the transaction: an event of a long transaction is not born old. An index
    # serves comparisons with it, which it could not do with clock_timestamp().
    now="statement_timestamp()",
    marker=lambda _: "%s",
    held=(
        "unnest(:event_id::text[], :handler_id::text[], :owner::text[], :epoch::integer[], :delay::bigint[],"
        " :error::text[], :counted::integer[], :done::text[])"
        " AS held (event_id, handler_id, owner, epoch, delay, error, counted, done)"
    ),
    held_keys=(
        "unnest(:event_id::text[], :handler_id::text[], :owner::text[], :epoch::integer[])"
        " AS held (event_id, handler_id, owner, epoch)"
    ),
    returns_rows=True,
    array=array_literal,
)

#: For asyncpg, which numbers them and takes lists.
ASYNCPG: Final = replace(PSYCOPG, marker=lambda number: f"${number}", array=list)
