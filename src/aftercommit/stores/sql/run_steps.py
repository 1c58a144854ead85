"""Heads and runs of keys: looked for, locked, and leased step by step in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aftercommit.events.order import HeadsRequest, KeyClaimRequest
from aftercommit.ports import Tx
from aftercommit.stores.sql.execution import Executor
from aftercommit.stores.sql.rows import POSITION, as_group
from aftercommit.stores.sql.runs import Candidate, heads_at_once, run_values, unbroken
from aftercommit.stores.sql.statements import Dialect, Statements


class RunsInSteps:
    """What is listed without a lock may have changed before it is locked; then it ends its run."""

    def __init__(self, executor: Executor, statements: Statements, dialect: Dialect) -> None:
        self._executor = executor
        self._sql = statements
        self._dialect = dialect

    async def heads(self, request: HeadsRequest) -> list[Any]:
        return await heads_at_once(request, self._executor, self._sql, self._dialect)

    async def claim_keys(self, request: KeyClaimRequest, values: Mapping[str, object]) -> list[Any]:
        """Listed without a lock, then locked one by one: what was not locked ends its run."""

        async def work(tx: Tx) -> list[Any]:
            lock, mark = self._sql["run_lock"], self._sql["claim_mark"]
            listed = await self._candidates(tx, request)
            if not listed:
                return []
            seen = as_group([(each.position, each.epoch, int(each.is_due)) for each in listed])
            rows = {row[POSITION]: row for row in await tx.fetch(lock.sql, lock.bind(**values, candidates=seen))}
            run = unbroken(await self._confirmed(tx, request, listed), rows, stops=request.rule.stops)
            leased = [each.position for each in run if each.is_due]
            if leased:
                await tx.execute(mark.sql, mark.bind(**values, positions=self._dialect.list(leased)))
                await self._pass_over(tx, [each.position for each in run if not each.is_due])
            return [rows[position] for position in leased]

        return await self._executor.transact(work)

    async def _candidates(self, tx: Tx, request: KeyClaimRequest) -> list[Candidate]:
        look = self._sql["run_candidates"]
        rows = await tx.fetch(look.sql, look.bind(**run_values(request, self._dialect)))
        return [Candidate(*row) for row in rows]

    async def _confirmed(self, tx: Tx, request: KeyClaimRequest, listed: list[Candidate]) -> list[Candidate]:
        """The list again, where a list may lack what was written before the rows in it. A snapshot lacks nothing."""
        return listed

    async def _pass_over(self, tx: Tx, positions: Sequence[int]) -> None:
        """Others who have listed these rows meanwhile, because they fell due, shall see that somebody was here."""
        if positions and "pass_over" in self._sql:
            statement = self._sql["pass_over"]
            await tx.execute(statement.sql, statement.bind(positions=self._dialect.list(positions)))
