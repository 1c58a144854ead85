"""The event table as SQLAlchemy sees it when rows are inserted: what arrives is what the store's own INSERT writes."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    func,
    literal,
    literal_column,
    type_coerce,
)
from sqlalchemy.dialects.mysql import DATETIME
from sqlalchemy.orm import registry
from sqlalchemy.types import TypeDecorator, TypeEngine

from aftercommit.events.columns import GIVEN, WRITTEN, Kind
from aftercommit.ports import SqlNames


class FromNow(TypeDecorator[Any]):
    """Bound as microseconds, stored as that much later than the database's clock; nothing stays nothing."""

    impl = BigInteger
    cache_ok = True

    def __init__(self, database: str, now: str) -> None:
        super().__init__()
        self.database = database
        self.now = now

    def bind_expression(self, bindparam: Any) -> Any:
        micros: Any = type_coerce(bindparam, BigInteger())
        now: Any = literal_column(self.now)
        if self.database == "postgresql":
            return now.op("+")(micros.op("*")(literal_column("interval '1 microsecond'")))
        if self.database == "mysql":
            return func.timestampadd(literal_column("MICROSECOND"), micros, now)
        return now.op("+")(micros)


class AsHex(TypeDecorator[Any]):
    """Bytes as hexadecimal text, which no SQL mode and no character set of the caller's connection can change."""

    impl = LargeBinary
    cache_ok = True

    def bind_expression(self, bindparam: Any) -> Any:
        return func.unhex(type_coerce(bindparam, _Hex()))


class _Hex(TypeDecorator[Any]):
    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        return None if value is None else value.hex()


def instant_type(database: str) -> TypeEngine[Any]:
    """A point in time as the store gives it."""
    if database == "sqlite":
        return BigInteger()
    return DateTime(timezone=True) if database == "postgresql" else DATETIME(fsp=6)


def event_table(names: SqlNames, database: str, now: str) -> Table:
    """The columns that an INSERT names. `names` are the store's table and schema, `now` its clock."""
    position = [Column("position", BigInteger, primary_key=True)] if database == "mysql" else []
    keys = () if position else ("event_id", "handler_id")
    types: dict[Kind, TypeEngine[Any]] = {
        Kind.SMALL: SmallInteger(),
        Kind.NUMBER: Integer(),
        Kind.NAME: String(),
        Kind.LABEL: String(),
        Kind.TEXT: Text(),
        Kind.BYTES: AsHex() if database == "mysql" else LargeBinary(),
        Kind.INSTANT: instant_type(database),
    }
    from_now = FromNow(database, now)
    written = [
        Column(
            column.name,
            types[column.kind] if column.value == GIVEN or column.kind is not Kind.INSTANT else from_now,
            primary_key=column.name in keys,
        )
        for column in WRITTEN
    ]
    return Table(names.table, MetaData(), *position, *written, schema=names.schema, quote=True, quote_schema=True)


def columns_of(values: dict[str, Any], database: str) -> dict[str, Any]:
    """The parameters of the store's INSERT as columns. A time that was given as it is becomes an expression."""
    scheduled, delay, owner = values.pop("available_at"), values.pop("delay"), values.pop("owner")
    values["created_at"] = 0
    values["available_at"] = delay if scheduled is None else literal(scheduled, instant_type(database))
    values["locked_by"] = owner
    values["locked_at"] = None if owner is None else 0
    values["lease_until"] = values.pop("lock_timeout")
    values["lease_epoch"] = values.pop("epoch")
    return values


class EventRow:
    """A row on its way into the table. Each outbox maps a class of its own."""

    #: The rows of one write() share their fate.
    batch: Any
    key: Any
    event_key: str | None
    #: Nobody else can write its key until this transaction ends.
    is_locked = False


def mapped(table: Table) -> type[EventRow]:
    """A class of its own for a table.

    The ids are given, so the database is not asked for anything after the INSERT, and many rows are one statement.
    MySQL's drivers send rows with a clock in them one by one; MariaDB takes many at once where it returns positions.
    """
    kind: type[EventRow] = type("OutboxEventRow", (EventRow,), {})
    registry().map_imperatively(kind, table, eager_defaults=False)
    return kind
