"""The event store over SQL, written once: it names statements and binds values; an executor runs them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from typing import Any, Final

from aftercommit.claims import Claim, ClaimRequest, Lease, NewEvent, RowKey, Settlement
from aftercommit.errors import InvalidOption
from aftercommit.outcome import Dead, Defer, Done, Release, Retry
from aftercommit.ports import Executor, Tx
from aftercommit.stores.identifiers import TableNames
from aftercommit.stores.records import SqlRecords
from aftercommit.stores.rows import HeldRow, as_group, claimed_of, held_row, insert_values, to_micros
from aftercommit.stores.schema import Schema
from aftercommit.stores.statements import Dialect, Statement, Statements

#: Before every row.
_NO_FLOOR: Final = (-(2**62), -1)

#: Where claim_select has it.
_AVAILABLE_AT: Final = 18


class SqlStore:
    """Events in one table. The executor's colour is the store's colour."""

    def __init__(
        self,
        executor: Executor,
        dialect: Dialect,
        *,
        table: str = "outbox_event",
        create_schema: bool = True,
        delete_completed: bool = False,
    ) -> None:
        self.colour = executor.colour
        self.executor = executor
        names = TableNames(table)
        self._sql = Statements(dialect, names)
        self._done = self._sql["delete" if delete_completed else "done"]
        self._schema = Schema(executor, self._sql, names, creates=create_schema)
        self.records = SqlRecords(executor, self._sql)

    @property
    def is_ready(self) -> bool:
        return self._schema.is_ready

    async def open(self) -> None:
        await self._schema.ensure()

    async def create_schema(self) -> None:
        await self._schema.create()

    async def insert(self, tx: Tx, events: Sequence[NewEvent]) -> None:
        statement = self._sql["insert"]
        try:
            if len(events) == 1:
                await tx.execute(statement.sql, statement.bind(**insert_values(events[0])))
                return
            if events:  # in one call, which writes all or none
                await tx.execute_many(statement.sql, [statement.bind(**insert_values(event)) for event in events])
        except Exception as error:
            self._schema.explain(error)
            raise

    async def claim(self, request: ClaimRequest) -> Claim:
        if not request.owner:
            raise InvalidOption("a claim has no owner, so it would lease rows to nobody", fix="pass the owner's id")

        async def work(tx: Tx) -> tuple[int, list[Any], float | None]:
            now = (await tx.fetch(self._sql["now"].sql))[0][0]
            rows = await self._select(tx, request, now)
            await self._mark(tx, request, now, rows)
            return now, rows, None if len(rows) >= request.limit else await self._next_due(tx, now)

        now, rows, next_due = await self.executor.transact(work)
        floor = (rows[-1][_AVAILABLE_AT], rows[-1][0]) if len(rows) >= request.limit else None
        rows.sort(key=lambda row: row[0])
        return Claim([claimed_of(row, request, now) for row in rows], floor, next_due)

    async def _select(self, tx: Tx, request: ClaimRequest, now: int) -> list[Any]:
        floor_at, floor_position = request.floor if isinstance(request.floor, tuple) else _NO_FLOOR
        statement = self._sql["claim_select"]
        values = statement.bind(
            owner=request.owner,
            now=now,
            floor_at=floor_at,
            floor_position=floor_position,
            skip_recent=to_micros(request.skip_recent),
            limit=request.limit,
        )
        return await tx.fetch(statement.sql, values)

    async def _mark(self, tx: Tx, request: ClaimRequest, now: int, rows: list[Any]) -> None:
        if not rows:
            return
        statement = self._sql["claim_mark"]
        values = statement.bind(
            owner=request.owner,
            now=now,
            lock_timeout=to_micros(request.lock_timeout),
            positions=as_group([row[0] for row in rows]),
        )
        await tx.execute(statement.sql, values)

    async def _next_due(self, tx: Tx, now: int) -> float | None:
        statement = self._sql["next_due"]
        micros = (await tx.fetch(statement.sql, statement.bind(now=now)))[0][0]
        return None if micros is None else float(micros) / 1_000_000

    async def settle(self, settlements: Sequence[Settlement]) -> Collection[RowKey]:
        """All as groups first; only when the fence refused some of them, row by row to find out which."""
        groups: dict[Statement, list[HeldRow]] = {}
        for settlement in settlements:
            statement, row = self._settled(settlement)
            groups.setdefault(statement, []).append(row)
        try:
            await self.executor.transact(lambda tx: _in_groups(tx, groups))
        except _Refused:
            return await self.executor.transact(lambda tx: self._row_by_row(tx, settlements))
        return ()

    async def _row_by_row(self, tx: Tx, settlements: Iterable[Settlement]) -> set[RowKey]:
        refused = set()
        for settlement in settlements:
            statement, row = self._settled(settlement)
            if not await tx.execute(statement.sql, statement.bind(held=as_group([row]))):
                refused.add(settlement.lease.key)
        return refused

    def _settled(self, settlement: Settlement) -> tuple[Statement, HeldRow]:
        """The statement that writes this outcome, and the row for it."""
        lease, outcome = settlement.lease, settlement.outcome
        match outcome:
            case Done():
                return self._done, held_row(lease)
            case Retry(delay, error, done):
                return self._sql["retry"], held_row(lease, delay=to_micros(delay), error=error, done_handlers=done)
            case Defer(delay, done):
                return self._sql["defer"], held_row(lease, delay=to_micros(delay), done_handlers=done)
            case Dead(error, counted, done):
                return self._sql["dead"], held_row(lease, error=error, counted=int(counted), done_handlers=done)
            case Release(was_started, done):
                return self._sql["release"], held_row(lease, counted=int(was_started), done_handlers=done)

    async def renew(self, leases: Sequence[Lease], lock_timeout: timedelta) -> Collection[RowKey]:
        statement = self._sql["renew"]
        values = statement.bind(
            lock_timeout=to_micros(lock_timeout), held=as_group([held_row(lease) for lease in leases])
        )
        rows = await self.executor.transact(lambda tx: tx.fetch(statement.sql, values))
        return {RowKey(*row) for row in rows}

    async def mark_suspect(self, lease: Lease) -> bool:
        statement = self._sql["mark_suspect"]
        values = statement.bind(held=as_group([held_row(lease)]))
        return bool(await self.executor.transact(lambda tx: tx.execute(statement.sql, values)))

    async def surviving(self, tx: Tx, keys: Sequence[RowKey]) -> Collection[RowKey]:
        statement = self._sql["surviving"]
        ids = statement.bind(event_ids=as_group([key.event_id for key in keys]))
        return {RowKey(*row) for row in await tx.fetch(statement.sql, ids)}

    def is_row_fault(self, error: Exception) -> bool:
        return self.executor.is_row_fault(error)

    async def close(self) -> None:
        await self.executor.close()

    def abandon(self) -> None:
        """In a forked child: leave the parent's connections alone."""
        self.executor.abandon()


class _Refused(Exception):
    """The fence refused a row of a group; the transaction is rolled back."""


async def _in_groups(tx: Tx, groups: dict[Statement, list[HeldRow]]) -> None:
    for statement, rows in groups.items():
        if await tx.execute(statement.sql, statement.bind(held=as_group(rows))) != len(rows):
            raise _Refused
