"""What CockroachDB says differently from PostgreSQL. All of it is understood by PostgreSQL as well."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from aftercommit.stores.postgres import dialect as postgres
from aftercommit.stores.sql.diagnosis import SqlDiagnosis
from aftercommit.stores.sql.dialect import Dialect

PSYCOPG: Final[Dialect] = replace(
    postgres.PSYCOPG,
    name="CockroachDB",
    package="aftercommit.stores.cockroachdb",
    base=postgres.PSYCOPG.package,
    # Vacuum, slots and sessions are not there to be looked at.
    diagnosis=SqlDiagnosis,
    # Text is compared byte by byte, and with a collation it would be of another type; there are no pages to fill.
    words={**postgres.PSYCOPG.words, "bytewise": "", "half_full": "", "nearly_empty": ""},
    name_sql="SELECT current_database()",
    # Its own name, and the one of engines that were made for PostgreSQL.
    sqlalchemy=(*postgres.PSYCOPG.sqlalchemy, "cockroachdb"),
    unordered="its numbers do not grow in the order of writing, and its advisory locks lock nothing",
)

ASYNCPG: Final[Dialect] = replace(PSYCOPG, marker=postgres.ASYNCPG.marker)
