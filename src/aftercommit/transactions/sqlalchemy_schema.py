"""The outbox's tables as they are in the database, for those who compare it with their MetaData: Alembic above all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from sqlalchemy import (
    BigInteger,
    Column,
    Computed,
    DateTime,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.mysql import DATETIME, LONGBLOB, LONGTEXT, TINYINT
from sqlalchemy.types import TypeEngine

from aftercommit.errors import UnsupportedTransaction
from aftercommit.events.columns import COLUMNS, Kind
from aftercommit.events.columns import Column as EventColumn
from aftercommit.ports import EventStore, SqlNames


def attach(store: EventStore, metadata: MetaData) -> Table:
    """Describe the tables in the caller's metadata, once; the table of events."""
    kinds: dict[str, Callable[[SqlNames], _Columns]] = {
        "sqlite": _Sqlite,
        "postgresql": _Postgres,
        "mysql": _Mysql,
    }
    table = store.sql_table
    kind = None if table is None else kinds.get(table.databases[0])
    if table is None or kind is None:
        raise UnsupportedTransaction(
            f"{store!r} cannot be described to SQLAlchemy", fix="leave its tables out of Alembic with include_name"
        )
    names = table.names
    described = kind(names)
    known = metadata.tables.get(names.table if names.schema is None else f"{names.schema}.{names.table}")
    return described.attach(metadata) if known is None else known


class _Columns(ABC):
    """The columns that every database has, each in its own types."""

    types: ClassVar[Mapping[Kind, TypeEngine[Any]]]
    #: The primary key of the table of events.
    keys: tuple[str, ...] = ("position",)
    is_position_nullable = False

    def __init__(self, names: SqlNames) -> None:
        self._names = names
        self._table = names.table

    def attach(self, metadata: MetaData) -> Table:
        sides = {"schema": self._facts(), "instance": self._instances(), "partition": self._partitions()}
        for noun, columns in sides.items():
            Table(self._names.side(noun), metadata, *columns, schema=self._names.schema)
        events = [*self._events(), *self._indexes()]
        return Table(self._table, metadata, *events, schema=self._names.schema)

    def sql_type(self, kind: Kind, length: int | None = None) -> TypeEngine[Any]:
        return self.types[kind] if length is None else String(length)

    def _index(self, name: str, *columns: Any, unique: bool = False, where: str | None = None) -> Index:
        condition = None if where is None else text(where)
        return Index(
            f"{self._table}_{name}", *columns, unique=unique, sqlite_where=condition, postgresql_where=condition
        )

    def _facts(self) -> list[Any]:
        return [
            Column("name", self.sql_type(Kind.LABEL, 64), primary_key=True),
            Column("value", self.sql_type(Kind.LABEL, 255), nullable=False),
        ]

    def _instances(self) -> list[Any]:
        return [
            Column("id", self.sql_type(Kind.NAME, 128), primary_key=True),
            Column("host", self.sql_type(Kind.LABEL, 255), nullable=False),
            Column("pid", self.sql_type(Kind.NUMBER), nullable=False),
            Column("started_at", self.sql_type(Kind.INSTANT), nullable=False),
            Column("heartbeat_at", self.sql_type(Kind.INSTANT), nullable=False),
            Column("status", self.sql_type(Kind.SMALL), nullable=False, server_default=text("0")),
        ]

    def _partitions(self) -> list[Any]:
        return [
            Column(
                "partition_no",
                self.sql_type(Kind.SMALL),
                primary_key=True,
                autoincrement=False,
                nullable=self.is_position_nullable,
            ),
            Column("owner", self.sql_type(Kind.NAME, 128)),
            Column("epoch", self.sql_type(Kind.NUMBER), nullable=False, server_default=text("0")),
            Column("expires_at", self.sql_type(Kind.INSTANT)),
        ]

    def _events(self) -> list[Any]:
        return [self._column(column) for column in COLUMNS]

    def _column(self, column: EventColumn, *more: Any) -> Column[Any]:
        is_nullable = self.is_position_nullable if column.name == "position" else column.is_nullable
        return Column(
            column.name,
            self.sql_type(column.kind, column.length),
            *more,
            primary_key=column.name in self.keys,
            nullable=is_nullable,
            server_default=None if column.default is None else text(repr(column.default)),
        )

    @abstractmethod
    def _indexes(self) -> list[Any]: ...


class _Sqlite(_Columns):
    is_position_nullable = True  # what is never NULL need not say so there
    types: ClassVar[Mapping[Kind, TypeEngine[Any]]] = {
        **dict.fromkeys((Kind.SMALL, Kind.NUMBER, Kind.LARGE, Kind.INSTANT), Integer()),
        **dict.fromkeys((Kind.NAME, Kind.LABEL, Kind.NOTE, Kind.TEXT), Text()),
        Kind.BYTES: LargeBinary(),
    }

    def sql_type(self, kind: Kind, length: int | None = None) -> TypeEngine[Any]:
        return self.types[kind]

    def _indexes(self) -> list[Any]:
        """Without those of expressions, which SQLAlchemy cannot see there."""
        return [
            self._index("event", "event_id", "handler_id", unique=True),
            self._index("pending", "available_at", "position", where="status IN (0, 2)"),
            self._index("ended", "status", "done_at", where="status IN (1, 3)"),
            self._index("dead", "position", where="status = 3"),
        ]


class _Postgres(_Columns):
    keys = ("event_id", "handler_id")
    types: ClassVar[Mapping[Kind, TypeEngine[Any]]] = {
        Kind.SMALL: SmallInteger(),
        Kind.NUMBER: Integer(),
        Kind.LARGE: BigInteger(),
        Kind.NOTE: Text(),
        Kind.TEXT: Text(),
        Kind.BYTES: LargeBinary(),
        Kind.INSTANT: DateTime(timezone=True),
    }

    def sql_type(self, kind: Kind, length: int | None = None) -> TypeEngine[Any]:
        return String(length, collation="C") if kind is Kind.NAME else super().sql_type(kind, length)

    def _facts(self) -> list[Any]:
        return [Column("name", Text, primary_key=True), Column("value", Text, nullable=False)]

    def _column(self, column: EventColumn, *more: Any) -> Column[Any]:
        if column.name == "position":
            more = (Identity(always=True),)
        if column.name == "content_type":  # as long as it may be, and not longer
            column = column._replace(length=128)
        return super()._column(column, *more)

    def _indexes(self) -> list[Any]:
        ended = func.coalesce(text("done_at"), text("created_at"))
        key = func.coalesce(text("event_key"), text("event_id"))
        return [
            self._index("pending", "available_at", "position", where="status NOT IN (1, 3)"),
            self._index("ended", "status", ended, where="status NOT IN (0, 2)"),
            self._index("dead", "position", where="status >= 3"),
            self._index("order", "partition_no", key, "position", where="status NOT IN (1, 3)"),
            self._index("blocking", "partition_no", key, "position", where="status >= 3"),
        ]


class _Mysql(_Columns):
    types: ClassVar[Mapping[Kind, TypeEngine[Any]]] = {
        Kind.SMALL: SmallInteger(),
        Kind.NUMBER: Integer(),
        Kind.LARGE: BigInteger(),
        Kind.NOTE: Text(),
        Kind.TEXT: LONGTEXT(),
        Kind.BYTES: LONGBLOB(),
        Kind.INSTANT: DATETIME(fsp=6),
    }

    def _events(self) -> list[Any]:
        is_dead = "CASE status WHEN 1 THEN NULL WHEN 3 THEN 1 ELSE 0 END"
        order_key = "CASE WHEN status <> 1 THEN COALESCE(event_key, event_id) END"
        return [
            *super()._events(),
            Column("is_dead", TINYINT(), Computed(is_dead, persisted=False)),
            Column("order_key", self.sql_type(Kind.NAME, 255), Computed(order_key, persisted=False)),
        ]

    def _indexes(self) -> list[Any]:
        return [
            self._index("event", "event_id", "handler_id", unique=True),
            self._index("order", "partition_no", "is_dead", "order_key", "position"),
            self._index("pending", "status", "available_at", "position"),
            self._index("ended", "status", "done_at"),
            self._index("dead", "status", "position"),
        ]
