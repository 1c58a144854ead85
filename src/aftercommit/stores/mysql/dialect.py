"""What MySQL and MariaDB say differently from other databases. One text serves both."""

from __future__ import annotations

from typing import Final

from aftercommit.stores.mysql.changes import MysqlChanges
from aftercommit.stores.mysql.diagnosis import MysqlDiagnosis
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.runs import PagedRuns

#: Text that compares byte by byte, blanks at the end too. Each server reads the name that it knows.
_BYTEWISE: Final = "CHARACTER SET utf8mb4 /*!80017 COLLATE utf8mb4_0900_bin */ /*M! COLLATE utf8mb4_nopad_bin */"

DIALECT: Final = Dialect(
    name="MySQL",
    package="aftercommit.stores.mysql",
    now="UTC_TIMESTAMP(6)",
    instant=lambda at: f"TIMESTAMP '{at.replace(tzinfo=None).isoformat(sep=' ', timespec='microseconds')}'",
    marker=lambda _: "%s",
    changes=MysqlChanges,
    runs=PagedRuns,
    diagnosis=MysqlDiagnosis,
    words={
        # Wider than the columns: MariaDB cuts a text that is too long, and a cut id could be another row's.
        "held": (
            "JSON_TABLE(:held, '$[*]' COLUMNS ("
            f"event_id VARCHAR(255) {_BYTEWISE} PATH '$[0]', handler_id VARCHAR(512) {_BYTEWISE} PATH '$[1]',"
            f" owner VARCHAR(255) {_BYTEWISE} PATH '$[2]', epoch INT PATH '$[3]', delay BIGINT PATH '$[4]',"
            f" `error` TEXT {_BYTEWISE} PATH '$[5]', counted INT PATH '$[6]', done LONGTEXT {_BYTEWISE} PATH '$[7]'"
            ")) AS held"
        ),
        "held_rows": "{held} STRAIGHT_JOIN {table} FORCE INDEX ({index:event}) ON {fence}",
        "if_held": "",
        "now_plus": "{now} + INTERVAL $ MICROSECOND",
        "now_minus": "{now} - INTERVAL $ MICROSECOND",
        "since": "TIMESTAMPDIFF(MICROSECOND, $, {now})",
        "until": "TIMESTAMPDIFF(MICROSECOND, {now}, $)",
        "table_by": "{table} FORCE INDEX ({index:$})",
        "new_id": "UUID()",
        "one_counter": "",
        "change_by": "{table} FORCE INDEX ({index:$})",
    },
    # Bytes travel as hexadecimal text, which no SQL mode and no character set of the caller's connection can change.
    parameters={"payload_bytes": "UNHEX($)"},
    quotes=("`", "`"),
    claims_by_status=True,
    name_sql="SELECT concat(coalesce(database(), 'no database'), ' at ', @@hostname)",
    sqlalchemy=("mysql", "mariadb"),
)
