"""The table of what consumers have had, in whichever SQL database they work on."""

from __future__ import annotations

import os
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar
from weakref import WeakSet

from aftercommit.errors import (
    InvalidOption,
    OutboxError,
    SchemaMismatch,
    SchemaMissing,
    StoreBusy,
    StoreForbidden,
    UnsupportedTransaction,
)
from aftercommit.events.claims import RowKey
from aftercommit.events.redact import error_text
from aftercommit.ports import AdoptedTx, Capabilities, OpenTransaction, SqlTable, Tx
from aftercommit.stores.sql.execution import Fault, explained
from aftercommit.stores.sql.rows import to_micros
from aftercommit.stores.sql.statements import TableNames, statements_of
from aftercommit.stores.sql.store import SqlStore
from aftercommit.stores.sqlite.target import SqliteStore

T = TypeVar("T")

#: How many records one statement of a purge deletes: enough to get on, few enough to keep nobody waiting.
PURGED_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Receipt:
    """One message at one consumer."""

    consumer: str
    message_id: str


class InboxStore:
    """Records of messages. `record` runs in a transaction of somebody's; everything else in one of its own, committed
    when it returns."""

    def __init__(self, store: SqlStore, *, table: str, schema: str | None, create_schema: bool | None) -> None:
        """`store` leads to the database, with connections that it has anyway; its own tables are never touched."""
        self.is_sqlite = isinstance(store, SqliteStore)
        if self.is_sqlite and schema is not None:
            raise InvalidOption("schema was given, and SQLite has no schemas", fix="leave it out; use table=…")
        self.colour, self.where = store.colour, store.where
        self.capabilities: Capabilities = store.capabilities
        self.dialect = store.dialect
        self.names = TableNames(table, schema, store.dialect.quotes)
        self.sql = statements_of(store.dialect, self.names, "inbox")
        self.is_ready = False
        self._store = store
        self._creates = self.is_sqlite if create_schema is None else create_schema
        #: What tells this table from others of its name; known once it is ready.
        self._mark: str | None = None
        #: What was found to lead here: drivers' connections, pools of engines, stores of other outboxes.
        self._ours: WeakSet[Any] = WeakSet()

    @property
    def table(self) -> SqlTable:
        """What SQLAlchemy has to know of the database."""
        table = self._store.sql_table
        if table is None:
            raise UnsupportedTransaction(
                f"{self.where} is not written to through SQLAlchemy", fix="leave tx out, or pass a driver's connection"
            )
        return table

    # ------------------------------------------------------------ for transactions

    async def open(self) -> None:
        """Make sure that the table is there. Idempotent."""
        if self.is_ready:
            return
        if not self._creates and self._has_no_file():
            raise self._missing()  # a connection would make it
        try:
            mark = await self._explained(self._read_mark())
        except SchemaMissing:
            if not self._creates:
                raise
            await self.create_schema()
        else:
            self._become_ready(mark)

    def _has_no_file(self) -> bool:
        return isinstance(self._store, SqliteStore) and not os.path.exists(self._store.path)

    async def begin(self, isolation: str | None = None) -> OpenTransaction:
        return await self._store.begin(isolation)

    def outage(self, error: Exception) -> OutboxError | None:
        return self._store.outage(error)

    def adopt(self, handle: object) -> AdoptedTx | None:
        return self._store.adopt(handle)

    async def surviving(self, tx: Tx, keys: Sequence[RowKey]) -> Collection[RowKey]:
        """Nothing of it is delivered from memory."""
        return keys

    # ------------------------------------------------------------ the schema

    async def create_schema(self) -> None:
        """Make the table, if it is not there."""
        await self._explained(self._store.executor.transact(self._create))
        self._become_ready(await self._explained(self._read_mark()))

    def schema_sql(self) -> str:
        return f"{self.sql['create'].sql.rstrip(';')};\n"

    async def _create(self, tx: Tx) -> None:
        common = statements_of(self.dialect, self.names)

        async def optional(name: str) -> list[Any]:
            if name not in common:
                return []
            statement = common[name]
            return await tx.fetch(statement.sql, statement.bind(name=self.names.qualified(self.names.table)))

        await optional("schema_begin")
        if [row[0] for row in await optional("schema_lock")] == [0]:
            raise StoreBusy(f"another process is making {self.names.table}, for a minute now", fix="do this again")
        try:
            await self._create_in(tx)
        finally:
            with suppress(Exception):  # what has failed before is told; the lock goes with the session
                await optional("schema_unlock")

    async def _create_in(self, tx: Tx) -> None:
        try:
            for statement in self.sql["create"].sql.split(";\n"):
                await tx.execute(statement.strip(" \n;"))
        except Exception as error:
            if self.fault_of(error) not in (Fault.OTHER, Fault.ROW):
                raise
            raise self._foreign_table(error_text(error)) from error

    async def _read_mark(self) -> str | None:
        rows = await self._store.executor.fetch(self.sql["whose"].sql, writes=False)
        return str(rows[0][0]) if rows else None

    def _become_ready(self, mark: str | None) -> None:
        if mark is None:
            raise self._foreign_table("it has no mark")
        self._mark, self.is_ready = mark, True

    # ------------------------------------------------------------ records

    async def record(self, tx: Tx, receipt: Receipt) -> bool:
        """Whether it is the first time. In a transaction of the caller's, which it waits in for others at the same
        message."""
        statement = self.sql["record"]
        values = statement.bind(consumer=receipt.consumer, message_id=receipt.message_id)
        try:
            return await tx.execute(statement.sql, values) > 0
        except Exception as error:
            if not (self._creates and self.is_sqlite and self.fault_of(error) is Fault.MISSING_TABLE):
                self._explain(error)
                raise
        # Whoever has a transaction open here is the only one who can make the table; if it is rolled back, the table
        # goes with it.
        await self._create_in(tx)
        return await tx.execute(statement.sql, values) > 0

    async def seen(self, receipt: Receipt) -> bool:
        await self.open()
        statement = self.sql["seen"]
        values = statement.bind(consumer=receipt.consumer, message_id=receipt.message_id)
        return bool(await self._explained(self._store.executor.fetch(statement.sql, values, writes=False)))

    async def forget(self, receipt: Receipt) -> bool:
        await self.open()
        statement = self.sql["forget"]
        values = statement.bind(consumer=receipt.consumer, message_id=receipt.message_id)
        return await self._explained(self._store.executor.execute(statement.sql, values)) > 0

    async def purge(self, older_than: timedelta) -> int:
        await self.open()
        statement, total = self.sql["purge"], 0
        values = statement.bind(older_than=to_micros(older_than), limit=PURGED_AT_ONCE)
        while True:
            deleted = await self._explained(self._store.executor.execute(statement.sql, values))
            total += deleted
            if deleted < PURGED_AT_ONCE:
                return total

    # ------------------------------------------------------------ whose is it?

    def speaks_as(self, theirs: object) -> bool:
        """Whether our statements can be run in transactions of another store."""
        return isinstance(theirs, SqlStore) and theirs.dialect.marker is self.dialect.marker

    async def refuse_foreign(self, handle: Any, tx: Tx) -> None:
        """Raise when a transaction leads to another database than this one. Asked once for each connection or pool
        that can be remembered, under the savepoint of the block: a question that fails may take all else with it."""
        if handle in self._ours:
            return
        if self.is_sqlite:  # a file is told by its path
            is_own = self.table.is_own(await tx.fetch(self.table.whose_sql))
        else:
            try:
                is_own = [row[0] for row in await tx.fetch(self.sql["whose"].sql)] == [self._mark]
            except Exception as error:
                if self.fault_of(error) is not Fault.MISSING_TABLE:
                    self._explain(error)
                    raise
                is_own = False
        if not is_own:
            raise UnsupportedTransaction(
                f"tx leads to another database than the inbox, which is in {self.where} in the table "
                f"{self.names.table}: there its own records would not be found again",
                fix="use the inbox of that database; each database has its own",
            )
        with suppress(TypeError):  # some drivers' connections cannot be remembered
            self._ours.add(handle)

    # ------------------------------------------------------------ errors

    def fault_of(self, error: Exception) -> Fault:
        """Of the driver's, also where SQLAlchemy has wrapped it."""
        cause = getattr(error, "orig", None)
        return self._store.executor.fault_of(cause if isinstance(cause, Exception) else error)

    async def _explained(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        except Exception as error:
            self._explain(error)
            raise

    def _explain(self, error: Exception) -> None:
        """Raise our own word for what a user can mend, instead of the driver's."""
        if isinstance(error, OutboxError):
            return
        match fault := self.fault_of(error):
            case Fault.MISSING_TABLE:
                raise self._missing() from error
            case Fault.FORBIDDEN:
                raise StoreForbidden(
                    f"{self.where} forbids what the inbox does with {self.names.table}: {error_text(error)}",
                    fix=f"GRANT SELECT, INSERT, DELETE ON {self.names.table} to this user; create_schema() needs the "
                    "right to create tables",
                ) from error
        if (ours := explained(error, fault, self.names, self.where)) is not None:
            raise ours from error

    def _missing(self) -> SchemaMissing:
        return SchemaMissing(
            f"the table {self.names.table} of the inbox is not in {self.where}",
            fix="call inbox.create_schema() once, or run what inbox.schema_sql() says",
        )

    def _foreign_table(self, why: str) -> SchemaMismatch:
        return SchemaMismatch(
            f"{self.where} has a table {self.names.table} that inbox.create_schema() has not made: {why}",
            fix='give the inbox another table: Inbox(…, table="shop_inbox")',
        )

    # ------------------------------------------------------------ life

    async def close(self) -> None:
        await self._store.close()

    def abandon(self) -> None:
        self._store.abandon()
