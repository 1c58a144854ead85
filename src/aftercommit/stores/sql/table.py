"""The event table for those who insert rows in their own way, and how a connection of theirs is recognised."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from weakref import WeakSet

from aftercommit.errors import UnsupportedTransaction
from aftercommit.events.claims import NewEvent
from aftercommit.ports import AdoptedTx, Tx
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.execution import Executor, Fault
from aftercommit.stores.sql.inserting import insert_values
from aftercommit.stores.sql.schema import Schema
from aftercommit.stores.sql.statements import Statements, TableNames

_SAVEPOINT: Final = "aftercommit_whose"


class OwnTable:
    """The table of one store. A database is told from others by the id that its schema table keeps: addresses prove
    little, since a pooler or a second name may lead to the same server."""

    def __init__(
        self, executor: Executor, dialect: Dialect, statements: Statements, names: TableNames, schema: Schema
    ) -> None:
        self.names = names
        self.databases = dialect.sqlalchemy
        self.now = dialect.now
        self.isolation_level = dialect.isolation_level
        self.has_one_writer = dialect.has_one_writer
        self.fails_whole = dialect.fails_whole
        self.id_sql = f"SELECT value FROM {names.qualified(names.side('schema'))} WHERE name = 'store_id'"  # noqa: S608
        self.whose_sql = self.id_sql
        self._dialect = dialect
        self._sql = statements
        self._schema = schema
        self._executor = executor
        self._ours: WeakSet[object] = WeakSet()

    # ------------------------------------------------------------ for libraries that insert by themselves

    def values_of(self, event: NewEvent) -> dict[str, object]:
        return insert_values(event, self._dialect.times)

    def creation(self) -> list[str]:
        return [step.sql for step in self._schema.steps()]

    def lock_keys(self, keys: Sequence[str]) -> tuple[str, dict[str, object]]:
        statement = self._sql["lock_keys"]
        sql = statement.sql
        for number, name in enumerate(statement.names, 1):
            sql = sql.replace(self._dialect.marker(number), f":{name}", 1)
        return sql, {"table": self.lock_name, "keys": list(keys)}

    @property
    def lock_name(self) -> str:
        """What the locks of keys are named by."""
        return self.names.qualified(self.names.table)

    def is_autocommit(self, connection: object) -> bool:
        adopted = self._executor.adopt(connection)
        return adopted is not None and not adopted.is_active and not adopted.is_begun

    @property
    def knows_itself(self) -> bool:
        return self._schema.is_ready

    def is_own(self, answer: Sequence[Sequence[object]]) -> bool:
        ours = self._schema.store_id
        return ours is not None and [row[0] for row in answer] == [ours]

    def may_be(self, database: str, name: str | None) -> bool:
        return database in self.databases

    # ------------------------------------------------------------ connections of the store's own drivers

    def has_met(self, handle: object) -> bool:
        """Whether `refuse_foreign` has let it pass before."""
        return _lasting(handle) in self._ours

    async def refuse_foreign(self, handle: object, tx: AdoptedTx, where: str) -> None:
        """Asked once for each connection that can be remembered. `where` is how this database is called."""
        if not self.is_own(await self._answer_of(tx)):
            raise UnsupportedTransaction(
                f"tx is a connection to {await self._name_of(tx)}, and the outbox is in {where}: the event would not "
                "be part of your transaction",
                fix="use the outbox of that database; each database has its own",
            )
        with suppress(TypeError):  # some drivers' connections cannot be remembered
            self._ours.add(_lasting(handle))

    async def _answer_of(self, tx: Tx) -> list[Any]:
        if not self.fails_whole:
            return await self._asked(tx)
        await tx.execute(f"SAVEPOINT {_SAVEPOINT}")
        try:
            return await self._asked(tx)
        finally:
            await tx.execute(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
            await tx.execute(f"RELEASE SAVEPOINT {_SAVEPOINT}")

    async def _asked(self, tx: Tx) -> list[Any]:
        try:
            return await tx.fetch(self.whose_sql)
        except Exception as error:
            if self._executor.fault_of(error) is Fault.MISSING_TABLE:
                return []
            raise

    async def _name_of(self, tx: Tx) -> str:
        return str((await tx.fetch(self._dialect.name_sql))[0][0])


def _lasting(handle: object) -> object:
    """What a pool of asyncpg lends is new each time; what it stands for stays."""
    return getattr(handle, "_con", None) or handle
