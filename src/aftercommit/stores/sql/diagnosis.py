"""A SQL database under examination: whether it is there, has all that the migrations make, and what the table says of
leases and of those who wait. What only one database can suffer from, its own diagnosis adds."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final

from aftercommit.errors import OutboxError
from aftercommit.events.findings import (
    Check,
    Finding,
    LeaseHolder,
    Waiting,
    failure,
    is_usable,
    looked_at,
    ok,
    said,
    warning,
)
from aftercommit.events.redact import error_text
from aftercommit.stores.sql.execution import Executor
from aftercommit.stores.sql.rows import to_micros
from aftercommit.stores.sql.schema import Schema
from aftercommit.stores.sql.statements import Statements, TableNames

#: Nothing is decided by the host's clock, so this hurts only people who read times of logs and rows side by side; and
#: it tells of a machine whose time nobody sets.
APART: Final = timedelta(seconds=2)

NOTHING: Final[Mapping[str, object]] = MappingProxyType({})

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

#: Where a migration makes an index: `CREATE INDEX "name" ON …`, and in MySQL also `KEY name (…)` of a table.
_MADE: Final = re.compile(
    r"(?P<kind>UNIQUE )?(?:INDEX|KEY)(?: CONCURRENTLY)? (?P<quoted>[\"`\[](?P<name>\w+)[\"`\]])(?P<rest>.*)"
)
_TABLE: Final = re.compile(r"(?:CREATE TABLE(?: IF NOT EXISTS)?|ALTER TABLE) (\S+)")
_COLUMNS: Final = re.compile(r"\([^()]*\)")


@dataclass(eq=False)
class SqlDiagnosis:
    """The port. Each look is a statement of its own, so that one that fails hides no other."""

    _executor: Executor
    _sql: Statements
    _names: TableNames
    _schema: Schema
    _where: str
    _explained: Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]]

    async def findings(self) -> list[Finding]:
        found = [await self._reach()]
        if is_usable(found):
            found += await looked_at(("AC101", self._fits))
            for check in [*self._of_server(), *(self._of_tables() if is_usable(found) else ())]:
                found += await looked_at(check)
        return found

    def _of_server(self) -> list[Check]:
        """What to look at even where there are no tables."""
        return [("AC104", self._clock)] if "clock" in self._sql else []

    def _of_tables(self) -> list[Check]:
        return [("AC102", self._tables), ("AC103", self._indexes)]

    async def holders(self, over_for: timedelta) -> list[LeaseHolder]:
        rows = await self._read("holders", {"older_than": to_micros(over_for)})
        return [
            LeaseHolder(owner, int(count), int(over), _micros(since_end), _micros(since_begin))
            for owner, count, over, since_end, since_begin in rows
        ]

    async def waiting(self, limit: int) -> list[Waiting]:
        rows = await self._read("waiting", {"limit": limit})
        return [Waiting(handler, aggregate, kind, int(count)) for handler, aggregate, kind, count in rows]

    async def count_done_before(self, older_than: timedelta, limit: int) -> int:
        values = {"older_than": to_micros(older_than), "limit": limit}
        return int((await self._read("count_done_before", values))[0][0])

    # ------------------------------------------------------------ the checks that all have

    async def _reach(self) -> Finding:
        began = perf_counter()
        try:
            rows = await self._read("server_version")
        except Exception as error:
            return away(self._where, error)
        return ok("AC100", f"{self._where} answers in {said(_since(began))} (version {rows[0][0]})")

    async def _fits(self) -> list[Finding]:
        try:
            version = await self._explained(self._schema.examined())
        except OutboxError as error:
            return [failure("AC101", error.message, fix=error.fix)]
        if version > self._schema.version:
            return [
                warning(
                    "AC101",
                    f"the schema of {self._names.table} is at version {version}, made by a newer release; this one has "
                    f"{self._schema.version} and still works with it",
                    fix="upgrade aftercommit in this process",
                )
            ]
        return [ok("AC101", f"the schema of {self._names.table} is at version {version}, which this release needs")]

    async def _clock(self) -> list[Finding]:
        before = datetime.now(UTC)
        micros = (await self._read("clock"))[0][0]
        return [clock_finding(EPOCH + timedelta(microseconds=int(micros)), before, datetime.now(UTC))]

    async def _tables(self) -> list[Finding]:
        stem = self._names.side("")
        rows = await self._read("tables", {"name": stem, "schema": self._names.schema})
        there = {self._names.table, *(row[0] for row in rows)}  # the schema says that the first is there
        missing = [name for name in self._names.all if name not in there]
        if not missing:
            return [ok("AC102", f"all {len(self._names.all)} tables are there")]
        return [
            failure(
                "AC102",
                f"the schema is said to be complete, but these tables are not there: {', '.join(missing)}",
                fix="restore them from a backup, or make them as `aftercommit migrate sql` shows",
            )
        ]

    async def _indexes(self) -> list[Finding]:
        there = dict(await self._read("indexes", {"name": self._names.table, "schema": self._names.schema}))
        wanted = self._wanted_indexes()
        broken = [self._broken(name, sql, there) for name, sql in wanted.items() if not there.get(name)]
        return broken or [ok("AC103", f"all {len(wanted)} indexes are there")]

    def _broken(self, name: str, sql: str, there: Mapping[str, object]) -> Finding:
        state = "is there but cannot be used" if name in there else "is not there"
        return failure(
            "AC103",
            f"the index {name} {state}: claims and counts read the whole table without it",
            fix="make it anew",
            sql=self._repair(name, sql, is_there=name in there),
        )

    def _repair(self, name: str, sql: str, *, is_there: bool) -> str:
        return sql

    def _wanted_indexes(self) -> dict[str, str]:
        """What the migrations make, each with a statement that makes it."""
        return {
            made["name"]: _statement_of(made, statement)
            for migration in self._sql.migrations()
            for statement in migration.statements
            for made in _MADE.finditer(statement)
        }

    # ------------------------------------------------------------ inside

    async def _read(self, name: str, values: Mapping[str, object] = NOTHING) -> list[Any]:
        statement = self._sql[name]
        read = self._executor.fetch(statement.sql, statement.values(values), writes=False)
        rows: list[Any] = await self._explained(read)
        return rows


def _statement_of(made: re.Match[str], statement: str) -> str:
    """The migration's own; where the index is a part of a table, one that adds it."""
    if statement.startswith("CREATE") and not statement.startswith("CREATE TABLE"):
        return statement
    table, columns = _TABLE.search(statement), _COLUMNS.search(made["rest"])
    return f"ALTER TABLE {table and table[1]} ADD {made['kind'] or ''}INDEX {made['quoted']} {columns and columns[0]}"


def away(where: str, error: Exception) -> Finding:
    if isinstance(error, OutboxError):
        return failure("AC100", error.message, fix=error.fix)
    return failure("AC100", f"{where} cannot be asked: {error_text(error)}", fix="check the server, address and login")


def clock_finding(database: datetime, before: datetime, after: datetime) -> Finding:
    """The database's clock was read between these two looks at the host's."""
    apart = max(before - database, database - after, timedelta(0))
    if apart <= APART:
        return ok("AC104", f"the clocks of the database and this host are within {said(APART)}")
    side = "behind" if database < before else "ahead of"
    return warning(
        "AC104",
        f"the database's clock is {said(apart)} {side} this host's. Due times and leases go by the database's alone, "
        "but times that were set here (available_at, occurred_at) are that far off",
        fix="let both hosts set their clocks by NTP",
    )


def _micros(value: object) -> timedelta:
    return timedelta(microseconds=0 if value is None else int(value))  # type: ignore[call-overload]


def _since(began: float) -> timedelta:
    return timedelta(seconds=perf_counter() - began)
