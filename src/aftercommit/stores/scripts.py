"""The tables as a script, for people who run their own migrations. No driver and no server is needed."""

from __future__ import annotations

from aftercommit.errors import InvalidOption, UnknownStore
from aftercommit.events.order import Order
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.statements import TableNames, statements_of
from aftercommit.stores.sql.steps import Step, script_of, steps_between


def schema_sql(
    database: str,
    *,
    table: str = "outbox_event",
    schema: str | None = None,
    ordered: bool = False,
    on_dead: str = "block",
    from_version: int = 0,
    to_version: int | None = None,
) -> str:
    """The script that makes the tables of an outbox on a kind of database: "postgresql", "mysql", "sqlserver" …

    Or the one that leads from one version of them to another, up or down; 0 is none, and down to it every event is
    lost. Two numbers mean the same script in every later release. The tables keep `ordered` and `on_dead`; every
    outbox that uses them has to have the same.

    >>> "CREATE TABLE" in schema_sql("PostgreSQL", schema="sales")
    True
    >>> "DROP INDEX" in schema_sql("sqlite", from_version=2, to_version=1)
    True
    """
    order = Order(ordered, on_dead)
    steps = schema_steps(
        database, table=table, schema=schema, order=order, from_version=from_version, to_version=to_version
    )
    return script_of(steps)


def schema_steps(
    database: str, *, table: str, schema: str | None, order: Order, from_version: int, to_version: int | None
) -> list[Step]:
    """The same statement by statement."""
    dialect = _dialect_of(database)
    if schema is not None and dialect.name == "SQLite":
        raise InvalidOption("schema was given, and SQLite has no schemas", fix="leave it out; use table=…")
    names = TableNames(table, schema, dialect.quotes)
    return steps_between(statements_of(dialect, names), names, order, from_version=from_version, to_version=to_version)


def newest_version(database: str) -> int:
    """Of the schema, in this release."""
    dialect = _dialect_of(database)
    return statements_of(dialect, TableNames("outbox_event", None, dialect.quotes)).migrations()[-1].number


def _dialect_of(database: str) -> Dialect:
    """By what people call it."""
    match str(database).lower():
        case "sqlite":
            from aftercommit.stores.sqlite.target import DIALECT as SQLITE

            return SQLITE
        case "postgresql" | "postgres":
            from aftercommit.stores.postgres.dialect import PSYCOPG

            return PSYCOPG
        case "cockroachdb" | "cockroach":
            from aftercommit.stores.cockroachdb.dialect import PSYCOPG as COCKROACH

            return COCKROACH
        case "mysql" | "mariadb":
            from aftercommit.stores.mysql.dialect import DIALECT as MYSQL

            return MYSQL
        case "tidb":
            from aftercommit.stores.tidb.dialect import DIALECT as TIDB

            return TIDB
        case "sqlserver" | "sql server" | "mssql":
            from aftercommit.stores.sqlserver.dialect import DIALECT as SQLSERVER

            return SQLSERVER
    raise UnknownStore(
        f"unsupported database: {database!r}",
        fix="use sqlite, postgresql, cockroachdb, mysql, mariadb, tidb or sqlserver",
    )
