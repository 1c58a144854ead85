"""What MySQL and MariaDB say differently from other databases. One text serves both."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from aftercommit.stores.mysql.steps import MysqlSteps
from aftercommit.stores.sql.rows import HELD_COLUMNS, HeldRow, as_group
from aftercommit.stores.sql.statements import Dialect

#: Seven thousand years in microseconds: the longest delay that ends before the last day a DATETIME can hold.
LONGEST_DELAY: Final = 220_903_200_000_000_000

#: Text that compares byte by byte, blanks at the end too. Each server reads the name that it knows.
_BYTEWISE: Final = "CHARACTER SET utf8mb4 /*!80017 COLLATE utf8mb4_0900_bin */ /*M! COLLATE utf8mb4_nopad_bin */"

_by_key = itemgetter(0, 1)


@dataclass(frozen=True, slots=True)
class MysqlDialect(Dialect):
    """Groups travel in the order in which their rows are locked."""

    def group(self, rows: Sequence[HeldRow], names: Collection[str] = HELD_COLUMNS) -> dict[str, object]:
        """In the order of the index: two groups that share rows then wait for each other in one direction only."""
        return {"held": as_group([_capped(row) for row in sorted(rows, key=_by_key)])}


def _capped(row: HeldRow) -> HeldRow:
    delay = row[4]
    return row if delay is None or delay <= LONGEST_DELAY else (*row[:4], LONGEST_DELAY, *row[5:])


DIALECT: Final = MysqlDialect(
    name="MySQL",
    package="aftercommit.stores.mysql",
    now="UTC_TIMESTAMP(6)",
    marker=lambda _: "%s",
    # Wider than the columns: MariaDB cuts a text that is too long, and a cut id could be another row's.
    held=(
        "JSON_TABLE(:held, '$[*]' COLUMNS ("
        f"event_id VARCHAR(255) {_BYTEWISE} PATH '$[0]', handler_id VARCHAR(512) {_BYTEWISE} PATH '$[1]',"
        f" owner VARCHAR(255) {_BYTEWISE} PATH '$[2]', epoch INT PATH '$[3]', delay BIGINT PATH '$[4]',"
        f" `error` TEXT {_BYTEWISE} PATH '$[5]', counted INT PATH '$[6]', done LONGTEXT {_BYTEWISE} PATH '$[7]'"
        ")) AS held"
    ),
    quotes=("`", "`"),
    claims_by_status=True,
    steps=MysqlSteps,
    name_sql="SELECT concat(coalesce(database(), 'no database'), ' at ', @@hostname)",
    sqlalchemy=("mysql", "mariadb"),
)
