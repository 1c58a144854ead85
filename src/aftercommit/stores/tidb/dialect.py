"""What TiDB says differently from MySQL. All of it is understood by MySQL and MariaDB as well."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from aftercommit.stores.mysql.changes import RowByRow
from aftercommit.stores.mysql.dialect import DIALECT as MYSQL
from aftercommit.stores.sql.diagnosis import SqlDiagnosis
from aftercommit.stores.sql.dialect import Dialect

DIALECT: Final[Dialect] = replace(
    MYSQL,
    name="TiDB",
    package="aftercommit.stores.tidb",
    base=MYSQL.package,
    changes=RowByRow,
    # What InnoDB and its log can suffer from says nothing of TiKV.
    diagnosis=SqlDiagnosis,
    words={
        **MYSQL.words,
        "held_rows": "{change_by:event}",
        "if_held": "WHERE {fence}",
        # Else each TiDB server draws numbers from a stock of its own.
        "one_counter": " /*T![auto_id_cache] AUTO_ID_CACHE 1 */",
    },
    is_row_by_row=True,
    # Its own name, and the one of engines that were made for MySQL.
    sqlalchemy=(*MYSQL.sqlalchemy, "tidb"),
    isolations=("READ COMMITTED", "REPEATABLE READ"),
    unordered="its SKIP LOCKED takes no locks, and its numbers grow in the order of writing on one server only",
)
