"""What SQL Server says in its own way."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from aftercommit.stores.sql.changes import ByStatement
from aftercommit.stores.sql.diagnosis import SqlDiagnosis
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.rows import Times
from aftercommit.stores.sql.runs import ConfirmedRuns
from aftercommit.stores.sql.words import WORDS

#: datetime2 has no zone: what is written has to be UTC before, since the driver drops the zone without a word.
TIMES: Final = Times(
    lambda value: value.astimezone(UTC).replace(tzinfo=None), lambda value: value.replace(tzinfo=UTC), datetime.min
)

#: As many microseconds from now, before it or behind it. DATEADD takes integers of four bytes.
_SHIFTED: Final = (
    "DATEADD(day, {0}$ / 1000000 / 86400, DATEADD(second, {0}$ / 1000000 % 86400,"
    " DATEADD(microsecond, {0}$ % 1000000, {{now}})))"
)

DIALECT: Final = Dialect(
    name="SQL Server",
    package="aftercommit.stores.sqlserver",
    # Of seven digits; rounded once, so that values that were written and values that are compared round alike.
    now="CAST(SYSUTCDATETIME() AS datetime2(6))",
    marker=lambda _: "?",
    changes=ByStatement,
    runs=ConfirmedRuns,
    diagnosis=SqlDiagnosis,
    words={
        # A long text arrives as ntext, which OPENJSON refuses. Its columns have the collation of the database, and no
        # collation tells "a" from "a " (they all pass over blanks at the end), so the sizes of the ids go beside them.
        "held": (
            "(SELECT event_id COLLATE Latin1_General_100_BIN2 AS event_id,"
            " handler_id COLLATE Latin1_General_100_BIN2 AS handler_id,"
            " owner COLLATE Latin1_General_100_BIN2 AS owner, epoch, delay, error, counted, done,"
            " DATALENGTH(event_id) * 2048 + DATALENGTH(handler_id) AS size"
            " FROM OPENJSON(CAST(:held AS nvarchar(max))) WITH ("
            "event_id nvarchar(72) '$[0]', handler_id nvarchar(510) '$[1]', owner nvarchar(256) '$[2]',"
            " epoch int '$[3]', delay bigint '$[4]', error nvarchar(max) '$[5]', counted int '$[6]',"
            " done nvarchar(max) '$[7]')) AS held"
        ),
        "fence": f"{WORDS['fence']} AND ids_size = held.size",
        "if_held": "FROM {table} WITH (ROWLOCK) INNER JOIN {held} ON {fence}",
        "if_held_returning": "OUTPUT inserted.event_id, inserted.handler_id {if_held}",
        "now_plus": _SHIFTED.format(""),
        "now_minus": _SHIFTED.format("-"),
        "since": "DATEDIFF_BIG(microsecond, $, {now})",
        "until": "DATEDIFF_BIG(microsecond, {now}, $)",
        "table_by": "{table} WITH (READPAST, READCOMMITTEDLOCK)",
        "new_id": "LOWER(CONVERT(nvarchar(36), NEWID()))",
        "of_event": (
            "event_id = :event_id AND DATALENGTH(event_id) = DATALENGTH(:event_id)"
            " AND (:handler_id IS NULL"
            " OR (handler_id = :handler_id AND DATALENGTH(handler_id) = DATALENGTH(:handler_id)))"
        ),
        "has_error": "CHARINDEX(:error, last_error COLLATE Latin1_General_100_BIN2) > 0",
    },
    parameters={
        **dict.fromkeys(("payload", "headers", "error", "message", "traceback"), "CAST($ AS nvarchar(max))"),
        **dict.fromkeys(("scheduled_at", "available_at", "paused_until"), "CAST($ AS datetime2(6))"),
        "payload_bytes": "CAST($ AS varbinary(max))",
    },
    # A marker has one type for the driver to find out, whether its value is NULL or not.
    variables={
        **dict.fromkeys(("now", "floor_at", "paused_until"), "datetime2(6)"),
        **dict.fromkeys(
            ("delay", "lock_timeout", "skip_recent", "older_than", "silent_for", "lasts", "within"), "bigint"
        ),
        **dict.fromkeys(("owner", "id", "event_type", "aggregate_id"), "nvarchar(256)"),
        **dict.fromkeys(("event_id", "before_id"), "nvarchar(72)"),
        **dict.fromkeys(("handler_id", "event_key", "unique_key"), "nvarchar(510)"),
        **dict.fromkeys(("aggregate_type", "tenant_id"), "nvarchar(128)"),
        "error": "nvarchar(max)",
        "limit": "bigint",
        "status": "smallint",
        "duty": "nvarchar(64)",
        "name": "nvarchar(510)",
        "consumer": "nvarchar(256)",
        "message_id": "nvarchar(510)",
        "qualified": "nvarchar(256)",
        "kind": "nvarchar(32)",
        "reason": "nvarchar(max)",
        "paused_by": "nvarchar(256)",
        "value": "nvarchar(255)",
    },
    times=TIMES,
    quotes=("[", "]"),
    name_sql="SELECT concat(db_name(), ' at ', @@SERVERNAME)",
    sqlalchemy=("mssql",),
    isolations=("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SNAPSHOT", "SERIALIZABLE"),
)
