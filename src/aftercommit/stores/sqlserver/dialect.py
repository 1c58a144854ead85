"""What SQL Server says in its own way."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from aftercommit.stores.sql.rows import Times
from aftercommit.stores.sql.statements import Dialect
from aftercommit.stores.sqlserver.steps import SqlServerSteps

#: datetime2 has no zone: what is written has to be UTC before, since the driver drops the zone without a word.
TIMES: Final = Times(
    lambda value: value.astimezone(UTC).replace(tzinfo=None), lambda value: value.replace(tzinfo=UTC), datetime.min
)

DIALECT: Final = Dialect(
    name="SQL Server",
    package="aftercommit.stores.sqlserver",
    # Of seven digits; rounded once, so that values that were written and values that are compared round alike.
    now="CAST(SYSUTCDATETIME() AS datetime2(6))",
    marker=lambda _: "?",
    # A long text arrives as ntext, which OPENJSON refuses. Its columns have the collation of the database, and no
    # collation tells "a" from "a " (they all pass over blanks at the end), so the sizes of the ids go beside them.
    held=(
        "(SELECT event_id COLLATE Latin1_General_100_BIN2 AS event_id,"
        " handler_id COLLATE Latin1_General_100_BIN2 AS handler_id, owner COLLATE Latin1_General_100_BIN2 AS owner,"
        " epoch, delay, error, counted, done,"
        " DATALENGTH(event_id) * 2048 + DATALENGTH(handler_id) AS size"
        " FROM OPENJSON(CAST(:held AS nvarchar(max))) WITH ("
        "event_id nvarchar(72) '$[0]', handler_id nvarchar(510) '$[1]', owner nvarchar(256) '$[2]', epoch int '$[3]',"
        " delay bigint '$[4]', error nvarchar(max) '$[5]', counted int '$[6]', done nvarchar(max) '$[7]')) AS held"
    ),
    times=TIMES,
    quotes=("[", "]"),
    returns_rows=True,
    steps=SqlServerSteps,
    name_sql="SELECT concat(db_name(), ' at ', @@SERVERNAME)",
)
