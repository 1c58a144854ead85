"""How rows are leased, settled, renewed and replayed: by single statements where an UPDATE returns what it changed,
else by locking rows and changing what was seen, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import msgspec

from aftercommit.events.claims import ClaimRequest, Lease, RowKey, Settlement
from aftercommit.events.envelope import EventStatus
from aftercommit.events.outcome import DONE, Dead, Defer, Done, Release, Retry
from aftercommit.ports import Tx
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.execution import Executor
from aftercommit.stores.sql.failures import Failures, notes_of
from aftercommit.stores.sql.rows import AVAILABLE_AT, HELD_COLUMNS, NEXT_DUE, POSITION, HeldRow, as_group, to_micros
from aftercommit.stores.sql.statements import Statement, Statements

#: Outcomes of one kind, by the statement that writes them.
Groups = Mapping[Statement, list[HeldRow]]

#: How many batches far a claim looks that finds rows locked by other claimers.
_REACH: Final = 4

#: As many as a column can count.
_MOST: Final = 2**31 - 1

_key: Final = itemgetter(0, 1)
_due: Final = itemgetter(AVAILABLE_AT, POSITION)


class ByStatement(msgspec.Struct, eq=False, dict=True):
    """What every database can do with rows. Each call is a transaction of its own: here one statement, one round trip,
    for databases whose UPDATE returns the rows that it changed."""

    _executor: Executor
    _sql: Statements
    _dialect: Dialect
    #: What is delivered is marked, or deleted.
    _done: Statement

    def __post_init__(self) -> None:
        self._failures = Failures(self._sql, self._dialect)
        self._deletes = self._done is self._sql["delete"]

    async def claim(self, request: ClaimRequest, values: Mapping[str, object]) -> tuple[list[Any], float | None]:
        """The rows that were leased, and in how many seconds the next one falls due, when there are no more now."""
        claim = self._sql["claim"]
        rows = await self._executor.fetch(claim.sql, claim.values(values))
        if len(rows) >= request.limit:
            return rows, None
        try:
            if rows and len(rows[0]) > NEXT_DUE:
                micros = rows[0][NEXT_DUE]
            else:
                micros = (await self._executor.fetch(self._sql["next_due"].sql, writes=False))[0][0]
            return rows, None if micros is None else float(micros) / 1_000_000
        except Exception:
            if not rows:
                raise
            return rows, None  # they are leased by now, and must not be lost to a look at what comes later

    async def settle(self, settlements: Sequence[Settlement]) -> Collection[RowKey]:
        """The rows that the fence refused: those that were asked for and did not come back."""
        groups, failed, ended = self._grouped(settlements)
        if len(groups) == 1 and not failed and not ended:  # nearly always: all are done
            ((statement, rows),) = groups.items()
            changed = await self._executor.fetch(*self._said(statement, rows))
            return () if len(changed) == len(rows) else _missing(rows, changed)

        async def work(tx: Tx) -> set[RowKey]:
            refused: set[RowKey] = set()
            for statement, rows in groups.items():
                refused |= _missing(rows, await tx.fetch(*self._said(statement, rows)))
            await self._record(tx, failed, ended, refused)
            return refused

        return await self._executor.transact(work)

    async def _record(
        self, tx: Tx, failed: Sequence[Settlement], ended: Sequence[RowKey], refused: Collection[RowKey]
    ) -> None:
        """Why deliveries failed; of rows that are deleted by now nothing is kept."""
        await self._failures.add(tx, failed, refused)
        await self._failures.forget(tx, [key for key in ended if key not in refused])

    async def settle_in(self, tx: Tx, lease: Lease, done_handlers: tuple[str, ...]) -> bool:
        """In somebody's transaction, one row: done, or done by these of its handlers. Whether its lease stood."""
        row = (*lease.key, lease.owner, lease.epoch, None, None, 0, as_group(done_handlers) if done_handlers else None)
        stands = await self._stood(tx, self._sql["done_in_part"] if done_handlers else self._done, row)
        if stands and self._deletes and lease.epoch > 1 and not done_handlers:
            await self._failures.forget(tx, [lease.key])
        return stands

    async def _stood(self, tx: Tx, statement: Statement, row: HeldRow) -> bool:
        name = "delete_alone" if self._deletes else "done_alone"
        alone = self._sql.get(name) if statement is self._done else None
        if alone is None:
            return bool(await tx.fetch(*self._said(statement, [row])))
        return bool(await tx.fetch(alone.sql, alone.values(dict(zip(HELD_COLUMNS, row, strict=True)))))

    async def purge(self, name: str, values: Mapping[str, object]) -> int:
        """Delete rows by this statement; how many."""
        statement = self._sql[name]

        async def work(tx: Tx) -> int:
            deleted = await tx.fetch(statement.sql, statement.values(values))
            await self._failures.forget(tx, [(row[0], row[1]) for row in deleted])
            return len(deleted)

        return await self._executor.transact(work)

    def _said(self, statement: Statement, rows: Sequence[HeldRow], **values: object) -> tuple[str, Sequence[object]]:
        """A statement about a group, with its parameters."""
        return statement.sql, statement.values(values | self._dialect.group(rows, statement.names))

    async def mark_suspect(self, row: HeldRow) -> bool:
        return bool(await self._executor.execute(*self._said(self._sql["mark_suspect"], [row])))

    async def renew(self, rows: Sequence[HeldRow], lock_timeout: int) -> Collection[RowKey]:
        """The rows whose leases still stand. One that somebody has locked is being settled, and needs no renewal."""
        statement = self._sql["renew"]
        renewed = await self._executor.fetch(*self._said(statement, rows, lock_timeout=lock_timeout))
        return {RowKey(*row) for row in renewed}

    async def replay_after(self, values: Mapping[str, object]) -> list[int]:
        """The positions that were replayed."""
        statement = self._sql["replay_after"]
        return [row[0] for row in await self._executor.fetch(statement.sql, statement.values(values))]

    def _grouped(self, settlements: Sequence[Settlement]) -> tuple[Groups, list[Settlement], list[RowKey]]:
        """Which statement writes an outcome, and with which values; what failed; and which rows are deleted that may
        have failed before: not those that end under their first epoch."""
        sql, deletes = self._sql, self._deletes
        failed: list[Settlement] = []
        ended: list[RowKey] = []
        done_rows: list[HeldRow] = []
        groups: dict[Statement, list[HeldRow]] = {}
        for settlement in settlements:
            lease, statement = settlement.lease, self._done
            if settlement.outcome is DONE:  # nearly all are
                done_rows.append((*lease.key, lease.owner, lease.epoch, None, None, 0, None))
                if deletes and lease.epoch > 1:
                    ended.append(lease.key)
                continue
            delay: int | None = None
            error: str | None = None
            done: tuple[str, ...] = ()
            counted: int | None = 0
            match settlement.outcome:
                case Done():
                    if deletes and lease.epoch > 1:
                        ended.append(lease.key)
                case Retry(after, error, done, limit):
                    statement, delay = sql["retry"], to_micros(after)
                    # MySQL may assign in the order that is written: there the count comes behind what judges it.
                    counted = None if limit is None else min(limit, _MOST)
                case Defer(after, done):
                    statement, delay = sql["defer"], to_micros(after)
                case Dead(error, is_counted, done):
                    statement, counted = sql["dead"], int(is_counted)
                case Release(was_started, done, is_suspect, was_marked):
                    # An unstarted suspect gets an owner whose id is empty, as nobody's is, and is taken over from him.
                    statement = sql["release"]
                    counted = 1 if was_started else -2 if was_marked else -int(is_suspect)
            if notes_of(settlement):
                failed.append(settlement)
            handlers = as_group(done) if done else None
            row = (*lease.key, lease.owner, lease.epoch, delay, error, counted, handlers)
            groups.setdefault(statement, []).append(row)
        if done_rows:
            groups.setdefault(self._done, []).extend(done_rows)
        return groups, failed, ended


def _missing(rows: Sequence[HeldRow], returned: Sequence[Sequence[Any]]) -> set[RowKey]:
    changed = {(row[0], row[1]) for row in returned}
    return {RowKey(row[0], row[1]) for row in rows if (row[0], row[1]) not in changed}


class ByLocking(ByStatement):
    """Look, then change what was seen, in one transaction: for databases whose UPDATE does not tell what it changed.
    Groups travel as JSON there."""

    def __post_init__(self) -> None:
        super().__post_init__()
        #: The statuses of each look.
        self._looks: tuple[int | None, ...] = (
            (EventStatus.NEW.value, EventStatus.RETRY.value) if self._dialect.claims_by_status else (None,)
        )
        self._list: Callable[[Sequence[object]], object] = as_group

    async def claim(self, request: ClaimRequest, values: Mapping[str, object]) -> tuple[list[Any], float | None]:
        async def work(tx: Tx) -> tuple[list[Any], float | None]:
            select, rows = self._sql["claim_select"], list[Any]()
            for status in self._looks:
                look = {**values, "status": status, "reach": _REACH * request.limit}
                rows += await tx.fetch(select.sql, select.values(look))
            if len(self._looks) > 1:
                rows.sort(key=_due)
                del rows[request.limit :]
            if rows:
                mark, positions = self._sql["claim_mark"], self._list([row[POSITION] for row in rows])
                await tx.execute(mark.sql, mark.values({**values, "positions": positions}))
            if len(rows) >= request.limit:
                return rows, None
            micros = (await tx.fetch(self._sql["next_due"].sql))[0][0]
            return rows, None if micros is None else float(micros) / 1_000_000

        return await self._executor.transact(work)

    async def settle(self, settlements: Sequence[Settlement]) -> Collection[RowKey]:
        """All as groups first; only when the fence refused some of them, row by row to find out which."""
        groups, failed, ended = self._grouped(settlements)

        async def in_groups(tx: Tx) -> None:
            for statement, rows in groups.items():
                rows.sort(key=_key)  # as the index has them: groups that share rows wait in one direction only
                if await tx.execute(statement.sql, (msgspec.json.encode(rows).decode(),)) != len(rows):
                    raise _Refused
            if failed or ended:
                await self._record(tx, failed, ended, ())

        try:
            await self._executor.transact(in_groups)
        except _Refused:
            return await self._row_by_row(groups, failed, ended)
        return ()

    async def _stood(self, tx: Tx, statement: Statement, row: HeldRow) -> bool:
        return bool(await tx.execute(*self._said(statement, [row])))

    async def _row_by_row(
        self, groups: Groups, failed: Sequence[Settlement], ended: Sequence[RowKey]
    ) -> Collection[RowKey]:
        """The rows that the fence refused."""

        async def work(tx: Tx) -> set[RowKey]:
            refused = {
                RowKey(row[0], row[1])
                for statement, rows in groups.items()
                for row in rows
                if not await tx.execute(*self._said(statement, [row]))
            }
            await self._record(tx, failed, ended, refused)
            return refused

        return await self._executor.transact(work)

    async def renew(self, rows: Sequence[HeldRow], lock_timeout: int) -> Collection[RowKey]:
        held = sorted(rows, key=_key)

        async def work(tx: Tx) -> set[RowKey]:
            look, renew = self._sql["renewable"], self._sql["renew"]
            found = {RowKey(*row) for row in await tx.fetch(look.sql, look.bind(held=as_group(held)))}
            group = [row for row in held if (row[0], row[1]) in found]
            if group:
                await tx.execute(renew.sql, renew.bind(lock_timeout=lock_timeout, held=as_group(group)))
            return found

        return await self._executor.transact(work)

    async def replay_after(self, values: Mapping[str, object]) -> list[int]:
        async def work(tx: Tx) -> list[int]:
            look, replay = self._sql["replayable"], self._sql["replay_positions"]
            positions = [row[0] for row in await tx.fetch(look.sql, look.values(values))]
            if positions:
                await tx.execute(replay.sql, replay.bind(positions=self._list(positions)))
            return positions

        return await self._executor.transact(work)


class _Refused(Exception):
    """The fence refused a row of a group; the transaction is rolled back."""
