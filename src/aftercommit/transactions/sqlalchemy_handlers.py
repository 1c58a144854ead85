"""A SQLAlchemy session of either kind as transactional handlers get it, on a connection of the outbox's engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, SessionTransaction

from aftercommit.errors import TransactionEnded
from aftercommit.events.claims import Lease
from aftercommit.events.log import Log
from aftercommit.events.redact import error_text
from aftercommit.ports import EventStore, Runtime
from aftercommit.runtime.threads import run
from aftercommit.transactions.of_handlers import refuse_end, set_session

log = Log("aftercommit.transactions")


class SessionTx:
    """A session for one call of a handler. The mark goes over its connection, behind what it flushes."""

    def __init__(
        self, outbox: object, store: EventStore, runtime: Runtime, kind: type[Session] | type[AsyncSession], engine: Any
    ) -> None:
        """`kind` is what the handler's annotation names, which may be a class of its own."""
        self._outbox, self._store, self._runtime = outbox, store, runtime
        self._kind, self._engine = kind, engine
        self._session: Any = None
        self._is_ending = False
        #: The handler has rolled back what it did, or an error did.
        self._was_ended = False
        self.is_committed = False

    async def begin(self) -> Session | AsyncSession:
        self._session = self._kind(self._engine)
        sync = self._sync
        event.listen(sync, "before_commit", self._before_commit)
        event.listen(sync, "after_commit", self._after_commit)
        event.listen(sync, "after_transaction_end", self._after_end)
        set_session(self._outbox, self._session, self._runtime.identity())
        session: Session | AsyncSession = self._session
        return session

    @property
    def _sync(self) -> Session:
        session: Session = self._session.sync_session if isinstance(self._session, AsyncSession) else self._session
        return session

    def _before_commit(self, session: Session) -> None:
        if not self._is_ending and not session.in_nested_transaction():
            refuse_end("session.commit()")

    def _after_commit(self, session: Session) -> None:
        if self._is_ending and not session.in_nested_transaction():
            self.is_committed = True

    def _after_end(self, _: Session, transaction: SessionTransaction) -> None:
        self._was_ended = self._was_ended or transaction.parent is None

    async def mark(self, lease: Lease, done_handlers: tuple[str, ...]) -> bool:
        if self._was_ended:
            raise TransactionEnded(
                "the handler has rolled its session back, and with it what it had done before",
                fix="raise an error, or use session.begin_nested() for what may fail",
            )

        def work(session: Session) -> bool:
            session.flush()
            connection = session.connection()
            return run(self._store.settle_in(SessionsConnection(connection), lease, done_handlers))

        if isinstance(self._session, AsyncSession):
            return await self._session.run_sync(work)
        return work(self._session)

    async def commit(self) -> None:
        self._is_ending = True
        self._leave()
        if isinstance(self._session, AsyncSession):
            await self._runtime.shielded(self._commit_async(self._session))
        else:
            self._session.commit()
            self._session.close()

    async def _commit_async(self, session: AsyncSession) -> None:
        await session.commit()
        await session.close()

    async def undo(self, cause: BaseException | None) -> None:
        self._is_ending = True
        self._leave()
        try:
            if isinstance(self._session, AsyncSession):
                await self._runtime.shielded(self._undo_async(self._session))
            elif self._session is not None:
                self._session.rollback()  # or what was written and is not flushed would be missed aloud
                self._session.close()
        except Exception as error:
            log.warning("the rollback failed; the connection is given up: %s", error_text(error))

    async def _undo_async(self, session: AsyncSession) -> None:
        await session.rollback()
        await session.close()

    def _leave(self) -> None:
        set_session(self._outbox, None, None)


class SessionsConnection:
    """A Tx over the connection of a session. Under asyncio it is used where SQLAlchemy lets what blocks wait."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _run(self, sql: str, parameters: Any) -> Any:
        return self._connection.exec_driver_sql(sql, parameters)

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return int(self._run(sql, tuple(parameters)).rowcount)

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        return int(self._run(sql, [tuple(row) for row in parameters]).rowcount)

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        return list(self._run(sql, tuple(parameters)).fetchall())
