"""Where SQLAlchemy meets one outbox: sessions and connections are recognised, paired with its database, and joined.
On a connection the INSERT runs at once, in the transaction that the caller has begun on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import nullcontext
from itertools import groupby
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.sql import ClauseElement

from aftercommit.errors import NotInTransaction, UnsupportedTransaction
from aftercommit.events.claims import NewEvent, RowKey
from aftercommit.ports import Callback, Colour, EventStore
from aftercommit.transactions.joined import UnitOfWork, Unseen
from aftercommit.transactions.pending import PendingWrite
from aftercommit.transactions.sqlalchemy_fate import Fate, follow, writes_of
from aftercommit.transactions.sqlalchemy_session import JoinedSession, before_insert, listen_to_sessions
from aftercommit.transactions.sqlalchemy_table import Rows

T = TypeVar("T")


class SqlAlchemyEdge(Rows):
    """Made when the first handle of SQLAlchemy is met."""

    def __init__(self, store: EventStore, target: object, wake: Callback, look_soon: Callback) -> None:
        super().__init__(store, target, wake, look_soon)
        listen_to_sessions()
        event.listen(self.kind, "before_insert", lambda _, *inserted: before_insert(self, *inserted))

    def join(self, handle: Any) -> UnitOfWork | None:
        """The unit of work behind what the caller gave as tx; None when it is nothing of SQLAlchemy's."""
        if isinstance(handle, scoped_session | async_scoped_session):
            handle = handle()
        if isinstance(handle, AsyncSession):
            handle = handle.sync_session
        if isinstance(handle, Session):
            bind = self._bind_of(handle)
            self.refuse_wrong(bind)
            return JoinedSession(self, handle, bind)
        return self._join_connection(handle) if isinstance(handle, AsyncConnection | Connection) else None

    def _join_connection(self, handle: AsyncConnection | Connection) -> JoinedConnection:
        is_async = isinstance(handle, AsyncConnection)
        if is_async is not (self._store.colour is Colour.ASYNC):
            raise UnsupportedTransaction(
                f"tx is a {type(handle).__name__}, and the outbox is {self._store.colour.value}",
                fix="pass a Connection to Outbox, an AsyncConnection to AsyncOutbox, or a session to either",
            )
        connection = handle if isinstance(handle, Connection) else handle.sync_connection
        if connection is None:
            raise NotInTransaction(
                "the AsyncConnection has not been started, or is closed",
                fix="async with engine.begin() as connection: await outbox.write(event, tx=connection)",
            )
        self.refuse_wrong(connection)
        return JoinedConnection(self, connection, None if isinstance(handle, Connection) else handle.run_sync)

    def _bind_of(self, session: Session) -> Engine | Connection:
        """Where the session will insert our rows. Of several engines it is the one that the outbox is on."""
        binds = vars(session).get("binds") or vars(session).get("_Session__binds") or {}
        if binds and self.kind not in binds:
            for bind in dict.fromkeys(binds.values()):
                if self.may_be(bind.engine):
                    session.bind_mapper(self.kind, bind)
                    break
        try:
            return session.get_bind(self.kind)
        except UnboundExecutionError as error:
            raise UnsupportedTransaction(
                f"the session is bound to no database, or to none that is {self._store.where}",
                fix="make it with the engine of the outbox's database: Session(engine)",
            ) from error


class JoinedConnection(Unseen, UnitOfWork):
    """One write() on a connection. SQLAlchemy tells of a commit before it happens and not after it, so rows are born
    free; the poller looks soon after, and at once when the connection goes back to its pool."""

    noun, instead = "a SQLAlchemy connection", "use a Session, or outbox.transaction()"

    def __init__(
        self, rows: Rows, connection: Connection, run_sync: Callable[..., Awaitable[Any]] | None = None
    ) -> None:
        """`run_sync` of an AsyncConnection lets what blocks wait on the loop."""
        transaction = None if connection.closed else connection.get_transaction()
        if connection.closed or (transaction is not None and not transaction.is_active):
            raise NotInTransaction(
                "the connection is closed, or its transaction has failed and must be rolled back",
                fix="with engine.begin() as connection: outbox.write(event, tx=connection)",
            )
        follow(connection.engine)
        self._rows = rows
        self._connection = connection
        self._run_sync = run_sync
        self.is_at_once = run_sync is None

    def current_connection(self) -> Connection:
        return self._connection

    def may_open_store(self) -> bool:
        return not self._connection.in_transaction()

    def track(self, pending: PendingWrite[Any]) -> None:
        writes_of(self._connection.info).append(pending)

    def add(self, rows: Sequence[NewEvent]) -> None:
        fate = self._begun()
        if self._rows.locks_keys:
            self._rows.lock_keys(self._connection, [row.event.key for row in rows])
        # Several statements are all or none under a savepoint.
        with nullcontext() if len(rows) == 1 else self._connection.begin_nested():
            self._insert([self._rows.columns_of(row) for row in rows])
        self._share(fate, rows)

    def add_unique(self, rows: Sequence[NewEvent]) -> Collection[RowKey]:
        fate = self._begun()
        refused = self._rows.insert_unique(self._connection, fate, rows)
        self._share(fate, [row for row in rows if RowKey(row.event.event_id, row.handler_id) not in refused])
        return refused

    def _begun(self) -> Fate:
        if not self._connection.in_transaction():
            self._connection.begin()  # which ends the fate of the transaction before it
        return self._rows.fate_at(self._connection)

    def _share(self, fate: Fate, rows: Sequence[NewEvent]) -> None:
        batch = self._rows.batch_of(rows)
        batch.on_committing.append(self._rows.look_soon)
        batch.on_commit.append(self._rows.wake)
        fate.batches[batch] = None

    def _insert(self, rows: list[dict[str, Any]]) -> None:
        """In order. A time that is an expression is part of the statement, so such a row has one of its own."""
        insert = self._rows.table.insert()
        for is_alone, group in groupby(rows, key=lambda row: isinstance(row["available_at"], ClauseElement)):
            if is_alone:
                for row in group:
                    self._connection.execute(insert.values(available_at=row.pop("available_at")), row)
            else:
                self._connection.execute(insert, list(group))

    def awaiting(self, work: Callable[[], T]) -> Awaitable[T]:
        if self._run_sync is None:
            raise UnsupportedTransaction(
                "a blocking SQLAlchemy connection would stop the event loop", fix="pass an AsyncConnection"
            )
        return self._run_sync(lambda _: work())
