"""The outbox's tables as they are in the database, for those who compare it with their MetaData: Alembic above all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Final

import sqlalchemy as sa
from sqlalchemy.dialects.mysql import DATETIME, LONGBLOB, LONGTEXT, TINYINT
from sqlalchemy.types import TypeEngine

from aftercommit.errors import UnsupportedTransaction
from aftercommit.events.columns import COLUMNS, Column, Kind
from aftercommit.ports import EventStore, SqlNames, SqlTable

#: The mark of the outbox's tables among others of a MetaData; at the table of events it says what the tables keep.
ATTACHED: Final = "aftercommit"

#: What is beside the table of events.
_SIDES: Final[Mapping[str, tuple[Column, ...]]] = {
    "schema": (Column("name", Kind.LABEL, 64), Column("value", Kind.LABEL, 255)),
    "instance": (
        Column("id", Kind.NAME, 128),
        Column("host", Kind.LABEL, 255),
        Column("pid", Kind.NUMBER),
        Column("started_at", Kind.INSTANT),
        Column("heartbeat_at", Kind.INSTANT),
        Column("status", Kind.SMALL, default=0),
    ),
    "partition": (
        Column("partition_no", Kind.SMALL),
        Column("owner", Kind.NAME, 128, is_nullable=True),
        Column("epoch", Kind.NUMBER, default=0),
        Column("expires_at", Kind.INSTANT, is_nullable=True),
    ),
    "failure": (
        Column("number", Kind.LARGE),
        Column("event_id", Kind.NAME, 36),
        Column("handler_id", Kind.NAME, 255, default=""),
        Column("failed_at", Kind.INSTANT),
        Column("attempt", Kind.NUMBER),
        Column("handler", Kind.LABEL, 255),
        Column("instance", Kind.LABEL, 128),
        Column("error_class", Kind.LABEL, 255),
        Column("message", Kind.NOTE),
        Column("traceback", Kind.NOTE, is_nullable=True),
    ),
    "pause": (
        Column("kind", Kind.NAME, 16),
        Column("name", Kind.NAME, 255),
        Column("reason", Kind.NOTE, is_nullable=True),
        Column("paused_by", Kind.LABEL, 128),
        Column("paused_at", Kind.INSTANT),
        Column("paused_until", Kind.INSTANT, is_nullable=True),
    ),
}

#: Their keys, where it is not the first column.
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {"pause": ("kind", "name")}

#: What the database counts up by itself.
_ISSUED: Final = ("position", "number")


def attach(store: EventStore, metadata: sa.MetaData) -> sa.Table:
    """Describe the tables in the caller's metadata, once; the table of events."""
    kinds: dict[str, type[_Columns]] = {"sqlite": _Sqlite, "postgresql": _Postgres, "mysql": _Mysql}
    table = store.sql_table
    kind = None if table is None else kinds.get(table.databases[0])
    if table is None or kind is None:
        raise UnsupportedTransaction(
            f"{store!r} cannot be described to SQLAlchemy", fix="leave its tables out of Alembic with include_name"
        )
    names = table.names
    known = metadata.tables.get(names.table if names.schema is None else f"{names.schema}.{names.table}")
    if known is not None:
        return known
    kept = {"ordered": store.order.ordered, "on_dead": store.order.on_dead}
    events = kind(names).attach(metadata, kept)
    sa.event.listen(metadata, "after_create", partial(_made_right, table, events))
    return events


def _made_right(own: SqlTable, events: sa.Table, _: sa.MetaData, connection: sa.Connection, **made: Any) -> None:
    """Behind `create_all()`: what SQLAlchemy makes of a description is not all that the outbox needs, so tables that
    it has made this very moment give way to the outbox's own."""
    if events in made["tables"] and connection.dialect.name in own.databases:
        names = {events.name, *map(own.names.side, _SIDES)}
        for table in (each for each in made["tables"] if ATTACHED in each.info and each.name in names):
            connection.execute(sa.schema.DropTable(table))
        for statement in own.creation():
            connection.exec_driver_sql(statement)


class _Columns(ABC):
    """The columns that every database has, each in its own types."""

    types: ClassVar[Mapping[Kind, TypeEngine[Any]]]
    #: The primary key of the table of events.
    keys: tuple[str, ...] = ("position",)
    #: Whether a key that is a number may be NULL, by its declaration.
    is_number_nullable = False

    def __init__(self, names: SqlNames) -> None:
        self._names = names

    def attach(self, metadata: sa.MetaData, kept: Mapping[str, object]) -> sa.Table:
        schema = self._names.schema
        for noun, columns in _SIDES.items():
            keys = _KEYS.get(noun, (columns[0].name,))
            side: list[Any] = [self._column(column, keys=keys) for column in columns]
            if noun == "failure":
                side.append(self._index("failed", "event_id", "handler_id", "number"))
            sa.Table(self._names.side(noun), metadata, *side, schema=schema, info={ATTACHED: {}})
        events = [*self._events(), *self._indexes()]
        return sa.Table(self._names.table, metadata, *events, schema=schema, info={ATTACHED: kept})

    def sql_type(self, kind: Kind, length: int | None = None) -> TypeEngine[Any]:
        return self.types[kind] if length is None else sa.String(length)

    def _index(self, name: str, *columns: Any, unique: bool = False, where: str | None = None) -> sa.Index:
        condition = None if where is None else sa.text(where)
        name = f"{self._names.table}_{name}"
        return sa.Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)

    def _events(self) -> list[Any]:
        return [self._column(column, keys=self.keys) for column in COLUMNS]

    def _column(self, column: Column, *more: Any, keys: tuple[str, ...]) -> sa.Column[Any]:
        is_key = column.name in keys
        return sa.Column(
            column.name,
            self.sql_type(column.kind, column.length),
            *more,
            primary_key=is_key,
            nullable=self.is_number_nullable if is_key and column.length is None else column.is_nullable,
            autoincrement="auto" if column.name in _ISSUED else False,
            server_default=None if column.default is None else sa.text(repr(column.default)),
        )

    @abstractmethod
    def _indexes(self) -> list[Any]: ...


_USUAL: Final[Mapping[Kind, TypeEngine[Any]]] = {
    Kind.SMALL: sa.SmallInteger(),
    Kind.NUMBER: sa.Integer(),
    Kind.LARGE: sa.BigInteger(),
    Kind.NOTE: sa.Text(),
}


class _Sqlite(_Columns):
    is_number_nullable = True  # what is never NULL need not say so there
    types: ClassVar[Mapping[Kind, TypeEngine[Any]]] = {
        **dict.fromkeys((Kind.SMALL, Kind.NUMBER, Kind.LARGE, Kind.INSTANT), sa.Integer()),
        **dict.fromkeys((Kind.NAME, Kind.LABEL, Kind.NOTE, Kind.TEXT), sa.Text()),
        Kind.BYTES: sa.LargeBinary(),
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
            self._index("unique", "unique_key", unique=True, where="unique_key IS NOT NULL AND status IN (0, 2)"),
        ]


class _Postgres(_Columns):
    keys = ("event_id", "handler_id")
    types: ClassVar[Mapping[Kind, TypeEngine[Any]]] = {
        **_USUAL,
        Kind.TEXT: sa.Text(),
        Kind.BYTES: sa.LargeBinary(),
        Kind.INSTANT: sa.DateTime(timezone=True),
    }

    def sql_type(self, kind: Kind, length: int | None = None) -> TypeEngine[Any]:
        return sa.String(length, collation="C") if kind is Kind.NAME else super().sql_type(kind, length)

    def _column(self, column: Column, *more: Any, keys: tuple[str, ...]) -> sa.Column[Any]:
        if column.name in _ISSUED:
            more = (sa.Identity(always=True),)
        if column.name == "content_type":  # as long as it may be, and not longer
            column = column._replace(length=128)
        if column in _SIDES["schema"]:
            column = column._replace(kind=Kind.TEXT, length=None)
        return super()._column(column, *more, keys=keys)

    def _indexes(self) -> list[Any]:
        ended = sa.func.coalesce(sa.text("done_at"), sa.text("created_at"))
        key = sa.func.coalesce(sa.text("event_key"), sa.text("event_id"))
        return [
            self._index("pending", "available_at", "position", where="status NOT IN (1, 3)"),
            self._index("ended", "status", ended, where="status NOT IN (0, 2)"),
            self._index("dead", "position", where="status >= 3"),
            self._index("order", "partition_no", key, "position", where="status NOT IN (1, 3)"),
            self._index("blocking", "partition_no", key, "position", where="status >= 3"),
            self._index("unique", "unique_key", unique=True, where="unique_key IS NOT NULL AND status NOT IN (1, 3)"),
        ]


class _Mysql(_Columns):
    types: ClassVar[Mapping[Kind, TypeEngine[Any]]] = {
        **_USUAL,
        Kind.TEXT: LONGTEXT(),
        Kind.BYTES: LONGBLOB(),
        Kind.INSTANT: DATETIME(fsp=6),
    }

    def _events(self) -> list[Any]:
        is_dead = "CASE status WHEN 1 THEN NULL WHEN 3 THEN 1 ELSE 0 END"
        order_key = "CASE WHEN status <> 1 THEN COALESCE(event_key, event_id) END"
        unique = "CASE WHEN status IN (0, 2) THEN unique_key END"
        return [
            *super()._events(),
            sa.Column("is_dead", TINYINT(), sa.Computed(is_dead, persisted=False)),
            sa.Column("order_key", self.sql_type(Kind.NAME, 255), sa.Computed(order_key, persisted=False)),
            sa.Column("unique_pending", self.sql_type(Kind.NAME, 255), sa.Computed(unique, persisted=False)),
        ]

    def _indexes(self) -> list[Any]:
        return [
            self._index("event", "event_id", "handler_id", unique=True),
            self._index("order", "partition_no", "is_dead", "order_key", "position"),
            self._index("pending", "status", "available_at", "position"),
            self._index("ended", "status", "done_at"),
            self._index("dead", "status", "position"),
            self._index("unique", "unique_pending", unique=True),
        ]
