"""Look, then change what was seen, in one transaction: for databases whose UPDATE does not tell what it changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from aftercommit.events.claims import ClaimRequest, RowKey
from aftercommit.events.envelope import EventStatus
from aftercommit.ports import Tx
from aftercommit.stores.sql.execution import Executor
from aftercommit.stores.sql.rows import AVAILABLE_AT, POSITION, HeldRow
from aftercommit.stores.sql.run_steps import RunsInSteps
from aftercommit.stores.sql.statements import Dialect, Statement, Statements

#: Outcomes of one kind, by the statement that writes them.
Groups = Mapping[Statement, list[HeldRow]]

#: How many batches far a claim looks that finds rows locked by other claimers.
_REACH: Final = 4


class InSteps(RunsInSteps):
    """Claims, settles and renews by a SELECT that locks and an UPDATE of what it found."""

    def __init__(self, executor: Executor, statements: Statements, dialect: Dialect) -> None:
        super().__init__(executor, statements, dialect)
        #: The statuses of each look.
        self._looks: tuple[int | None, ...] = (
            (EventStatus.NEW.value, EventStatus.RETRY.value) if dialect.claims_by_status else (None,)
        )

    async def claim(self, request: ClaimRequest, values: Mapping[str, object]) -> tuple[list[Any], float | None]:
        async def work(tx: Tx) -> tuple[list[Any], float | None]:
            select, rows = self._sql["claim_select"], list[Any]()
            for status in self._looks:
                rows += await tx.fetch(select.sql, select.bind(**values, status=status, reach=_REACH * request.limit))
            if len(self._looks) > 1:
                rows.sort(key=lambda row: (row[AVAILABLE_AT], row[POSITION]))
                del rows[request.limit :]
            if rows:
                mark = self._sql["claim_mark"]
                await tx.execute(
                    mark.sql, mark.bind(**values, positions=self._dialect.list([row[POSITION] for row in rows]))
                )
            return rows, None if len(rows) >= request.limit else await self._next_due(tx)

        return await self._executor.transact(work)

    async def _next_due(self, tx: Tx) -> float | None:
        micros = (await tx.fetch(self._sql["next_due"].sql))[0][0]
        return None if micros is None else float(micros) / 1_000_000

    async def settle(self, groups: Groups) -> Collection[RowKey]:
        """All as groups first; only when the fence refused some of them, row by row to find out which."""
        try:
            await self._executor.transact(lambda tx: self._in_groups(tx, groups))
        except _Refused:
            return await self._executor.transact(lambda tx: self._row_by_row(tx, groups))
        return ()

    async def _in_groups(self, tx: Tx, groups: Groups) -> None:
        for statement, rows in groups.items():
            if await self._write(tx, statement, rows) != len(rows):
                raise _Refused

    async def _row_by_row(self, tx: Tx, groups: Groups) -> set[RowKey]:
        return {
            RowKey(row[0], row[1])
            for statement, rows in groups.items()
            for row in rows
            if not await self._write(tx, statement, [row])
        }

    async def _write(self, tx: Tx, statement: Statement, rows: Sequence[HeldRow]) -> int:
        return await tx.execute(statement.sql, statement.bind(**self._dialect.group(rows)))

    async def renew(self, rows: Sequence[HeldRow], lock_timeout: int) -> Collection[RowKey]:
        """A row that somebody has locked is being settled, and needs no renewal."""

        async def work(tx: Tx) -> set[RowKey]:
            look, renew = self._sql["renewable"], self._sql["renew"]
            found = await tx.fetch(look.sql, look.bind(**self._dialect.group(rows)))
            keys = {RowKey(*row) for row in found}
            group = [row for row in rows if (row[0], row[1]) in keys]
            if group:
                await tx.execute(renew.sql, renew.bind(lock_timeout=lock_timeout, **self._dialect.group(group)))
            return keys

        return await self._executor.transact(work)

    async def replay_after(self, values: Mapping[str, object]) -> list[int]:
        """The positions that were replayed."""

        async def work(tx: Tx) -> list[int]:
            look, replay = self._sql["replayable"], self._sql["replay_positions"]
            positions = [row[0] for row in await tx.fetch(look.sql, look.bind(**values))]
            if positions:
                await tx.execute(replay.sql, replay.bind(positions=self._dialect.list(positions)))
            return positions

        return await self._executor.transact(work)


class _Refused(Exception):
    """The fence refused a row of a group; the transaction is rolled back."""
