"""The tables themselves: created on request, upgraded by numbered migrations, checked before use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import takewhile
from typing import Any, Final
from uuid import uuid4

from aftercommit.errors import InvalidOption, SchemaMismatch, StoreBusy
from aftercommit.events.claims import HASH_NAME, PARTITION_COUNT
from aftercommit.events.order import UNORDERED, Order
from aftercommit.ports import Tx
from aftercommit.stores.sql.execution import Executor, missing
from aftercommit.stores.sql.statements import Migration, Statements, TableNames

#: The oldest schema, and the oldest code, that go together with this release.
OLDEST_CODE: Final = 1

#: The oldest code that knows of order.
_OLDEST_WITH_ORDER: Final = 2


def kept_order(settings: Mapping[str, str]) -> Order:
    """What the schema table says of it."""
    return Order(settings.get("ordered") == "1", settings.get("on_dead", UNORDERED.on_dead))


def facts_of(order: Order) -> dict[str, str]:
    """What the schema table is to say of it."""
    oldest = _OLDEST_WITH_ORDER if order.ordered else OLDEST_CODE
    return {"ordered": str(int(order.ordered)), "on_dead": order.on_dead, "oldest_code": str(oldest)}


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
        if self._creates and _version_of(settings) < self.version:
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

    async def _upgrade(self) -> None:
        while (found := await self._executor.transact(self._version, writes=False)) < self.version:
            await self._executor.transact(partial(self._migrate, is_new=found == 0))

    async def _reorder(self, tx: Tx) -> None:
        await self._lock(tx, is_new=False)
        try:
            await self._set_all(tx, facts_of(self._order))
        finally:
            await self._optional(tx, "schema_unlock")

    async def _version(self, tx: Tx) -> int:
        return _version_of(await self._settings(tx))

    async def _migrate(self, tx: Tx, *, is_new: bool) -> None:
        """One stretch of migrations. The lock is held by this transaction; what runs online does so beside it, and
        would wait for ever for a change of the table that this one has made."""
        await self._lock(tx, is_new=is_new)
        try:
            settings = await self._settings(tx)
            current = _version_of(settings)
            stretch = self._stretch(current)
            is_foreign = current == 0 and await self._has(tx, self._names.table)
            try:
                for migration in stretch:
                    await self._apply(tx, migration, is_new=current == 0)
            except Exception as error:
                if is_foreign:
                    raise self._foreign() from error
                raise
            if stretch:
                facts = _facts(self._order) if current == 0 else facts_of(kept_order(settings))
                await self._set_all(tx, {**facts, "version": str(stretch[-1].number)})
        finally:
            await self._optional(tx, "schema_unlock")

    async def _lock(self, tx: Tx, *, is_new: bool) -> None:
        """By what every database has to lock; or by the tables, once they are there and where that is better. Behind
        a change of them everybody waits for whom it waits for, so from here on that is not for long."""
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
        if not settings:
            is_there = await self._executor.transact(lambda tx: self._has(tx, self._names.table), writes=False)
            raise self._foreign() if is_there else missing(self._names)
        version, oldest_code = int(settings["version"]), int(settings["oldest_code"])
        if version < self.version:
            raise SchemaMismatch(
                f"the schema of {self._names.table} is at version {version}, this release needs {self.version}",
                fix="call outbox.create_schema(), which upgrades it",
            )
        if oldest_code > self.version:
            raise SchemaMismatch(
                f"the schema of {self._names.table} is at version {version} and serves releases from {oldest_code} on; "
                f"this one is {self.version}",
                fix="upgrade aftercommit in this process",
            )
        self.store_id = settings.get("store_id")
        ours = (str(PARTITION_COUNT), HASH_NAME)
        if (settings["partitions"], settings["hash"]) != ours:
            raise SchemaMismatch(
                f"{self._names.table} was made with {settings['partitions']} partitions by {settings['hash']}, "
                f"this release uses {ours[0]} by {ours[1]}",
                fix="use the release that the table was made with",
            )
        if (kept := kept_order(settings)) != self._order:
            raise SchemaMismatch(
                f"{self._names.table} was made with {kept}, this outbox has {self._order}",
                fix=f"give this process {kept}; or stop all others and call outbox.create_schema() of this one",
                kept=kept._asdict(),
            )

    async def _fit_settings(self, tx: Tx) -> dict[str, str]:
        if unfit := await self._optional(tx, "unfit"):
            raise InvalidOption(
                f"sessions have {unfit[0][0]}, with which the outbox cannot work",
                fix="set it back for this role, this database or in the URL",
            )
        return await self._settings(tx)

    async def _settings(self, tx: Tx) -> dict[str, str]:
        """Everything the schema table knows; empty when there is none."""
        if not await self._has(tx, self._names.side("schema")):
            return {}
        return {row[0]: row[1] for row in await tx.fetch(self._sql["settings"].sql)}

    async def _has(self, tx: Tx, name: str) -> bool:
        exists = self._sql["has_table"]
        return bool((await tx.fetch(exists.sql, exists.bind(name=name, schema=self._names.schema)))[0][0])

    def _foreign(self) -> SchemaMismatch:
        return SchemaMismatch(
            f"a table {self._names.table} is there, but create_schema() has not made it, or not to its end: "
            f"{self._names.side('schema')} does not tell its version",
            fix="if create_schema() was cut off, call it again; if create_all() or Alembic's autogenerate made it, "
            "drop it and its side tables first, and see aftercommit.alembic; if it is another program's, set table=…",
        )

    async def _set_all(self, tx: Tx, facts: Mapping[str, str]) -> None:
        statement = self._sql["set_setting"]
        for name, value in facts.items():
            await tx.execute(statement.sql, statement.bind(name=name, value=value))

    def script(self, first: int = 1, last: int | None = None) -> str:
        """Migrations as one script, all or some, with the facts that `ensure` looks for."""
        return script_of(self._sql, self._names, self._order, first=first, last=last)


def _version_of(settings: Mapping[str, str]) -> int:
    """0 when there is no schema yet."""
    return int(settings.get("version", 0))


def _facts(order: Order) -> dict[str, str]:
    """What a new table keeps for ever, and its order."""
    return {"store_id": str(uuid4()), "partitions": str(PARTITION_COUNT), "hash": HASH_NAME, **facts_of(order)}


def script_of(
    sql: Statements, names: TableNames, order: Order = UNORDERED, *, first: int = 1, last: int | None = None
) -> str:
    """The whole schema for a table that is not there yet, or some steps for one that may be in use: then what runs
    online stays so, and the script is for no transaction."""
    steps = [step for step in sql.migrations() if first <= step.number <= (last or step.number)]
    statements = [each for step in steps for each in step.statements]
    table, version = names.qualified(names.side("schema")), str(steps[-1].number)
    if first == 1:
        statements = [each.replace(" CONCURRENTLY", "") for each in statements]
        facts = {"version": version, **_facts(order)}
        values = ",\n  ".join(f"('{name}', '{value}')" for name, value in facts.items())
        statements.append(f"INSERT INTO {table} (name, value) VALUES\n  {values}")
    else:
        statements.append(f"UPDATE {table} SET value = '{version}' WHERE name = 'version'")  # noqa: S608
    return ";\n\n".join(statements) + ";\n"
