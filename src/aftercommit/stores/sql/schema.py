"""The tables themselves: created on request, upgraded by numbered migrations, checked before use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import takewhile
from typing import Any, Final
from uuid import uuid4

from aftercommit.errors import InvalidOption, OutboxError, SchemaMismatch, StoreBusy
from aftercommit.events.claims import HASH_NAME, PARTITION_COUNT
from aftercommit.events.order import UNORDERED, Order
from aftercommit.ports import SchemaStatus, Tx
from aftercommit.stores.sql.execution import Executor, missing
from aftercommit.stores.sql.inventory import Inventory, take_inventory
from aftercommit.stores.sql.statements import Migration, Statements, TableNames
from aftercommit.stores.sql.steps import Step, facts_of, lasting_facts, steps_between

#: Without these nobody knows what the tables are. Those of the order came later, and have a default.
_FACTS: Final = ("version", "oldest_code", "store_id", "partitions", "hash")


def kept_order(settings: Mapping[str, str]) -> Order:
    """What the schema table says of it."""
    return Order(settings.get("ordered") == "1", settings.get("on_dead", UNORDERED.on_dead))


class Schema:
    """The schema of one outbox. `ensure` looks once and remembers."""

    def __init__(
        self, executor: Executor, statements: Statements, names: TableNames, *, creates: bool, order: Order = UNORDERED
    ) -> None:
        self._executor = executor
        self._sql = statements
        self._names = names
        self._creates = creates
        self._order = order
        self._migrations = statements.migrations()
        #: The schema that this release writes: the number of the last migration.
        self.version = self._migrations[-1].number
        self.is_ready = False
        self.store_id: str | None = None

    async def ensure(self) -> None:
        """Create or upgrade when asked to on construction; else only check."""
        if self.is_ready:
            return
        settings = await self._executor.transact(self._fit_settings, writes=False)
        if self._creates and self._is_unfinished(settings):
            await self._upgrade()
            settings = await self._executor.transact(self._fit_settings, writes=False)
        await self._check(settings)
        self.is_ready = True

    async def examined(self) -> int:
        """The version of the tables, which fit. Raises what `ensure` would where it makes nothing."""
        settings = await self._executor.transact(self._fit_settings, writes=False)
        await self._check(settings)
        return _version_of(settings)

    async def create(self) -> None:
        """Bring the tables to this release's version, one process at a time, and to the order that is wanted here."""
        await self._upgrade()
        if kept_order(await self._executor.transact(self._settings, writes=False)) != self._order:
            await self._executor.transact(self._reorder)
        await self._check(await self._executor.transact(self._fit_settings, writes=False))
        self.is_ready = True

    async def status(self) -> SchemaStatus:
        """What is there, and whether `ensure` would take it as it is."""
        settings = await self._executor.transact(self._fit_settings, writes=False)
        inventory = await self._executor.transact(self._inventory, writes=False)
        version = _version_of(settings)
        gaps = inventory.missing(version or self.version) if inventory.tables else ()
        facts = [f"fact {name}" for name in _absent(settings)] if inventory.tables else ()
        return SchemaStatus(version, self.version, (*gaps, *facts), self._problem(settings, inventory))

    def _is_unfinished(self, settings: Mapping[str, str]) -> bool:
        return _version_of(settings) < self.version or bool(_absent(settings))

    async def drop(self) -> None:
        """Remove the tables and all that is in them: for tables that were made to try something."""
        for name in self._names.all:
            await self._executor.execute(f"DROP TABLE IF EXISTS {self._names.qualified(name)}")
        self.is_ready = False

    async def _upgrade(self) -> None:
        while self._is_unfinished(settings := await self._executor.transact(self._settings, writes=False)):
            await self._executor.transact(partial(self._migrate, is_new=not settings))

    async def _reorder(self, tx: Tx) -> None:
        await self._lock(tx, is_new=False)
        try:
            await self._set_all(tx, facts_of(self._order))
        finally:
            await self._optional(tx, "schema_unlock")

    async def _migrate(self, tx: Tx, *, is_new: bool) -> None:
        """One stretch of migrations. The lock is held by this transaction; what runs online does so beside it, and
        would wait for ever for a change of the table that this one has made."""
        await self._lock(tx, is_new=is_new)
        try:
            settings = await self._settings(tx)
            current = _version_of(settings)
            inventory = await self._inventory(tx) if current == 0 or _absent(settings) else None
            if inventory is not None and inventory.tables and await self._mended(tx, settings, inventory):
                return
            stretch = self._stretch(current)
            try:
                for migration in stretch:
                    await self._apply(tx, migration, is_new=current == 0)
            except Exception as error:
                if inventory is not None and inventory.tables:
                    raise self._foreign(inventory) from error
                raise
            if inventory is not None and inventory.tables:  # where a table that is there is passed over
                made = await self._inventory(tx)
                if made.missing(stretch[-1].number):
                    raise self._foreign(made)
            if stretch:
                facts = _new_facts(self._order) if current == 0 else facts_of(kept_order(settings))
                await self._set_all(tx, {**facts, "version": str(stretch[-1].number)})
        finally:
            await self._optional(tx, "schema_unlock")

    async def _mended(self, tx: Tx, settings: Mapping[str, str], inventory: Inventory) -> bool:
        """Tell what is not told of tables that are whole: of a dump without rows, or of a script that was cut off.
        False where tables are still to be made, which not every database does all or none of."""
        version = _version_of(settings) or inventory.version
        if inventory.missing(version):
            raise self._foreign(inventory)
        if version == 0:
            return False
        untold = {name: value for name, value in _new_facts(self._order).items() if name not in settings}
        await self._set_all(tx, {**untold, "version": str(version)})
        if self._names.side("partition") in inventory.tables and not await tx.fetch(self._sql["fleet_partitions"].sql):
            for statement in (each for step in self._migrations for each in step.statements):
                if statement.startswith(("INSERT", "WITH")):
                    await tx.execute(statement)
        return True

    async def _inventory(self, tx: Tx) -> Inventory:
        return await take_inventory(tx, self._sql, self._names)

    async def _lock(self, tx: Tx, *, is_new: bool) -> None:
        """By what every database has to lock; or by the tables, once they are there and where that is better. Behind
        a change of them everybody waits for whom it waits for, so from here on that is not for long."""
        await self._optional(tx, "schema_begin")
        if is_new or "upgrade_lock" not in self._sql:
            if [row[0] for row in await self._optional(tx, "schema_lock")] == [0]:
                raise StoreBusy(
                    f"another process holds the lock for changes of {self._names.table}, for a minute now",
                    fix="let it end, or end it, and do this again",
                )
        else:
            await tx.execute(self._sql["upgrade_lock"].sql)
            await tx.execute(self._sql["upgrade_patience"].sql)

    def _stretch(self, current: int) -> list[Migration]:
        """What goes into one transaction: all of a new table, else up to the next online migration, or that alone."""
        pending = [migration for migration in self._migrations if migration.number > current]
        if current == 0 or not pending:
            return pending
        if pending[0].is_online:
            return pending[:1]
        return list(takewhile(lambda migration: not migration.is_online, pending))

    async def _apply(self, tx: Tx, migration: Migration, *, is_new: bool) -> None:
        # Without a lock of its own the transaction is the lock, and nothing can run beside it (SQLite).
        is_beside = migration.is_online and not is_new and "schema_lock" in self._sql
        if is_beside and "stand_by" in self._sql:
            await tx.execute(self._sql["stand_by"].sql)
        for statement in migration.statements:
            if is_beside:
                await self._executor.execute(self._in_haste(statement))
            else:
                # A table that was made in this transaction is nobody else's yet, and is not seen beside it.
                await tx.execute(statement.replace(" CONCURRENTLY", "") if migration.is_online else statement)

    def _in_haste(self, statement: str) -> str:
        """As one message it is a transaction. What runs CONCURRENTLY can be in none, and keeps nobody waiting."""
        if "upgrade_patience" not in self._sql or " CONCURRENTLY" in statement:
            return statement
        return f"{self._sql['upgrade_patience'].sql}; {statement}"

    async def _optional(self, tx: Tx, name: str) -> list[Any]:
        if name not in self._sql:
            return []
        statement = self._sql[name]
        return await tx.fetch(statement.sql, statement.bind(name=self._names.qualified(self._names.table)))

    async def _check(self, settings: dict[str, str]) -> None:
        inventory = await self._executor.transact(self._inventory, writes=False) if _absent(settings) else None
        if (problem := self._problem(settings, inventory)) is not None:
            raise problem
        self.store_id = settings["store_id"]

    def _problem(self, settings: Mapping[str, str], inventory: Inventory | None) -> OutboxError | None:
        """Why this release cannot work with what the tables say of themselves."""
        table, absent = self._names.table, _absent(settings)
        if absent:
            return self._foreign(inventory) if inventory is not None and inventory.tables else missing(self._names)
        version, oldest_code = int(settings["version"]), int(settings["oldest_code"])
        if version < self.version:
            return SchemaMismatch(
                f"the schema of {table} is at version {version}, this release needs {self.version}",
                fix="call outbox.create_schema(), which upgrades it; or run the script of "
                f"schema_sql(…, from_version={version}, to_version={self.version})",
            )
        if oldest_code > self.version:
            return SchemaMismatch(
                f"the schema of {table} is at version {version} and serves releases from {oldest_code} on; "
                f"this one is {self.version}",
                fix="upgrade aftercommit in this process",
            )
        ours = (str(PARTITION_COUNT), HASH_NAME)
        if (settings["partitions"], settings["hash"]) != ours:
            return SchemaMismatch(
                f"{table} was made with {settings['partitions']} partitions by {settings['hash']}, "
                f"this release uses {ours[0]} by {ours[1]}",
                fix="use the release that the table was made with",
            )
        if (kept := kept_order(settings)) != self._order:
            return SchemaMismatch(
                f"{table} was made with {kept}, this outbox has {self._order}",
                fix=f"give this process {kept}; or stop all others and call outbox.create_schema() of this one",
                kept=kept._asdict(),
            )
        return None

    async def _fit_settings(self, tx: Tx) -> dict[str, str]:
        if unfit := await self._optional(tx, "unfit"):
            raise InvalidOption(
                f"sessions have {unfit[0][0]}, with which the outbox cannot work",
                fix="set it back for this role, this database or in the URL",
            )
        return await self._settings(tx)

    async def _settings(self, tx: Tx) -> dict[str, str]:
        """Everything the schema table knows; empty when there is none."""
        exists = self._sql["has_table"]
        values = exists.bind(name=self._names.side("schema"), schema=self._names.schema)
        if not (await tx.fetch(exists.sql, values))[0][0]:
            return {}
        return {row[0]: row[1] for row in await tx.fetch(self._sql["settings"].sql)}

    def _foreign(self, inventory: Inventory) -> SchemaMismatch:
        """What is there and what is not, and the way out."""
        there, side = ", ".join(inventory.tables), self._names.side("schema")
        if inventory.version:
            return SchemaMismatch(
                f"{there}: all of version {inventory.version} is there, but {side} does not say what it should",
                fix="call outbox.create_schema(), which tells it anew; first restore a dump that has the rows of "
                f"{side}, if these tables are copies of others in use",
            )
        gaps = ", ".join(inventory.missing(self.version))
        drops = "; ".join(f"DROP TABLE {self._names.qualified(name)}" for name in inventory.tables)
        return SchemaMismatch(
            f"{there}: there, but create_schema() has not made it, or not to its end. Missing: {gaps}, and what "
            f"{side} says of its version",
            fix="if create_schema() was cut off, call it again; if autogenerate alone made it and no event is in it: "
            f"{drops}; then create_schema(), or aftercommit.alembic; if it is another program's, set table=…",
        )

    async def _set_all(self, tx: Tx, facts: Mapping[str, str]) -> None:
        statement = self._sql["set_setting"]
        for name, value in facts.items():
            await tx.execute(statement.sql, statement.bind(name=name, value=value))

    def steps(self, from_version: int = 0, to_version: int | None = None) -> list[Step]:
        """The way from one version to another, with the facts that `ensure` looks for."""
        return steps_between(self._sql, self._names, self._order, from_version=from_version, to_version=to_version)


def _version_of(settings: Mapping[str, str]) -> int:
    """0 when there is no schema yet."""
    return int(settings.get("version", 0))


def _absent(settings: Mapping[str, str]) -> list[str]:
    """The facts that the tables do not tell."""
    return [name for name in _FACTS if name not in settings]


def _new_facts(order: Order) -> dict[str, str]:
    return {"store_id": str(uuid4()), **lasting_facts(), **facts_of(order)}
