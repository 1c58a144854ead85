"""The async executor over sqlite3: every connection lives on a thread of its own, and a transaction is one hop."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from aftercommit.ports import Colour, Tx
from aftercommit.runtime.threads import run
from aftercommit.stores.sql.connection_thread import ConnectionThreads, ThreadTransaction
from aftercommit.stores.sql.execution import Fault
from aftercommit.stores.sql.single import SingleStatements
from aftercommit.stores.sqlite.connection import BlockingTx, SqliteConnection, fault_of, gate_of
from aftercommit.stores.sqlite.executor import in_transaction

T = TypeVar("T")


class AsyncSqliteExecutor(ConnectionThreads[SqliteConnection], SingleStatements):
    """Runs each transaction whole on a connection's own thread: one hop there and back, however many statements."""

    colour = Colour.ASYNC
    thread_name = "aftercommit-sqlite"

    def __init__(self, connect: Callable[[], sqlite3.Connection], path: str) -> None:
        super().__init__()
        self._connect = connect
        self._path = path
        self._gate = gate_of(path)

    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], *, writes: bool = True) -> T:
        return await self._run(lambda connection: run(in_transaction(connection, work, writes=writes)))

    async def begin(self) -> AsyncOpenSqliteTransaction:
        generation, thread = self._take()
        transaction = AsyncOpenSqliteTransaction(thread, lambda: self._give(generation, thread))
        await transaction.begin()
        return transaction

    def adopt(self, connection: object) -> BlockingTx | None:
        # The caller's own connection is used where the caller uses it: in this thread.
        return BlockingTx(connection) if isinstance(connection, sqlite3.Connection) else None

    def fault_of(self, error: Exception) -> Fault:
        return fault_of(error)

    def abandon(self) -> None:
        self._gate = gate_of(self._path)
        super().abandon()

    def _open(self) -> SqliteConnection:
        return self._gate.opened(self._connect)


class AsyncOpenSqliteTransaction(ThreadTransaction[SqliteConnection]):
    """A transaction that the user steers, on its connection's own thread."""

    async def savepoint(self, name: str) -> None:
        await self.execute(f'SAVEPOINT "{name}"')

    async def release(self, name: str) -> None:
        await self.execute(f'RELEASE "{name}"')

    async def rollback_to(self, name: str) -> None:
        await self.execute(f'ROLLBACK TO "{name}"')
        await self.execute(f'RELEASE "{name}"')
