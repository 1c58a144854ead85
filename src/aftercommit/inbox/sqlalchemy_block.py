"""A block inside the transaction of a SQLAlchemy session or connection, of either colour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from aftercommit.errors import UnsupportedTransaction
from aftercommit.inbox.blocks import ended, not_in_transaction
from aftercommit.inbox.store import InboxStore, Receipt
from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.transactions.sqlalchemy_table import is_autocommit, is_driver_autocommit

T = TypeVar("T")


class SqlAlchemyBlock:
    """Behind a savepoint of SQLAlchemy's own, so that a session knows what an error has undone."""

    def __init__(self, store: InboxStore, tx: Any) -> None:
        self.tx = tx
        self._store = store
        if isinstance(tx, scoped_session | async_scoped_session):
            tx = tx()
        if not isinstance(tx, Session | sa.Connection | AsyncSession | AsyncConnection):
            raise UnsupportedTransaction(
                f"tx is a {type(tx).__module__}.{type(tx).__qualname__}", fix="pass a session or a connection"
            )
        if isinstance(tx, AsyncSession | AsyncConnection) is not (store.colour is Colour.ASYNC):
            raise UnsupportedTransaction(
                f"tx is a {type(tx).__name__}, and the inbox is {store.colour.value}",
                fix="pass a Session or Connection to Inbox, an AsyncSession or AsyncConnection to AsyncInbox",
            )
        #: Of an async one: runs what blocks where it may wait.
        self._waits: Any = None
        self._handle: Any = tx
        if isinstance(tx, AsyncSession):
            self._handle, self._waits = tx.sync_session, tx.run_sync
        elif isinstance(tx, AsyncConnection):
            self._handle, self._waits = tx.sync_connection, tx.run_sync
        self._nested: Any = None

    async def _done(self, work: Callable[[], T]) -> T:
        return work() if self._waits is None else await self._waits(lambda _: work())

    def refuse(self) -> None:
        handle = self._handle
        if isinstance(handle, Session):
            is_open = handle.is_active and (handle.autobegin or handle.in_transaction())
            is_open = is_open and not is_autocommit(self._bind(handle))
        else:
            transaction = None if handle is None or handle.closed else handle.get_transaction()
            is_open = handle is not None and not handle.closed and not is_autocommit(handle)
            is_open = is_open and (transaction is None or transaction.is_active)
        if not is_open:
            raise not_in_transaction()

    async def enter(self, receipt: Receipt) -> bool:
        return await self._done(lambda: self._enter(receipt))

    def _enter(self, receipt: Receipt) -> bool:
        connection = self._connection()
        table = self._store.table
        if is_driver_autocommit(connection, table):
            raise not_in_transaction()
        self._begin(connection)
        self._nested = self._handle.begin_nested()
        self._nested.__enter__()
        try:
            tx = SqlAlchemyTx(self._connection(), self._store.dialect.marker)
            run(self._store.refuse_foreign(connection.engine.pool, tx))
            return run(self._store.record(tx, receipt))
        except BaseException as error:
            self._nested.__exit__(type(error), error, error.__traceback__)
            raise

    def _begin(self, connection: sa.Connection) -> None:
        """Some drivers begin before a row is changed, and not before a savepoint."""
        if "begin" not in self._store.sql:
            return
        raw = connection.connection.driver_connection
        if not self._store.is_sqlite or not getattr(raw, "in_transaction", False):
            connection.exec_driver_sql(self._store.sql["begin"].sql)

    def _connection(self) -> sa.Connection:
        if isinstance(self._handle, Session):
            return self._handle.connection(bind_arguments={"bind": self._bind(self._handle)})
        connection: sa.Connection = self._handle
        if not connection.in_transaction():
            connection.begin()
        return connection

    def _bind(self, session: Session) -> sa.Engine | sa.Connection:
        """Of several engines it is the one that leads to the kind of database that the inbox is on."""
        try:
            return session.get_bind()
        except UnboundExecutionError:
            binds = vars(session).get("binds") or vars(session).get("_Session__binds") or {}
            for bind in dict.fromkeys(binds.values()):
                if self._store.table.may_be(bind.engine.dialect.name, bind.engine.url.database):
                    found: sa.Engine | sa.Connection = bind
                    return found
            raise UnsupportedTransaction(
                f"the session is bound to no database, or to none that is {self._store.where}",
                fix="make it with the engine of the inbox's database: Session(engine)",
            ) from None

    async def leave(self, error: BaseException | None) -> None:
        await self._done(lambda: self._leave(error))

    def _leave(self, error: BaseException | None) -> None:
        was_ended = not self._nested.is_active
        # It is told of the error that we got, and raises its own where the flush fails.
        self._nested.__exit__(None if error is None else type(error), error, error and error.__traceback__)
        if was_ended and error is None:
            raise ended()


class SqlAlchemyTx:
    """Statements of ours on its connection. The driver below may write parameters in another way than the inbox's own,
    so they travel by name."""

    def __init__(self, connection: sa.Connection, marker: Callable[[int], str]) -> None:
        self._connection = connection
        self._marker = marker

    def _said(self, sql: str, parameters: Sequence[object]) -> sa.CursorResult[Any]:
        for number in range(1, len(parameters) + 1):
            sql = sql.replace(self._marker(number), f":p{number}", 1)
        values = {f"p{number}": value for number, value in enumerate(parameters, 1)}
        statement = sa.text(sql).execution_options(preserve_rowcount=True)
        return self._connection.execute(statement, values)

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return self._said(sql, parameters).rowcount

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        return sum([await self.execute(sql, each) for each in parameters])

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        return [tuple(row) for row in self._said(sql, parameters)]
