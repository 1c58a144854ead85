"""The tables themselves: created on request, upgraded by numbered migrations, checked before use."""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from aftercommit.errors import SchemaMismatch, SchemaMissing
from aftercommit.ports import Executor, Tx
from aftercommit.rules.partitions import HASH_NAME, PARTITION_COUNT
from aftercommit.stores.identifiers import TableNames
from aftercommit.stores.statements import Statements

#: The schema that this release writes; equal to the number of the last migration.
VERSION: Final = 1


class Schema:
    """The schema of one outbox. `ensure` looks once and remembers."""

    def __init__(self, executor: Executor, statements: Statements, names: TableNames, *, creates: bool) -> None:
        self._executor = executor
        self._sql = statements
        self._names = names
        self._creates = creates
        self.is_ready = False

    async def ensure(self) -> None:
        """Create or upgrade when asked to on construction; else only check."""
        if self.is_ready:
            return
        if self._creates:
            await self.create()
        else:
            await self._check()
        self.is_ready = True

    async def create(self) -> None:
        """Bring the tables to this release's version, under the database's write lock."""
        await self._executor.transact(self._migrate)
        await self._check()
        self.is_ready = True

    async def _migrate(self, tx: Tx) -> None:
        current = int((await self._settings(tx)).get("version", 0))
        for number, statements in self._sql.migrations():
            if number > current:
                for statement in statements:
                    await tx.execute(statement)
        if current < VERSION:
            await self._set(tx, "version", str(VERSION))
            await self._set(tx, "oldest_code", str(VERSION))
        if current == 0:
            await self._set(tx, "store_id", str(uuid4()))
            await self._set(tx, "partitions", str(PARTITION_COUNT))
            await self._set(tx, "hash", HASH_NAME)

    async def _check(self) -> None:
        settings = await self._executor.transact(self._settings, writes=False)
        if not settings:
            raise self.missing()
        version, oldest_code = int(settings["version"]), int(settings["oldest_code"])
        if version < VERSION:
            raise SchemaMismatch(
                f"the schema of {self._names.table} is at version {version}, this release needs {VERSION}",
                fix="call outbox.create_schema(), which upgrades it",
            )
        if oldest_code > VERSION:
            raise SchemaMismatch(
                f"the schema of {self._names.table} is at version {version} and serves releases from {oldest_code} on; "
                f"this one is {VERSION}",
                fix="upgrade aftercommit in this process",
            )
        ours = (str(PARTITION_COUNT), HASH_NAME)
        if (settings["partitions"], settings["hash"]) != ours:
            raise SchemaMismatch(
                f"{self._names.table} was made with {settings['partitions']} partitions by {settings['hash']}, "
                f"this release uses {ours[0]} by {ours[1]}",
                fix="use the release that the table was made with",
            )

    async def _settings(self, tx: Tx) -> dict[str, str]:
        """Everything the schema table knows; empty when there is none."""
        exists = self._sql["has_table"]
        name = self._names.side("schema")
        if not (await tx.fetch(exists.sql, exists.bind(name=name)))[0][0]:
            return {}
        return {row[0]: row[1] for row in await tx.fetch(self._sql["settings"].sql)}

    async def _set(self, tx: Tx, name: str, value: str) -> None:
        statement = self._sql["set_setting"]
        await tx.execute(statement.sql, statement.bind(name=name, value=value))

    def explain(self, error: Exception) -> None:
        """Raise our word for a missing table instead of the driver's."""
        if "no such table" in str(error):
            raise self.missing() from error

    def missing(self) -> SchemaMissing:
        return SchemaMissing(
            f"the table {self._names.table} is not in this database",
            fix="call outbox.create_schema() once, before write()",
        )
