"""The outbox's own transactions as transactional handlers get them: begun and ended around the handler, not by it."""

from __future__ import annotations

from collections.abc import Awaitable
from contextvars import ContextVar
from typing import Any, NoReturn

from aftercommit.errors import CommitRefused
from aftercommit.events.claims import Lease, QueryResult
from aftercommit.ports import EventStore, Runtime
from aftercommit.runtime.threads import run
from aftercommit.transactions.owned import OwnedTransaction

#: The session of the transactional handler that runs, with its outbox, and the thread or task that it belongs to.
_session: ContextVar[tuple[object, object, object] | None] = ContextVar("aftercommit_handlers_session", default=None)


def refuse_end(said: str) -> NoReturn:
    """To a handler that says how its transaction ends."""
    raise CommitRefused(
        f"{said} was called in a transactional handler, and its transaction ends together with the event",
        fix="return from the handler to commit, raise an error to roll back; for a part of the work use a savepoint",
    )


class GivenTransaction(OwnedTransaction):
    """What the handler does in it is committed with the mark of its event, after the handler."""

    def commit(self) -> NoReturn:
        refuse_end("tx.commit()")

    def rollback(self) -> NoReturn:
        refuse_end("tx.rollback()")


class HandlersTransaction(GivenTransaction):
    """In threads."""

    def execute(self, sql: str, parameters: Any = ()) -> QueryResult:
        """Run a statement of your own in this transaction."""
        return run(self._query(sql, parameters))


class AsyncHandlersTransaction(GivenTransaction):
    """Under asyncio."""

    def execute(self, sql: str, parameters: Any = ()) -> Awaitable[QueryResult]:
        """Run a statement of your own in this transaction."""
        return self._query(sql, parameters)


class OwnTx:
    """A transaction that the outbox begins on a connection of its own."""

    def __init__(self, transaction: OwnedTransaction, store: EventStore, runtime: Runtime) -> None:
        self._transaction = transaction
        self._store = store
        self._runtime = runtime

    @property
    def is_committed(self) -> bool:
        return self._transaction._ended == "committed"

    async def begin(self) -> OwnedTransaction:
        await self._transaction._begin()
        return self._transaction

    async def mark(self, lease: Lease, done_handlers: tuple[str, ...]) -> bool:
        return await self._store.settle_in(self._transaction._intact().opened, lease, done_handlers)

    async def commit(self) -> None:
        try:
            await self._runtime.shielded(self._transaction._commit())
        finally:
            self._transaction._leave_context()  # the shielded part ran in a context of its own

    async def undo(self, cause: BaseException | None) -> None:
        root = self._transaction._root
        try:
            if root is not None:
                await self._runtime.shielded(self._transaction._undo(root, cause))
        finally:
            self._transaction._leave_context()


def session_here(outbox: object, identity: object) -> Any:
    """The session that a transactional handler of this outbox has, if it is that which runs here."""
    found = _session.get()
    return found[1] if found is not None and found[0] is outbox and found[2] is identity else None


def set_session(outbox: object, session: object | None, identity: object) -> None:
    _session.set(None if session is None else (outbox, session, identity))
