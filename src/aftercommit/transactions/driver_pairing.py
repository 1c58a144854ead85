"""Whether a connection of a driver leads to the outbox's own database."""

from __future__ import annotations

import os
from typing import Any, Final
from weakref import WeakSet

from aftercommit.errors import UnsupportedTransaction
from aftercommit.execution import Fault, Tx
from aftercommit.transactions.dbapi import DbapiTransaction

#: How a database is called by itself, for a message.
_NAMES: Final = {
    "PostgreSQL": "SELECT concat(current_database(), ' at ', coalesce(host(inet_server_addr()), 'this machine'))",
    "MySQL": "SELECT concat(coalesce(database(), 'no database'), ' at ', @@hostname)",
}

_SAVEPOINT: Final = "aftercommit_pairing"


class DriverPairing:
    """Asked once for each connection, in the caller's transaction, which goes on whatever the answer is."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._database: str = store.dialect.name
        self._ours: WeakSet[Any] = WeakSet()

    async def check(self, context: DbapiTransaction) -> None:
        """Refuse a connection to another database."""
        if self._database == "SQLite":
            await self._check_file(context.tx)
            return
        # What a pool of asyncpg lends is new each time; what it stands for stays.
        connection = getattr(context.current_connection(), "_con", None) or context.current_connection()
        if connection not in self._ours:
            await self._check_id(context.tx)
            self._ours.add(connection)

    async def _check_file(self, tx: Tx) -> None:
        """Each time: the driver's connections cannot be remembered, and the question costs less than a row."""
        files = {row[1]: row[2] for row in await tx.fetch("PRAGMA database_list")}
        theirs = files.get("main") or ""
        if not _is_same_file(theirs, self._store.path):
            raise self._other(repr(theirs) if theirs else "a database in memory")

    async def _check_id(self, tx: Tx) -> None:
        if not self._store.is_ready:
            await self._store.open()  # our own id is read on a connection of our own
        theirs = await (self._id_under_savepoint(tx) if self._database == "PostgreSQL" else self._id_at(tx))
        if theirs is None or theirs != self._store.store_id:
            raise self._other((await tx.fetch(_NAMES[self._database]))[0][0])

    async def _id_under_savepoint(self, tx: Tx) -> str | None:
        """Where a statement that fails takes the transaction with it."""
        await tx.execute(f"SAVEPOINT {_SAVEPOINT}")
        try:
            return await self._id_at(tx)
        finally:
            await tx.execute(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
            await tx.execute(f"RELEASE SAVEPOINT {_SAVEPOINT}")

    async def _id_at(self, tx: Tx) -> str | None:
        try:
            rows = await tx.fetch(self._store.store_id_sql)
        except Exception as error:
            if self._store.executor.fault_of(error) is Fault.MISSING_TABLE:
                return None
            raise
        return rows[0][0] if rows else None

    def _other(self, theirs: str) -> UnsupportedTransaction:
        return UnsupportedTransaction(
            f"tx is a connection to {theirs}, and the outbox is in {self._store.where}: the event would not be part "
            "of your transaction",
            fix="use the outbox of that database; each database has its own",
        )


def _is_same_file(path: str, ours: str) -> bool:
    return path == ours or (bool(path) and os.path.realpath(path) == os.path.realpath(ours))
