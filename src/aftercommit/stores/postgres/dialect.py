"""What PostgreSQL is like, whichever driver speaks to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from aftercommit.events.columns import PARAMETERS, PLAIN, UNIQUE_PARAMETERS, Kind
from aftercommit.stores.postgres.diagnosis import PostgresDiagnosis
from aftercommit.stores.sql.changes import ByStatement
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.rows import BETWEEN
from aftercommit.stores.sql.runs import RunsByStatement
from aftercommit.stores.sql.words import FILTERED

#: What a column may be made of as a whole.
_NUMBERS: Final = {int}
_TIMES: Final = {datetime}
_NOTHING: Final = {type(None)}


def array_literal(values: Sequence[Any]) -> str:
    """An array as PostgreSQL reads it from text: quicker than letting a driver encode a list. Statements cast such a
    parameter to text first, which asyncpg takes for its type."""
    first = values[0] if values else None
    if len(values) > 1 and values.count(first) == len(values):
        return f"{{{','.join([_element(first)] * len(values))}}}"
    try:
        # Nearly always all are texts without quotes, and one look at all of them together is enough.
        joined = '","'.join(values)
        if "\\" not in joined and joined.count('"') == 2 * (len(values) - 1):
            return f'{{"{joined}"}}'
    except TypeError:  # other kinds, or NULL
        kinds = set(map(type, values))
        if kinds == _NUMBERS:
            return f"{{{','.join(map(str, values))}}}"
        if kinds == _TIMES:
            return f"{{{','.join([value.isoformat() for value in values])}}}"
        if kinds == _NOTHING:
            return f"{{{'NULL,' * (len(values) - 1)}NULL}}"
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


#: The types of arrays, for the groups of an INSERT of many rows.
_ELEMENTS: Final = {
    Kind.SMALL: "smallint",
    Kind.NUMBER: "integer",
    Kind.LARGE: "bigint",
    **dict.fromkeys((Kind.NAME, Kind.LABEL, Kind.TEXT), "text"),
    Kind.BYTES: "bytea",
    Kind.INSTANT: "timestamptz",
}


def _new_rows(parameters: Sequence[tuple[str, Kind]]) -> str:
    """The rows of an INSERT of many, as a table."""
    arrays = ", ".join(f":{name}::text::{_ELEMENTS[kind]}[]" for name, kind in parameters)
    return f"unnest({arrays}) WITH ORDINALITY AS new ({', '.join(name for name, _ in parameters)}, number)"


def _plain_rows(*more: tuple[str, Kind]) -> str:
    """Those of plain events. Their texts are full of quotes, which an array would have to escape: they come as one."""
    rows = _new_rows([*((column.name, column.kind) for column in PLAIN), *more])
    return rows.replace(":payload::text::text[]", f"string_to_array(:texts::text, chr({ord(BETWEEN)}))")


#: For psycopg, which writes parameters as %s.
PSYCOPG: Final = Dialect(
    name="PostgreSQL",
    package="aftercommit.stores.postgres",
    # The start of the statement, not of the transaction: an event of a long transaction is not born old. An index
    # serves comparisons with it, which it could not do with clock_timestamp().
    now="statement_timestamp()",
    instant=lambda at: f"TIMESTAMPTZ '{at.isoformat(sep=' ', timespec='microseconds')}'",
    marker=lambda _: "%s",
    changes=ByStatement,
    runs=RunsByStatement,
    diagnosis=PostgresDiagnosis,
    words={
        "held": (
            "unnest(:event_id::text::text[], :handler_id::text::text[], :owner::text::text[], :epoch::text::integer[],"
            " :delay::text::bigint[], :error::text::text[], :counted::text::integer[], :done::text::text[])"
            " AS held (event_id, handler_id, owner, epoch, delay, error, counted, done)"
        ),
        "held_keys": (
            "unnest(:event_id::text::text[], :handler_id::text::text[], :owner::text::text[], :epoch::text::integer[])"
            " AS held (event_id, handler_id, owner, epoch)"
        ),
        "if_held_returning": "{if_held} RETURNING {table}.event_id, {table}.handler_id",
        "new_rows": _new_rows(PARAMETERS),
        "new_free_rows": _plain_rows(),
        "new_leased_rows": _plain_rows(("owner", Kind.NAME), ("lock_timeout", Kind.LARGE)),
        "new_unique_rows": _new_rows(UNIQUE_PARAMETERS),
        "now_plus": "{now} + $ * interval '1 microsecond'",
        "now_minus": "{now} - $ * interval '1 microsecond'",
        "since": "(extract(epoch FROM {now} - $) * 1000000)::bigint",
        "until": "(extract(epoch FROM $ - {now}) * 1000000)::bigint",
        "read": "$ AT TIME ZONE 'UTC'",
        # Said as exceptions and as open to one side, which the planner takes for common before there are statistics.
        "unfinished": "status NOT IN (1, 3)",
        "is_dead": "status >= 3",
        "new_id": "CAST(gen_random_uuid() AS text)",
        # How text compares, and how much room the pages of tables have that are changed all the time.
        "bytewise": ' COLLATE "C"',
        "half_full": (
            " WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02)"
        ),
        "nearly_empty": " WITH (fillfactor = 10)",
        "has_error": "strpos(last_error, :error) > 0",
    },
    parameters={
        **dict.fromkeys(("limit", "run", "reach", "position", "floor_position"), "$::bigint"),
        **dict.fromkeys(
            ("delay", "lock_timeout", "skip_recent", "older_than", "silent_for", "lasts", "within"), "$::bigint"
        ),
        **dict.fromkeys(("owner", "event_id", "error", *FILTERED), "$::text"),
        **dict.fromkeys(("name", "qualified", "after_key", "kind", "reason", "paused_by"), "$::text"),
        "table": "CAST($ AS text)",  # SQLAlchemy, which sends this statement too, does not see a name before two colons
        **dict.fromkeys(("stops", "blocks", "is_alone"), "$::boolean"),
        "status": "$::smallint",
        **dict.fromkeys(("floor_at", "paused_until"), "$::timestamptz"),
    },
    array=array_literal,
    name_sql="SELECT concat(current_database(), ' at ', coalesce(host(inet_server_addr()), 'this machine'))",
    fails_whole=True,
    sqlalchemy=("postgresql",),
)

#: For asyncpg, which numbers them.
ASYNCPG: Final = replace(PSYCOPG, marker=lambda number: f"${number}")
