"""The tables as a script, for people who run their own migrations. No driver and no server is needed."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from aftercommit.errors import InvalidOption, UnknownStore
from aftercommit.events.order import Order
from aftercommit.stores.sql.schema import script_of
from aftercommit.stores.sql.statements import Dialect, Statements, TableNames


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
    return script_of(Statements(dialect, names), names, Order(ordered, on_dead))


#: By what people call it.
_DIALECTS: Final = {
    "sqlite": ("sqlite.target", "DIALECT"),
    **dict.fromkeys(("postgresql", "postgres"), ("postgres.dialect", "PSYCOPG")),
    **dict.fromkeys(("mysql", "mariadb"), ("mysql.dialect", "DIALECT")),
    **dict.fromkeys(("sqlserver", "sql server", "mssql"), ("sqlserver.dialect", "DIALECT")),
}


def _dialect_of(database: str) -> Dialect:
    if (place := _DIALECTS.get(str(database).lower())) is None:
        raise UnknownStore(
            f"unsupported database: {database!r}", fix="use sqlite, postgresql, mysql, mariadb or sqlserver"
        )
    module, name = place
    dialect: Dialect = getattr(import_module(f"aftercommit.stores.{module}"), name)
    return dialect
