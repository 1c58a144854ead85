"""Where SQLAlchemy meets one outbox: sessions and connections are recognised, paired with its database, and joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Engine, Table, event, text
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from aftercommit.errors import NotInTransaction, UnsupportedTransaction
from aftercommit.events.claims import NewEvent, RowKey
from aftercommit.ports import Colour, EventStore
from aftercommit.transactions.sqlalchemy_connection import JoinedConnection
from aftercommit.transactions.sqlalchemy_database import SameDatabase, is_autocommit, is_driver_autocommit
from aftercommit.transactions.sqlalchemy_fate import Batch
from aftercommit.transactions.sqlalchemy_session import JoinedSession, before_insert, listen_to_sessions
from aftercommit.transactions.sqlalchemy_table import EventRow, columns_of, event_table, mapped
from aftercommit.transactions.unit import UnitOfWork

_SCOPED: Final = (scoped_session, async_scoped_session)
_CONNECTIONS: Final = (AsyncConnection, Connection)


class SqlAlchemyEdge:
    """Made when the first handle of SQLAlchemy is met. Implements what sessions and connections need."""

    def __init__(
        self, store: EventStore, target: object, wake: Callable[[], None], look_soon: Callable[[], None]
    ) -> None:
        described = store.sql_table
        if described is None:
            raise UnsupportedTransaction(
                f"{store!r} is not written to through SQLAlchemy",
                fix="with outbox.transaction() as tx: outbox.write(event, tx=tx)",
            )
        self._described = described
        self._family = described.databases[0]
        self.table: Table = event_table(described.names, self._family, described.now)
        self.kind: type[EventRow] = mapped(self.table)
        self.wake = wake
        self.look_soon = look_soon
        self.locks_keys = store.capabilities.serializes_keys
        self._store = store
        self._database = SameDatabase(store, described, _sync_engine(target))
        listen_to_sessions()
        event.listen(self.kind, "before_insert", before_insert(self))

    def join(self, handle: Any) -> UnitOfWork | None:
        """The unit of work behind what the caller gave as tx; None when it is nothing of SQLAlchemy's."""
        if isinstance(handle, Session):
            return self._join_session(handle)
        if isinstance(handle, AsyncSession):
            return self._join_session(handle.sync_session)
        if isinstance(handle, _SCOPED):
            return self.join(handle())
        if isinstance(handle, _CONNECTIONS):
            return self._join_connection(handle)
        return None

    def _join_session(self, session: Session) -> JoinedSession:
        bind = self._bind_of(session)
        self._refuse_wrong(bind)
        return JoinedSession(self, session, bind)

    def _join_connection(self, handle: AsyncConnection | Connection) -> JoinedConnection:
        is_async = isinstance(handle, AsyncConnection)
        if is_async is not (self._store.colour is Colour.ASYNC):
            raise UnsupportedTransaction(
                f"tx is a {type(handle).__name__}, and the outbox is {self._store.colour.value}",
                fix="pass a Connection to Outbox, an AsyncConnection to AsyncOutbox, or a session to either",
            )
        if isinstance(handle, Connection):
            self._refuse_wrong(handle)
            return JoinedConnection(self, self.table, handle)
        connection = handle.sync_connection
        if connection is None:
            raise NotInTransaction(
                "the AsyncConnection has not been started, or is closed",
                fix="async with engine.begin() as connection: await outbox.write(event, tx=connection)",
            )
        self._refuse_wrong(connection)
        return JoinedConnection(self, self.table, connection, handle.run_sync)

    def _bind_of(self, session: Session) -> Engine | Connection:
        """Where the session will insert our rows. Of several engines it is the one that the outbox is on."""
        binds = vars(session).get("binds") or vars(session).get("_Session__binds") or {}
        if binds and self.kind not in binds:
            for bind in dict.fromkeys(binds.values()):
                if self._database.may_be(bind.engine):
                    session.bind_mapper(self.kind, bind)
                    break
        try:
            return session.get_bind(self.kind)
        except UnboundExecutionError as error:
            raise UnsupportedTransaction(
                f"the session is bound to no database, or to none that is {self._store.where}",
                fix="make it with the engine of the outbox's database: Session(engine)",
            ) from error

    def _refuse_wrong(self, bind: Engine | Connection) -> None:
        if is_autocommit(bind):
            level = self._described.isolation_level
            raise NotInTransaction(
                "the isolation level is AUTOCOMMIT, so the event would be saved even if your own change fails",
                fix=f'engine.execution_options(isolation_level="{level}") for what writes events',
            )
        self._database.refuse_other(bind.engine)

    # ------------------------------------------------------------ for sessions and connections

    def may_open_store(self, session: Session, bind: Engine | Connection) -> bool:
        """Where writers exclude each other, the driver is asked whether this one has begun."""
        if not self._described.has_one_writer or not session.in_transaction():
            return True
        if bind.dialect.is_async or self._database.has_table:
            return False
        raw = session.connection(bind_arguments={"mapper": self.kind}).connection.driver_connection
        adopted = self._store.adopt(raw)
        return adopted is not None and not adopted.is_begun

    def batch_of(self, rows: Sequence[NewEvent]) -> Batch:
        return Batch(self.table, {RowKey(row.event.event_id, row.handler_id): row.event for row in rows})

    def columns_of(self, row: NewEvent) -> dict[str, Any]:
        return columns_of(self._described.values_of(row), self._family)

    def lock_keys(self, connection: Connection, keys: Sequence[str | None]) -> None:
        """Before their positions are drawn: others that write them wait until this transaction ends."""
        named = [key for key in keys if key is not None]
        if named:
            sql, parameters = self._described.lock_keys(named)
            connection.execute(text(sql), parameters)

    def check(self, connection: Connection) -> None:
        """Before the first INSERT of a transaction, where the driver and the database can be asked."""
        if is_autocommit(connection) or is_driver_autocommit(connection, self._described):
            raise NotInTransaction(
                "the driver's connection is in autocommit mode and has no transaction open, so the event would be "
                "saved even if your own change fails",
                fix="create_engine(…) without autocommit in connect_args and without a creator that turns it on",
            )
        self._database.check(connection)


def _sync_engine(target: object) -> Engine | None:
    if isinstance(target, AsyncEngine):
        return target.sync_engine
    return target if isinstance(target, Engine) else None
