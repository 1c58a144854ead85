"""The replication slot of one outbox table: made, looked at and dropped, and the rows that were born done for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from aftercommit.errors import OutboxError, ReplicationRefused, SlotLost
from aftercommit.events.claims import Lease, RowKey
from aftercommit.events.order import OrderKey
from aftercommit.events.redact import error_text
from aftercommit.ports import Tx
from aftercommit.ports.replication import SlotState, Wrote
from aftercommit.stores.postgres.capturing import Capturing
from aftercommit.stores.postgres.executor import PostgresExecutor
from aftercommit.stores.postgres.link import Link
from aftercommit.stores.postgres.reading import PostgresReading
from aftercommit.stores.postgres.slots import mark_name, state_of
from aftercommit.stores.sql.connections import abandoned, cut
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.execution import Fault, explained
from aftercommit.stores.sql.rows import instant, to_micros
from aftercommit.stores.sql.statements import Statements, TableNames

#: What another than the last reader confirmed may have been written a while before its commit: no transaction of a
#: program that answers people is open for longer.
MARGIN: Final = timedelta(minutes=10)

#: Rows of one statement.
_AT_ONCE: Final = 1000

#: The holder of what is free.
_NOBODY: Final = ""


class PostgresReplication:
    """The port, over the executor of the store whose table it is."""

    def __init__(
        self,
        executor: PostgresExecutor,
        dialect: Dialect,
        statements: Statements,
        names: TableNames,
        where: str,
        slot: str,
        *,
        ordered: bool,
    ) -> None:
        self.slot = slot
        self._executor, self._dialect, self._sql = executor, dialect, statements
        self._names, self._where, self._ordered = names, where, ordered
        self._capturing = Capturing(names, slot)
        #: Sessions of those that read now.
        self._links: set[Link] = set()

    def script(self) -> str:
        """What create() does, for people who run their own migrations."""
        return self._capturing.script()

    # ------------------------------------------------------------ the slot

    async def state(self) -> SlotState:
        statement = self._sql["slot_state"]
        try:
            rows = await self._executor.fetch(statement.sql, statement.values(self._asked), writes=False)
        except Exception as error:
            raise self._explained(error) from error
        return state_of(rows[0], self.slot)

    @property
    def _asked(self) -> dict[str, object]:
        made = self._capturing
        return {"slot": made.slot, "publication": made.publication, "trigger": made.trigger}

    async def create(self) -> None:
        (level, is_standby), *_ = await self._executor.fetch(self._sql["slot_settings"].sql, writes=False)
        if level != "logical" or is_standby:
            what = "is a standby" if is_standby else f"has wal_level = {level}"
            raise ReplicationRefused(
                f"{self._where} {what}, so it cannot replicate {self._names.table} logically",
                fix="use the primary" if is_standby else "ALTER SYSTEM SET wal_level = logical; restart the server",
            )
        state = await self.state()
        if state.is_foreign:
            raise self._foreign(state)
        if state.problem is not None or (state.is_capturing and not state.is_there):
            raise self._lost(state)
        try:
            if not state.has_publication:  # before the slot: who reads it looks for the publication as it was then
                await self._executor.execute(self._capturing.create_publication)
            if not state.is_there:
                await self._run("slot_create")
            if not state.is_capturing:
                await self._all(*self._capturing.drop_trigger(), *self._capturing.create_trigger())
        except Exception as error:
            raise self._refused(error) from error

    def _foreign(self, state: SlotState) -> ReplicationRefused:
        return ReplicationRefused(
            f"the slot {self.slot} is no use here: {state.problem}", fix="choose another name for the slot"
        )

    async def _all(self, *statements: str) -> None:
        """In one transaction, so that there is always the one or the other."""

        async def work(tx: Tx) -> None:
            for statement in statements:
                await tx.execute(statement)

        await self._executor.transact(work)

    async def _run(self, name: str) -> None:
        statement = self._sql[name]
        await self._executor.fetch(statement.sql, statement.bind(slot=self.slot))

    def trouble(self, state: SlotState) -> OutboxError | None:
        if state.is_foreign:
            return self._foreign(state)
        if not state.is_capturing and not state.is_there and state.problem is None:
            return ReplicationRefused(
                f"there is no replication slot {self.slot} for {self._names.table}",
                fix=f"call create_schema() of this tail, or of an outbox with replication={self.slot!r}",
            )
        return None if state.is_there and state.has_publication else self._lost(state)

    def _lost(self, state: SlotState) -> SlotLost:
        why = state.problem or (
            "it is not there any more" if not state.is_there else "its publication does not have the table any more"
        )
        return SlotLost(
            f"the replication slot {self.slot} of {self._names.table} is lost: {why}. What it had not read, up to "
            f"{state.now:%Y-%m-%d %H:%M} UTC, nobody will deliver",
            fix="close all tails and call recover() of one, which begins anew and delivers from the table what may be "
            "undelivered; raise max_slot_wal_keep_size if it is too small",
        )

    def _refused(self, error: Exception) -> Exception:
        if isinstance(error, OutboxError):
            return error
        text = error_text(error)
        if self._executor.fault_of(error) is Fault.FORBIDDEN:
            return ReplicationRefused(
                f"{self._where} does not let this user replicate {self._names.table}: {text}",
                fix="as a superuser: ALTER ROLE … REPLICATION, and GRANT CREATE ON DATABASE … TO …; the user has to "
                "own the table. Or run what schema_sql() says as somebody who may",
            )
        if "max_replication_slots" in text or "replication slots are in use" in text:
            return ReplicationRefused(
                f"{self._where} has no replication slot left: {text}", fix="drop an unused one, or raise the limit"
            )
        return self._explained(error)

    def _explained(self, error: Exception) -> Exception:
        if isinstance(error, OutboxError):
            return error
        return explained(error, self._executor.fault_of(error), self._names, self._where) or error

    async def read(self) -> PostgresReading | None:
        link = await self._executor.apart()
        self._links.add(link)
        reading = PostgresReading(
            link, self._dialect, self._sql, self._capturing, self._links.discard, ordered=self._ordered
        )
        try:
            if not await link.is_direct():
                raise ReplicationRefused(
                    "a pooler stands before PostgreSQL, and who reads a slot needs a session of its own",
                    fix="give the tail a URL that leads to the server itself",
                )
            if await reading.lock():
                return reading
        except BaseException:
            self._links.discard(link)
            link.drop()
            raise
        await reading.close()
        return None

    def abandon(self) -> None:
        """In a forked child: leave the parent's sessions alone."""
        links, self._links = self._links, set()
        for link in links:
            abandoned.append(link)
            cut(link)

    # ------------------------------------------------------------ its end, and a new beginning

    async def drop(self) -> int:
        async with _Locked(self) as reading:
            # Whoever inserts now is waited for: behind it every row is born as the table wants it.
            await self._all(*self._capturing.drop_trigger())
            count = 0
            if (await reading.state()).is_there:
                count = await self._give_to_the_table(reading)
                await self._run("slot_drop")
            await self._executor.execute(self._capturing.drop_publication)
            await self._forget_mark()
            return count

    async def _give_to_the_table(self, reading: PostgresReading) -> int:
        """What was not read is NEW, and free."""
        mark, confirmed = await reading.mark(), (await reading.state()).confirmed
        read = count = 0
        if mark is not None and mark.confirmed >= confirmed:
            await reading.advance(mark.confirmed, None)
            read = mark.passed
        is_all = False
        while not is_all:
            changes, is_all = await reading.peek(read, _AT_ONCE, _NOBODY)
            read += len(changes)
            rows = [(each.row.lease, each.values) for each in changes if isinstance(each, Wrote) and each.is_captured]
            count += len(await self.take(rows, timedelta(0)))
        return count

    async def recover(self, since: datetime | None) -> int:
        async with _Locked(self) as reading:
            state, mark = await reading.state(), await reading.mark()
            if state.is_foreign:
                raise self._foreign(state)
            if state.is_there and state.has_publication and state.is_capturing:
                raise ReplicationRefused(
                    f"the slot {self.slot} is there and can be read, so there is nothing to recover", fix="start a tail"
                )
            if since is None:
                known = mark.committed_at if mark is not None else None
                since = instant(0) if known is None else known - MARGIN
            try:
                await self._run("slot_drop")
                if not state.has_publication:
                    await self._executor.execute(self._capturing.drop_publication)
                await self._forget_mark()
            except Exception as error:
                raise self._refused(error) from error
            await self._all(*self._capturing.drop_trigger())
            await self.create()
            return await self._requeue(since)

    async def _requeue(self, since: datetime) -> int:
        statement, count = self._sql["capture_requeue"], 0
        values = statement.bind(since=since, limit=_AT_ONCE)
        while changed := await self._executor.execute(statement.sql, values):
            count += changed
        return count

    async def _forget_mark(self) -> None:
        statement = self._sql["forget_setting"]
        await self._executor.execute(statement.sql, statement.bind(name=mark_name(self.slot)))

    # ------------------------------------------------------------ rows that the table has to keep after all

    async def take(
        self, rows: Sequence[tuple[Lease, Mapping[str, str | None]]], lease_for: timedelta
    ) -> Collection[RowKey]:
        wanted = {lease.key for lease, _ in rows}

        async def work(tx: Tx) -> set[RowKey]:
            taken = await self._take(tx, [lease for lease, _ in rows], lease_for)
            if gone := wanted - taken:
                again = self._sql["capture_again"]
                before = [values for lease, values in rows if lease.key in gone]
                await tx.execute(again.sql, again.bind(rows=msgspec.json.encode(before).decode()))
                taken |= await self._take(tx, [lease for lease, _ in rows if lease.key in gone], lease_for)
            return taken

        return await self._executor.transact(work) if rows else set()

    async def _take(self, tx: Tx, leases: Sequence[Lease], lease_for: timedelta) -> set[RowKey]:
        statement = self._sql["capture_take"]
        values = statement.bind(
            event_id=self._dialect.list([lease.key.event_id for lease in leases]),
            handler_id=self._dialect.list([lease.key.handler_id for lease in leases]),
            owner=self._dialect.list([lease.owner or None for lease in leases]),
            lock_timeout=to_micros(lease_for),
        )
        return {RowKey(*row) for row in await tx.fetch(statement.sql, values)}

    async def touched(self, keys: Sequence[RowKey]) -> Collection[RowKey]:
        statement = self._sql["capture_touched"]
        values = statement.bind(
            event_id=self._dialect.list([key.event_id for key in keys]),
            handler_id=self._dialect.list([key.handler_id for key in keys]),
        )
        return {RowKey(*row) for row in await self._executor.fetch(statement.sql, values, writes=False)}

    async def blocked(self, keys: Collection[OrderKey], *, by_dead: bool) -> Mapping[OrderKey, int]:
        asked = list(keys)
        statement = self._sql["capture_blocked"]
        values = statement.bind(
            partitions=self._dialect.list([key.partition for key in asked]),
            keys=self._dialect.list([key.key for key in asked]),
            blocks=by_dead,
        )
        found = await self._executor.fetch(statement.sql, values, writes=False)
        return {asked[number - 1]: position for number, position in found}


class _Locked:
    """The lock of the slot for a while: nobody reads it meanwhile."""

    def __init__(self, replication: PostgresReplication) -> None:
        self._replication = replication
        self._reading: PostgresReading | None = None

    async def __aenter__(self) -> PostgresReading:
        self._reading = await self._replication.read()
        if self._reading is None:
            raise ReplicationRefused(
                f"a tail reads the slot {self._replication.slot} now", fix="close it first, wherever it runs"
            )
        return self._reading

    async def __aexit__(self, *_: object) -> None:
        if self._reading is not None:
            await self._reading.close()
