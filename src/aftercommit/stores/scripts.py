"""The tables as a script, for people who run their own migrations. No driver and no server is needed."""

from __future__ import annotations

from aftercommit.errors import InvalidOption, UnknownStore
from aftercommit.events.order import Order
from aftercommit.stores.sql.schema import script_of
from aftercommit.stores.sql.statements import Dialect, TableNames, statements_of


def schema_sql(
    database: str,
    *,
    table: str = "outbox_event",
    schema: str | None = None,
    ordered: bool = False,
    on_dead: str = "block",
) -> str:
    """The script that makes the tables of an outbox on a kind of database: "postgresql", "mysql", "sqlserver" …

    The tables keep `ordered` and `on_dead`; every outbox that uses them has to have the same.

    >>> "CREATE TABLE" in schema_sql("PostgreSQL", schema="sales")
    True
    """
    dialect = _dialect_of(database)
    if schema is not None and dialect.name == "SQLite":
        raise InvalidOption("schema was given, and SQLite has no schemas", fix="leave it out; use table=…")
    names = TableNames(table, schema, dialect.quotes)
    return script_of(statements_of(dialect, names), names, Order(ordered, on_dead))


def _dialect_of(database: str) -> Dialect:
    """By what people call it."""
    match str(database).lower():
        case "sqlite":
            from aftercommit.stores.sqlite.target import DIALECT as SQLITE

            return SQLITE
        case "postgresql" | "postgres":
            from aftercommit.stores.postgres.dialect import PSYCOPG

            return PSYCOPG
        case "mysql" | "mariadb":
            from aftercommit.stores.mysql.dialect import DIALECT as MYSQL

            return MYSQL
        case "sqlserver" | "sql server" | "mssql":
            from aftercommit.stores.sqlserver.dialect import DIALECT as SQLSERVER

            return SQLSERVER
    raise UnknownStore(f"unsupported database: {database!r}", fix="use sqlite, postgresql, mysql, mariadb or sqlserver")
