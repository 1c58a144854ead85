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
from aftercommit.execution import Colour
from aftercommit.transactions.sqlalchemy_connection import JoinedConnection
from aftercommit.transactions.sqlalchemy_fate import Batch
from aftercommit.transactions.sqlalchemy_pairing import Pairing, is_autocommit, is_driver_autocommit
from aftercommit.transactions.sqlalchemy_session import JoinedSession, before_insert, listen_to_sessions
from aftercommit.transactions.sqlalchemy_table import EventRow, columns_of, event_table, mapped
from aftercommit.transactions.unit import UnitOfWork

#: The databases of both sides, as SQLAlchemy calls them.
_DATABASES: Final = {"SQLite": "sqlite", "PostgreSQL": "postgresql", "MySQL": "mysql"}

#: As the store's own statement does it, for whichever driver.
_LOCK_KEYS: Final = text(
    "SELECT pg_advisory_xact_lock(lock) FROM ("
    "SELECT DISTINCT hashtextextended(CAST(:table AS text) || ' ' || key, 0) AS lock "
    "FROM unnest(CAST(:keys AS text[])) AS key ORDER BY lock) AS locks"
)

_SCOPED: Final = (scoped_session, async_scoped_session)
_CONNECTIONS: Final = (AsyncConnection, Connection)


class SqlAlchemyEdge:
    """Made when the first handle of SQLAlchemy is met. Implements what sessions and connections need."""

    def __init__(self, store: Any, target: object, wake: Callable[[], None], look_soon: Callable[[], None]) -> None:
        dialect = getattr(store, "dialect", None)
        if dialect is None or dialect.name not in _DATABASES:
            raise UnsupportedTransaction(
                f"{store!r} is not written to through SQLAlchemy",
                fix="with outbox.transaction() as tx: outbox.write(event, tx=tx)",
            )
        self.database = _DATABASES[dialect.name]
        self.table: Table = event_table(store.names, self.database, dialect.now)
        self.kind: type[EventRow] = mapped(self.table)
        self.wake = wake
        self.look_soon = look_soon
        self.locks_keys: bool = store.serializes_keys
        self._store = store
        self._pairing = Pairing(store, _sync_engine(target), self.database)
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
                if self._pairing.may_be(bind.engine):
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
            level = "SERIALIZABLE" if self.database == "sqlite" else "READ COMMITTED"
            raise NotInTransaction(
                "the isolation level is AUTOCOMMIT, so the event would be saved even if your own change fails",
                fix=f'engine.execution_options(isolation_level="{level}") for what writes events',
            )
        self._pairing.refuse_other(bind.engine)

    # ------------------------------------------------------------ for sessions and connections

    @property
    def has_table(self) -> bool:
        return self._pairing.has_table

    def batch_of(self, rows: Sequence[NewEvent]) -> Batch:
        return Batch(self.table, {RowKey(row.event.event_id, row.handler_id): row.event for row in rows})

    def columns_of(self, row: NewEvent) -> dict[str, Any]:
        return columns_of(self._store.values_of(row), self.database)

    def lock_keys(self, connection: Connection, keys: Sequence[str | None]) -> None:
        """Before their positions are drawn: others that write them wait until this transaction ends."""
        named = [key for key in keys if key is not None]
        if named:
            connection.execute(_LOCK_KEYS, {"table": self._store.lock_name, "keys": named})

    def check(self, connection: Connection) -> None:
        """Before the first INSERT of a transaction, where the driver and the database can be asked."""
        if is_autocommit(connection) or is_driver_autocommit(connection, self._store.executor):
            raise NotInTransaction(
                "the driver's connection is in autocommit mode and has no transaction open, so the event would be "
                "saved even if your own change fails",
                fix="create_engine(…) without autocommit in connect_args and without a creator that turns it on",
            )
        self._pairing.check(connection)


def _sync_engine(target: object) -> Engine | None:
    if isinstance(target, AsyncEngine):
        return target.sync_engine
    return target if isinstance(target, Engine) else None
