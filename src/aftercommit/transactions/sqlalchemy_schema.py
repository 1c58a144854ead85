"""The outbox's tables as they are in the database, for those who compare it with their MetaData: Alembic above all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

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

    number: TypeEngine[Any]
    small: TypeEngine[Any]
    large: TypeEngine[Any]
    binary: TypeEngine[Any]
    at: TypeEngine[Any]
    #: As long as it may be.
    long: TypeEngine[Any]
    error: TypeEngine[Any]
    content_type = 255
    is_position_nullable = False

    def __init__(self, names: SqlNames) -> None:
        self._names = names
        self._table = names.table

    def attach(self, metadata: MetaData) -> Table:
        sides = {"schema": self._facts(), "instance": self._instances(), "partition": self._partitions()}
        for noun, columns in sides.items():
            Table(self._names.side(noun), metadata, *columns, schema=self._names.schema)
        events = [*self._keys(), *self._columns(), *self._indexes()]
        return Table(self._table, metadata, *events, schema=self._names.schema)

    def text(self, length: int) -> TypeEngine[Any]:
        return String(length)

    def plain(self, length: int) -> TypeEngine[Any]:
        """Text that nobody compares."""
        return self.text(length)

    def _index(self, name: str, *columns: Any, unique: bool = False, where: str | None = None) -> Index:
        condition = None if where is None else text(where)
        return Index(
            f"{self._table}_{name}", *columns, unique=unique, sqlite_where=condition, postgresql_where=condition
        )

    def _facts(self) -> list[Any]:
        return [Column("name", self.plain(64), primary_key=True), Column("value", self.plain(255), nullable=False)]

    def _instances(self) -> list[Any]:
        return [
            Column("id", self.text(128), primary_key=True),
            Column("host", self.plain(255), nullable=False),
            Column("pid", self.number, nullable=False),
            Column("started_at", self.at, nullable=False),
            Column("heartbeat_at", self.at, nullable=False),
            Column("status", self.small, nullable=False, server_default=text("0")),
        ]

    def _partitions(self) -> list[Any]:
        return [
            Column(
                "partition_no", self.small, primary_key=True, autoincrement=False, nullable=self.is_position_nullable
            ),
            Column("owner", self.text(128)),
            Column("epoch", self.number, nullable=False, server_default=text("0")),
            Column("expires_at", self.at),
        ]

    def _keys(self) -> list[Any]:
        return [
            Column("position", self.large, primary_key=True, nullable=self.is_position_nullable),
            Column("event_id", self.text(36), nullable=False),
            Column("handler_id", self.text(255), nullable=False, server_default=text("''")),
        ]

    def _columns(self) -> list[Any]:
        zero = text("0")
        return [
            Column("event_type", self.text(128), nullable=False),
            Column("aggregate_type", self.text(64), nullable=False),
            Column("aggregate_id", self.text(128)),
            Column("tenant_id", self.text(64)),
            Column("event_key", self.text(255)),
            Column("partition_no", self.small, nullable=False),
            Column("payload", self.long),
            Column("payload_bytes", self.binary),
            Column("content_type", self.plain(self.content_type), nullable=False),
            Column("payload_version", self.number, nullable=False, server_default=text("1")),
            Column("headers", self.long),
            Column("done_handlers", self.long),
            Column("status", self.small, nullable=False, server_default=zero),
            Column("attempts", self.number, nullable=False, server_default=zero),
            Column("abandoned", self.small, nullable=False, server_default=zero),
            Column("occurred_at", self.at, nullable=False),
            Column("scheduled_at", self.at),
            Column("created_at", self.at, nullable=False),
            Column("available_at", self.at, nullable=False),
            Column("done_at", self.at),
            Column("last_error", self.error),
            Column("locked_by", self.plain(128)),
            Column("locked_at", self.at),
            Column("lease_until", self.at),
            Column("lease_epoch", self.number, nullable=False, server_default=zero),
        ]

    @abstractmethod
    def _indexes(self) -> list[Any]: ...


class _Sqlite(_Columns):
    is_position_nullable = True  # what is never NULL need not say so there
    number = small = large = at = Integer()
    binary = LargeBinary()
    long = error = Text()

    def text(self, length: int) -> TypeEngine[Any]:
        return Text()

    def _indexes(self) -> list[Any]:
        """Without those of expressions, which SQLAlchemy cannot see there."""
        return [
            self._index("event", "event_id", "handler_id", unique=True),
            self._index("pending", "available_at", "position", where="status IN (0, 2)"),
            self._index("ended", "status", "done_at", where="status IN (1, 3)"),
            self._index("dead", "position", where="status = 3"),
        ]


class _Postgres(_Columns):
    number, small, large = Integer(), SmallInteger(), BigInteger()
    binary = LargeBinary()
    at = DateTime(timezone=True)
    long = error = Text()
    content_type = 128

    def text(self, length: int) -> TypeEngine[Any]:
        return String(length, collation="C")

    def plain(self, length: int) -> TypeEngine[Any]:
        return String(length)

    def _facts(self) -> list[Any]:
        return [Column("name", Text, primary_key=True), Column("value", Text, nullable=False)]

    def _keys(self) -> list[Any]:
        return [
            Column("event_id", self.text(36), primary_key=True),
            Column("handler_id", self.text(255), primary_key=True, server_default=text("''")),
            Column("position", self.large, Identity(always=True), nullable=False),
        ]

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
    number, small, large = Integer(), SmallInteger(), BigInteger()
    binary = LONGBLOB()
    at = DATETIME(fsp=6)
    long = LONGTEXT()
    error = Text()

    def _columns(self) -> list[Any]:
        is_dead = "CASE status WHEN 1 THEN NULL WHEN 3 THEN 1 ELSE 0 END"
        order_key = "CASE WHEN status <> 1 THEN COALESCE(event_key, event_id) END"
        return [
            *super()._columns(),
            Column("is_dead", TINYINT(), Computed(is_dead, persisted=False)),
            Column("order_key", self.text(255), Computed(order_key, persisted=False)),
        ]

    def _indexes(self) -> list[Any]:
        return [
            self._index("event", "event_id", "handler_id", unique=True),
            self._index("order", "partition_no", "is_dead", "order_key", "position"),
            self._index("pending", "status", "available_at", "position"),
            self._index("ended", "status", "done_at"),
            self._index("dead", "status", "position"),
        ]
