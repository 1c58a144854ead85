"""PostgreSQL under examination: what holds back its vacuum, what can lose commits, and whether LISTEN works."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, NamedTuple
from uuid import uuid4

from aftercommit.events.findings import Check, Finding, failure, ok, said, unknown, warning
from aftercommit.stores.postgres.executor import PostgresExecutor
from aftercommit.stores.sql.diagnosis import SqlDiagnosis
from aftercommit.stores.sql.rows import to_micros

#: Far longer than a transaction of a program that answers people. A backup or a report may be.
LONG: Final = timedelta(minutes=10)

#: What a reader that keeps up is never behind.
LAGGING: Final = 1024**3

#: Seconds within which a message comes back.
ANSWER: Final = 5.0

#: Rows that are dead at any time where much is delivered; vacuum comes when there are more.
DEAD_ROWS: Final = 100_000

#: The part of a table that may be dead before vacuum begins. Of ten million done rows a fifth is too much.
PART: Final = 0.1


class PostgresDiagnosis(SqlDiagnosis):
    """What only PostgreSQL suffers from."""

    def _of_server(self) -> list[Check]:
        return [
            *super()._of_server(),
            ("AC116", self._settings),
            ("AC112", self._slots),
            ("AC113", self._transactions),
            ("AC115", self._listen),
        ]

    def _of_tables(self) -> list[Check]:
        return [*super()._of_tables(), ("AC114", self._vacuum)]

    def _repair(self, name: str, sql: str, *, is_there: bool) -> str:
        """Beside writers, in no transaction."""
        made = sql if " CONCURRENTLY" in sql else sql.replace(" INDEX ", " INDEX CONCURRENTLY ", 1)
        gone = f"DROP INDEX CONCURRENTLY IF EXISTS {self._names.qualified(name)}; " if is_there else ""
        return f"{gone}{made}"

    async def _settings(self) -> list[Finding]:
        return settings_findings(*(await self._read("server_settings"))[0])

    async def _slots(self) -> list[Finding]:
        slots = await self._read("slots")
        found = [slot_finding(*slot) for slot in slots if not slot[1] or slot[2] > LAGGING]
        return found or [ok("AC112", f"replication slots: {len(slots)}, none left behind")]

    async def _transactions(self) -> list[Finding]:
        rows = await self._read("long_transactions", {"older_than": to_micros(LONG)})
        return [
            warning(
                "AC113",
                f"{who} ({state}) has been in a transaction for {said(timedelta(microseconds=micros))}: vacuum keeps "
                "every dead row since then, and claims step over them",
                fix="end it, and find out why it stays open; idle_in_transaction_session_timeout ends such sessions",
                sql=sql,
            )
            for who, state, micros, sql in rows
        ] or [ok("AC113", f"no transaction that this role may see has been open for more than {said(LONG)}")]

    async def _vacuum(self) -> list[Finding]:
        return vacuum_findings(Vacuum(*(await self._read("vacuum"))[0]), self._names.qualified(self._names.table))

    async def _listen(self) -> list[Finding]:
        """A message to oneself, on a channel that nobody else hears."""
        if not isinstance(self._executor, PostgresExecutor):
            return [unknown("AC115", "these connections are not the outbox's own")]
        channel = f"aftercommit:doctor:{uuid4().hex}"
        connection = await self._executor.listening()
        try:
            if await connection.is_direct():
                await connection.listen(channel)
                notify = self._sql["notify"]
                await self._executor.execute(notify.sql, notify.bind(channel=channel, message="well?"))
                if connection.take() or (await connection.wait(ANSWER) and connection.take()):
                    return [ok("AC115", "a message to LISTEN came back: instances wake each other")]
        finally:
            await connection.close()
        return [
            warning(
                "AC115",
                "LISTEN does not work: a pooler stands before PostgreSQL that lends sessions by the transaction. "
                "Instances find each other's events by polling only",
                fix="give the outbox a URL that leads to the server itself, or a pool in session mode",
            )
        ]


def settings_findings(fsync: str, synchronous: str, is_replica: bool, read_only: str) -> list[Finding]:
    """Whether it takes writes, and keeps them."""
    found = []
    if is_replica or read_only == "on":
        why = "it is a replica" if is_replica else "default_transaction_read_only is on for this role or database"
        found.append(
            failure(
                "AC116", f"the database takes no writes: {why}", fix="point the outbox at the primary, or set it off"
            )
        )
    else:
        found.append(ok("AC116", "the database takes writes"))
    if fsync == "off":
        found.append(
            failure(
                "AC111",
                "fsync is off: a crash of the server may lose any transaction and damage the files",
                fix="set it on, and restore from a backup after a crash",
                sql="ALTER SYSTEM SET fsync = on",
            )
        )
    elif synchronous == "off":
        found.append(
            warning(
                "AC111",
                "synchronous_commit is off here: a crash of the server loses the last transactions that were answered, "
                "your changes and their events together",
                fix="set it on for this role or database, unless that is meant",
                sql="ALTER ROLE CURRENT_USER SET synchronous_commit = on",
            )
        )
    else:
        found.append(ok("AC111", f"commits wait for the disk (synchronous_commit {synchronous})"))
    return found


def slot_finding(name: str, is_active: bool, behind: int) -> Finding:
    state = "is read by nobody" if not is_active else "lags"
    return warning(
        "AC112",
        f"the replication slot {name} {state}, and the server keeps {behind // 1024**2:,} MB of its log for it: in the "
        "end the disk is full",
        fix="start its reader again; or, if there will be none, drop it",
        sql=None if is_active else f"SELECT pg_drop_replication_slot('{name}')",
    )


class Vacuum(NamedTuple):
    """What the statistics and settings say of the table's vacuum."""

    live: int
    dead: int
    options: str
    autovacuum: str
    default_part: str


def vacuum_findings(facts: Vacuum, table: str) -> list[Finding]:
    options = dict(each.partition("=")[::2] for each in facts.options.split(",") if each)
    if facts.autovacuum == "off" or options.get("autovacuum_enabled") in ("false", "off", "0", "no"):
        where = "on this server" if facts.autovacuum == "off" else f"for {table}"
        sql = "ALTER SYSTEM SET autovacuum = on" if facts.autovacuum == "off" else None
        return [
            warning(
                "AC114",
                f"autovacuum is off {where} ({facts.dead:,} dead rows): the table and its indexes only grow",
                fix="set it on",
                sql=sql or f"ALTER TABLE {table} RESET (autovacuum_enabled)",
            )
        ]
    part = float(options.get("autovacuum_vacuum_scale_factor", facts.default_part))
    if part > PART and facts.live + facts.dead > DEAD_ROWS:
        return [
            warning(
                "AC114",
                f"autovacuum_vacuum_scale_factor is {part:g} for {table}: vacuum waits for {part:.0%} of "
                f"{facts.live + facts.dead:,} rows ({facts.dead:,} are dead now)",
                fix="let it begin sooner, as the migrations do",
                sql=f"ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0.02)",
            )
        ]
    if facts.dead > DEAD_ROWS and facts.dead > facts.live:
        return [
            warning(
                "AC114",
                f"{table} has {facts.dead:,} dead rows beside {facts.live:,} that live: vacuum does not keep up",
                fix="look for what holds it back (AC112, AC113); then let it run",
                sql=f"VACUUM (ANALYZE) {table}",
            )
        ]
    return [ok("AC114", f"vacuum keeps up ({facts.dead:,} dead rows beside {facts.live:,})")]
