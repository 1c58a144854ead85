"""The event store over SQL, written once: it names statements and binds values; an executor runs them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from datetime import timedelta
from operator import itemgetter
from typing import Any, TypeVar

from aftercommit.errors import OutboxError
from aftercommit.events.claims import Claim, ClaimRequest, Inserted, Lease, NewEvent, RowKey, Settlement, refuse_nobody
from aftercommit.events.headers import HeaderCodec
from aftercommit.events.order import Heads, HeadsRequest, KeyClaimRequest, Order
from aftercommit.ports import (
    AdoptedTx,
    Capabilities,
    Diagnosis,
    Membership,
    OpenTransaction,
    Records,
    Replication,
    SchemaStatus,
    Tx,
    Wakeups,
)
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.execution import Executor, Fault, explained
from aftercommit.stores.sql.firsts import Firsts, free_of
from aftercommit.stores.sql.inserting import insert
from aftercommit.stores.sql.membership import SqlMembership
from aftercommit.stores.sql.pauses import SqlPauses
from aftercommit.stores.sql.records import SqlRecords
from aftercommit.stores.sql.rows import (
    AVAILABLE_AT,
    EVENT_ID,
    EVENT_KEY,
    NOW,
    POSITION,
    all_claimed,
    claimed_of,
    held_row,
    to_micros,
)
from aftercommit.stores.sql.runs import head_of, run_values
from aftercommit.stores.sql.schema import Schema
from aftercommit.stores.sql.statements import Statements, TableNames, statements_of
from aftercommit.stores.sql.steps import script_of
from aftercommit.stores.sql.table import OwnTable
from aftercommit.stores.sql.uniques import Uniques

T = TypeVar("T")


class SqlStore:
    """Events in one table. The executor's colour is the store's colour."""

    #: Whether `wakeups` gives something, where the database has a way.
    wakes_others = False
    warnings: Sequence[str] = ()
    replication: Replication | None = None

    def __init__(
        self,
        executor: Executor,
        dialect: Dialect,
        *,
        where: str,
        table: str = "outbox_event",
        schema: str | None = None,
        create_schema: bool = False,
        delete_completed: bool | None = None,
        ordered: bool = False,
        on_dead: str = "block",
        serialize_keys: bool = False,
        header_codec: HeaderCodec | None = None,
        heartbeats: Executor | None = None,
        own_table: Callable[[Executor, Dialect, Statements, TableNames, Schema], OwnTable] = OwnTable,
        statements: Callable[[Dialect, TableNames], Statements] = statements_of,
    ) -> None:
        if header_codec is not None:
            dialect = dialect.with_headers(header_codec)
        self.executor, self.colour, self.dialect = executor, executor.colour, dialect
        #: The database as people may read of it: no login, no secrets.
        self.where = where
        self.names = TableNames(table, schema, dialect.quotes)
        self._sql = statements(dialect, self.names)
        self._times = dialect.times
        self.capabilities = Capabilities(
            isolations=dialect.isolations,
            serializes_keys=serialize_keys,
            keeps_order=not dialect.unordered,
            leases_firsts=ordered and (serialize_keys or dialect.has_one_writer),
            wakes_others=self.wakes_others and "notify" in self._sql,
            unique_keys="insert_unique" in self._sql,
            has_transactional_effects=True,
        )
        dialect.refuse_impossible(self._sql, ordered=ordered, serialize_keys=serialize_keys)
        done = self._sql["delete" if delete_completed else "done"]
        self._changes = dialect.changes(executor, self._sql, dialect, done)
        self._runs = dialect.runs(executor, self._sql, dialect)
        self.order = Order(ordered, on_dead)
        self._firsts = Firsts(self._sql, dialect, blocks=on_dead == "block")
        self._uniques = Uniques(self._sql, dialect, self._insert, executor.fault_of)
        self._schema = Schema(executor, self._sql, self.names, creates=create_schema, order=self.order)
        self.drop_schema = self._schema.drop
        self._table = own_table(executor, dialect, self._sql, self.names, self._schema)
        deletes, explained = bool(delete_completed), self._explained
        self.records: Records = SqlRecords(executor, self._sql, dialect, self._changes, deletes, explained)
        #: With connections of its own where that can be: a heartbeat must not wait for others to give theirs back.
        self._heartbeats = executor if heartbeats is None else heartbeats
        self.pauses = SqlPauses(executor, self._sql, self._times, self._explained)
        self.membership: Membership | None = None
        if not dialect.unordered:  # only where keys are kept in order they are shared out
            self.membership = SqlMembership(self._heartbeats, self._sql, self._times, self._explained)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.where})"

    @property
    def diagnosis(self) -> Diagnosis | None:
        diagnose = self.dialect.diagnosis
        return diagnose and diagnose(self.executor, self._sql, self.names, self._schema, self.where, self._explained)

    @property
    def requires_active_transaction(self) -> bool:
        return self.capabilities.needs_transaction

    @property
    def is_ready(self) -> bool:
        return self._schema.is_ready

    @property
    def wakeups(self) -> Wakeups | None:
        """A way to wake other processes, one for each who asks; None where the database has none."""
        return None

    @property
    def sql_table(self) -> OwnTable | None:
        """For libraries that insert rows in their own way; None where SQLAlchemy is not known to write."""
        return self._table if self._table.databases else None

    async def open(self) -> None:
        if not self._schema.is_ready:
            await self._explained(self._schema.ensure())

    async def create_schema(self) -> None:
        await self._explained(self._schema.create())

    async def schema_status(self) -> SchemaStatus:
        return await self._explained(self._schema.status())

    def schema_sql(self, from_version: int = 0, to_version: int | None = None) -> str:
        """The script that makes the tables, or leads from one version of them to another."""
        return script_of(self._schema.steps(from_version, to_version))

    async def begin(self, isolation: str | None = None) -> OpenTransaction:
        try:
            return await self.executor.begin(isolation)
        except Exception as error:
            self._explain(error)
            raise

    def outage(self, error: Exception) -> OutboxError | None:
        fault = Fault.OTHER if isinstance(error, OutboxError) else self.executor.fault_of(error)
        return explained(error, fault, self.names, self.where) if fault.is_outage else None

    def adopt(self, handle: object) -> AdoptedTx | None:
        return self.executor.adopt(handle)

    async def refuse_foreign(self, handle: object, tx: AdoptedTx) -> None:
        # Whoever is in no transaction is refused for that, and nothing may be asked on that connection.
        if self._table.has_met(handle) or not tx.is_active:
            return
        if not self._table.knows_itself:
            await self.open()  # our own id is read on a connection of our own
        await self._explained(self._table.refuse_foreign(handle, tx, self.where))

    async def insert(self, tx: Tx, events: Sequence[NewEvent]) -> Collection[RowKey] | None:
        if not events:
            return None
        try:
            if self.capabilities.serializes_keys:
                await self._firsts.lock(tx, events, self._table.lock_name)
            if self.capabilities.leases_firsts:
                events = await self._firsts.only(tx, events)
            await insert(tx, events, self._sql, self.dialect)
        except Exception as error:
            self._explain(error)
            raise
        return free_of(events) if self.capabilities.leases_firsts else None

    async def insert_unique(self, tx: Tx, events: Sequence[NewEvent]) -> Inserted:
        try:
            if self.capabilities.serializes_keys:
                await self._firsts.lock(tx, events, self._table.lock_name)
            if self.capabilities.leases_firsts:
                events = await self._firsts.only(tx, events)
            refused = await self._uniques.insert(tx, events)
        except Exception as error:
            self._explain(error)
            raise
        return Inserted(free_of(events) if self.capabilities.leases_firsts else None, refused)

    def _insert(self, tx: Tx, events: Sequence[NewEvent]) -> Coroutine[Any, Any, object]:
        return insert(tx, events, self._sql, self.dialect)

    async def claim(self, request: ClaimRequest) -> Claim:
        refuse_nobody(request.owner)
        rows, next_due = await self._explained(self._changes.claim(request, self._claim_values(request)))
        floor = None
        if len(rows) >= request.limit:
            last = max(rows, key=itemgetter(AVAILABLE_AT, POSITION))
            floor = (self._times.write(self._times.read(last[AVAILABLE_AT])), last[POSITION])
        if not rows:
            return Claim((), floor, next_due)
        return Claim(all_claimed(rows, request, self._times), floor, next_due)

    def _claim_values(self, request: ClaimRequest) -> dict[str, object]:
        floor = request.floor if isinstance(request.floor, tuple) else (self._times.earliest, -1)
        return {
            "owner": request.owner,
            "limit": request.limit,
            "lock_timeout": to_micros(request.lock_timeout),
            "skip_recent": to_micros(request.skip_recent),
            "floor_at": floor[0],
            "floor_position": floor[1],
            "is_alone": self._is_alone(),
        }

    def _is_alone(self) -> bool:
        """Whether a claim is a transaction of its own, and not part of somebody's."""
        return True

    async def heads(self, request: HeadsRequest) -> Heads:
        if not request.partitions:
            return Heads(())
        heads = [head_of(row) for row in await self._explained(self._runs.heads(request, is_alone=self._is_alone()))]
        return Heads(heads, heads[-1].key if len(heads) >= request.limit else None)

    async def claim_keys(self, request: KeyClaimRequest) -> Claim:
        refuse_nobody(request.owner)
        if not request.keys:
            return Claim(())
        values = {
            **run_values(request, self.dialect),
            "owner": request.owner,
            "lock_timeout": to_micros(request.lock_timeout),
            "is_alone": self._is_alone(),
        }
        rows = await self._explained(self._runs.claim_keys(request, values))
        if not rows:
            return Claim(())
        rows.sort(key=itemgetter(POSITION))
        now, keys = self._times.read(rows[0][NOW]), {key.key: key for key in request.keys}
        return Claim(
            [claimed_of(row, request, self._times, now, keys.get(row[EVENT_KEY] or row[EVENT_ID])) for row in rows]
        )

    async def settle(self, settlements: Sequence[Settlement]) -> Collection[RowKey]:
        return await self._changes.settle(settlements)

    async def settle_in(self, tx: Tx, lease: Lease, done_handlers: tuple[str, ...] = ()) -> bool:
        return await self._changes.settle_in(tx, lease, done_handlers)

    async def renew(self, leases: Sequence[Lease], lock_timeout: timedelta) -> Collection[RowKey]:
        if not leases:
            return ()
        return await self._changes.renew([held_row(lease) for lease in leases], to_micros(lock_timeout))

    async def mark_suspect(self, lease: Lease, count: int = 1) -> bool:
        return await self._changes.mark_suspect(held_row(lease, count))

    async def surviving(self, tx: Tx, keys: Sequence[RowKey]) -> Collection[RowKey]:
        statement = self._sql["surviving"]
        ids = statement.bind(event_ids=self.dialect.list([key.event_id for key in keys]))
        return {RowKey(*row) for row in await tx.fetch(statement.sql, ids)}

    def is_row_fault(self, error: Exception) -> bool:
        return self.executor.fault_of(error).is_of_one_row

    async def _explained(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        except Exception as error:
            self._explain(error)
            raise

    def _explain(self, error: Exception) -> None:
        """Raise our own word for what a user can mend, instead of the driver's."""
        if not isinstance(error, OutboxError):
            ours = explained(error, self.executor.fault_of(error), self.names, self.where)
            if ours is not None:
                raise ours from error

    async def close(self) -> None:
        await self.executor.close()
        if self._heartbeats is not self.executor:
            await self._heartbeats.close()

    def abandon(self) -> None:
        """In a forked child: leave the parent's connections alone."""
        self.executor.abandon()
        if self._heartbeats is not self.executor:
            self._heartbeats.abandon()
