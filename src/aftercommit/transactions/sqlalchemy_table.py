"""The outbox's table as SQLAlchemy inserts into it, and whether a session or connection leads to it at all."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from weakref import WeakSet

import sqlalchemy as sa
from sqlalchemy.dialects.mssql import DATETIME2
from sqlalchemy.dialects.mysql import DATETIME
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session, registry
from sqlalchemy.types import TypeDecorator, TypeEngine
from sqlalchemy.util import await_only
from sqlalchemy.util.concurrency import in_greenlet

from aftercommit.errors import NotInTransaction, SchemaMissing, UnsupportedTransaction
from aftercommit.events.claims import NewEvent, RowKey
from aftercommit.events.columns import GIVEN, WRITTEN, Kind
from aftercommit.ports import Callback, Colour, EventStore, SqlTable
from aftercommit.runtime.threads import run
from aftercommit.transactions.sqlalchemy_fate import KEY, Batch, Fate, fate_of
from aftercommit.transactions.sqlalchemy_uniques import insert_unique


class Rows:
    """What sessions and connections need of one outbox. Whether a pool leads to its database is asked once for each:
    addresses prove little (a pooler, a second name); the store's id proves it."""

    def __init__(self, store: EventStore, target: object, wake: Callback, look_soon: Callback) -> None:
        described = store.sql_table
        if described is None:
            raise UnsupportedTransaction(
                f"{store!r} is not written to through SQLAlchemy",
                fix="with outbox.transaction() as tx: outbox.write(event, tx=tx)",
            )
        self.wake = wake
        self.look_soon = look_soon
        #: Whether transactions that write the same key wait for each other.
        self.locks_keys = store.capabilities.serializes_keys
        self._store = store
        self._described = described
        self._family = described.databases[0]
        self.table = _event_table(described, self._family)
        self.kind = _mapped(self.table)
        engine = target.sync_engine if isinstance(target, AsyncEngine) else target
        self._engine = engine if isinstance(engine, sa.Engine) else None
        self._ours: WeakSet[sa.Pool] = WeakSet()
        #: The table was seen by somebody's transaction, so nobody has to make it.
        self._has_table = False

    def batch_of(self, rows: Sequence[NewEvent]) -> Batch:
        return Batch(self.table, {RowKey(row.event.event_id, row.handler_id): row.event for row in rows})

    def columns_of(self, row: NewEvent) -> dict[str, Any]:
        """The parameters of the store's INSERT as columns. A time that was given as it is becomes an expression; on SQL
        Server every time does: a row with an expression has a statement of its own, and there the rows of one
        statement get their positions in an order that nobody promises."""
        values: dict[str, Any] = self._described.values_of(row)
        scheduled, delay, owner = values.pop("available_at"), values.pop("delay"), values.pop("owner")
        values["created_at"] = 0
        if scheduled is not None:
            values["available_at"] = sa.literal(scheduled, _instant_type(self._family))
        elif self._family == "mssql":
            values["available_at"] = sa.literal(delay, self.table.c.available_at.type)
        else:
            values["available_at"] = delay
        values["locked_by"] = owner
        values["locked_at"] = None if owner is None else 0
        values["lease_until"] = values.pop("lock_timeout")
        values["lease_epoch"] = values.pop("epoch")
        return values

    def fate_at(self, connection: sa.Connection) -> Fate:
        """The fate that rows share which are inserted there now."""
        fate = fate_of(connection)
        if fate is None:
            self._check(connection)
            driver = self._store.adopt(connection.connection.driver_connection)
            fate = connection.info[KEY] = Fate(driver, self._described.fails_whole)
        else:
            fate.refuse_ended()
        return fate

    def lock_keys(self, connection: sa.Connection, keys: Sequence[str | None]) -> None:
        """Before their positions are drawn: others that write them wait until this transaction ends."""
        named = [key for key in keys if key is not None]
        if named:
            sql, parameters = self._described.lock_keys(named)
            connection.execute(sa.text(sql), parameters)

    def insert_unique(self, connection: sa.Connection, fate: Fate, rows: Sequence[NewEvent]) -> Collection[RowKey]:
        return insert_unique(self._store, connection, fate, rows)

    def may_open_store(self, session: Session, bind: sa.Engine | sa.Connection) -> bool:
        """Whether another connection can still make the table. Where writers exclude each other, the driver is asked
        whether this one has begun."""
        if not self._described.has_one_writer or not session.in_transaction():
            return True
        if bind.dialect.is_async or self._has_table:
            return False
        raw = session.connection(bind_arguments={"mapper": self.kind}).connection.driver_connection
        adopted = self._store.adopt(raw)
        return adopted is not None and not adopted.is_begun

    # ------------------------------------------------------------ is it a transaction, in this database?

    def may_be(self, engine: sa.Engine) -> bool:
        """False when it certainly leads elsewhere. Asks nobody."""
        return self._is_known(engine) or self._described.may_be(engine.dialect.name, engine.url.database)

    def refuse_wrong(self, bind: sa.Engine | sa.Connection) -> None:
        """As far as it can be told before a connection is asked."""
        if is_autocommit(bind):
            level = self._described.isolation_level
            raise NotInTransaction(
                "the isolation level is AUTOCOMMIT, so the event would be saved even if your own change fails",
                fix=f'engine.execution_options(isolation_level="{level}") for what writes events',
            )
        if not self.may_be(bind.engine):
            raise self._other(bind.engine)

    def _check(self, connection: sa.Connection) -> None:
        """Before the first INSERT of a transaction, where the driver and the database can be asked."""
        if is_autocommit(connection) or is_driver_autocommit(connection, self._described):
            raise NotInTransaction(
                "the driver's connection is in autocommit mode and has no transaction open, so the event would be "
                "saved even if your own change fails",
                fix="create_engine(…) without autocommit in connect_args and without a creator that turns it on",
            )
        if not self._is_known(connection.engine):
            if not self._described.knows_itself:
                self._open()
            if not self._described.knows_itself:
                raise UnsupportedTransaction(
                    "the AsyncOutbox has not been opened, so it cannot know whether this is its database, and a "
                    "blocking session cannot wait for it",
                    fix="await outbox.start() or await outbox.create_schema() before the session writes",
                )
            if not self._described.is_own(_answer_at(connection, self._described.whose_sql)):
                raise self._other(connection.engine)
            self._ours.add(connection.engine.pool)
        if self._described.has_one_writer and not self._store.is_ready and not self._has_table:
            if not _answer_at(connection, self._described.id_sql):
                raise SchemaMissing(
                    f"the table {self._described.names.table} is not in {self._store.where}, and while a transaction "
                    "is open nobody else can make it",
                    fix="start the outbox, or call its create_schema(), before the transaction",
                )
            self._has_table = True

    def _is_known(self, engine: sa.Engine) -> bool:
        return (self._engine is not None and engine.pool is self._engine.pool) or engine.pool in self._ours

    def _open(self) -> None:
        """Our own id is read when the store is opened, on a connection of its own."""
        if self._store.colour is Colour.BLOCKING:
            run(self._store.open())
        elif in_greenlet():
            await_only(self._store.open())

    def _other(self, engine: sa.Engine) -> UnsupportedTransaction:
        url = engine.url
        theirs = f"{engine.dialect.name} at {url.host or 'this machine'}/{url.database or ''}"
        return UnsupportedTransaction(
            f"tx is bound to {theirs}, and the outbox is in {self._store.where}: the event would not be part of your "
            "transaction",
            fix="use the outbox of that database; each database has its own",
        )


def _answer_at(connection: sa.Connection, question: str) -> Sequence[Sequence[object]]:
    """Under a savepoint: the caller's transaction goes on. Nothing where there is no such table, or nothing in it is
    ours to read."""
    try:
        with connection.begin_nested():
            return connection.exec_driver_sql(question).all()
    except DBAPIError:
        return ()


def is_autocommit(bind: sa.Engine | sa.Connection) -> bool:
    """As SQLAlchemy itself decides it: by the option, else by what the engine sets on every new connection."""
    option = bind.get_execution_options().get("isolation_level")
    level = option if option is not None else getattr(bind.dialect, "_on_connect_isolation_level", None)
    return level is not None and str(level).upper() == "AUTOCOMMIT"


def is_driver_autocommit(connection: sa.Connection, table: SqlTable) -> bool:
    """By what the driver says of itself, where it can be asked."""
    if connection.dialect.driver == "asyncpg":  # begins with the first statement, and so is not begun yet
        return bool(getattr(connection.connection.dbapi_connection, "autocommit", False))
    return table.is_autocommit(connection.connection.driver_connection)


# ---------------------------------------------------------------- the table: an INSERT as the store's own writes it


class EventRow:
    """A row on its way into the table. Each outbox maps a class of its own."""

    #: The rows of one write() share their fate.
    batch: Any
    key: Any
    event_key: str | None
    #: Nobody else can write its key until this transaction ends.
    is_locked = False


def _mapped(table: sa.Table) -> type[EventRow]:
    """A class of its own for a table.

    The ids are given, so the database is not asked for anything after the INSERT, and many rows are one statement.
    MySQL's drivers send rows with a clock in them one by one; MariaDB takes many at once where it returns positions.
    """
    kind: type[EventRow] = type("OutboxEventRow", (EventRow,), {})
    registry().map_imperatively(kind, table, eager_defaults=False)
    return kind


def _event_table(described: SqlTable, database: str) -> sa.Table:
    """The columns that an INSERT names."""
    names = described.names
    position = [sa.Column("position", sa.BigInteger, primary_key=True)] if database == "mysql" else []
    keys = () if position else ("event_id", "handler_id")
    # SQL Server has text of a code page and text of Unicode; others have one kind.
    text, long_text = (sa.Unicode(), sa.UnicodeText()) if database == "mssql" else (sa.String(), sa.Text())
    types: dict[Kind, TypeEngine[Any]] = {
        Kind.SMALL: sa.SmallInteger(),
        Kind.NUMBER: sa.Integer(),
        Kind.NAME: text,
        Kind.LABEL: text,
        Kind.TEXT: long_text,
        Kind.BYTES: AsHex() if database == "mysql" else sa.LargeBinary(),
        Kind.INSTANT: _instant_type(database),
    }
    from_now = FromNow(database, described.now)
    written = [
        sa.Column(
            column.name,
            types[column.kind] if column.value == GIVEN or column.kind is not Kind.INSTANT else from_now,
            primary_key=column.name in keys,
        )
        for column in WRITTEN
    ]
    return sa.Table(names.table, sa.MetaData(), *position, *written, schema=names.schema, quote=True, quote_schema=True)


def _instant_type(database: str) -> TypeEngine[Any]:
    """A point in time as the store gives it."""
    match database:
        case "sqlite":
            return sa.BigInteger()
        case "postgresql":
            return sa.DateTime(timezone=True)
        case "mssql":
            return DATETIME2(precision=6)  # type: ignore[no-untyped-call]
    return DATETIME(fsp=6)


class FromNow(TypeDecorator[Any]):
    """Bound as microseconds, stored as that much later than the database's clock; nothing stays nothing."""

    impl = sa.BigInteger
    cache_ok = True

    def __init__(self, database: str, now: str) -> None:
        super().__init__()
        self.database = database
        self.now = now

    def bind_expression(self, bindparam: Any) -> Any:
        micros: Any = sa.type_coerce(bindparam, sa.BigInteger())
        now: Any = sa.literal_column(self.now)
        if self.database == "postgresql":
            return now.op("+")(micros.op("*")(sa.literal_column("interval '1 microsecond'")))
        if self.database == "mysql":
            return sa.func.timestampadd(sa.literal_column("MICROSECOND"), micros, now)
        if self.database == "mssql":
            return _later(sa.cast(micros, sa.BigInteger()), now)
        return now.op("+")(micros)


def _later(micros: Any, now: Any) -> Any:
    """For SQL Server, whose DATEADD takes integers of four bytes: days, seconds and microseconds apart."""
    seconds = micros.op("/")(sa.literal_column("1000000"))
    parts = {
        "microsecond": micros.op("%")(sa.literal_column("1000000")),
        "second": seconds.op("%")(sa.literal_column("86400")),
        "day": seconds.op("/")(sa.literal_column("86400")),
    }
    for part, count in parts.items():
        now = sa.func.dateadd(sa.literal_column(part), count, now)
    return now


class AsHex(TypeDecorator[Any]):
    """Bytes as hexadecimal text, which no SQL mode and no character set of the caller's connection can change."""

    impl = sa.LargeBinary
    cache_ok = True

    def bind_expression(self, bindparam: Any) -> Any:
        return sa.func.unhex(sa.type_coerce(bindparam, _Hex()))


class _Hex(TypeDecorator[Any]):
    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        return None if value is None else value.hex()
