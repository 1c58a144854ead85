"""One statement, one round trip: for databases whose UPDATE returns the rows that it changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from aftercommit.events.claims import ClaimRequest, RowKey
from aftercommit.events.order import HeadsRequest, KeyClaimRequest
from aftercommit.ports import Tx
from aftercommit.stores.sql.execution import Executor
from aftercommit.stores.sql.rows import HeldRow
from aftercommit.stores.sql.runs import heads_at_once
from aftercommit.stores.sql.statements import Dialect, Statement, Statements

#: Outcomes of one kind, by the statement that writes them.
Groups = Mapping[Statement, list[HeldRow]]


class AtOnce:
    """Claims, settles and renews by single statements, each a transaction of its own."""

    def __init__(self, executor: Executor, statements: Statements, dialect: Dialect) -> None:
        self._executor = executor
        self._sql = statements
        self._dialect = dialect

    async def claim(self, request: ClaimRequest, values: Mapping[str, object]) -> tuple[list[Any], float | None]:
        claim = self._sql["claim"]
        rows = await self._executor.fetch(claim.sql, claim.bind(**values))
        if len(rows) >= request.limit:
            return rows, None
        try:
            return rows, await self._next_due()
        except Exception:
            if not rows:
                raise
            return rows, None  # they are leased by now, and must not be lost to a look at what comes later

    async def heads(self, request: HeadsRequest) -> list[Any]:
        return await heads_at_once(request, self._executor, self._sql, self._dialect)

    async def claim_keys(self, _: KeyClaimRequest, values: Mapping[str, object]) -> list[Any]:
        claim = self._sql["claim_keys"]
        return await self._executor.fetch(claim.sql, claim.bind(**values))

    async def _next_due(self) -> float | None:
        micros = (await self._executor.fetch(self._sql["next_due"].sql, writes=False))[0][0]
        return None if micros is None else float(micros) / 1_000_000

    async def settle(self, groups: Groups) -> Collection[RowKey]:
        """The rows that the fence refused: those that were asked for and did not come back."""
        if len(groups) == 1:  # nearly always: all are done
            ((statement, rows),) = groups.items()
            return _missing(rows, await self._executor.fetch(statement.sql, self._bound(statement, rows)))

        async def work(tx: Tx) -> set[RowKey]:
            refused: set[RowKey] = set()
            for statement, rows in groups.items():
                refused |= _missing(rows, await tx.fetch(statement.sql, self._bound(statement, rows)))
            return refused

        return await self._executor.transact(work)

    def _bound(self, statement: Statement, rows: Sequence[HeldRow], **values: object) -> tuple[object, ...]:
        return statement.bind(**values, **self._dialect.group(rows, statement.names))

    async def renew(self, rows: Sequence[HeldRow], lock_timeout: int) -> Collection[RowKey]:
        statement = self._sql["renew"]
        renewed = await self._executor.fetch(statement.sql, self._bound(statement, rows, lock_timeout=lock_timeout))
        return {RowKey(*row) for row in renewed}

    async def replay_after(self, values: Mapping[str, object]) -> list[int]:
        """The positions that were replayed."""
        statement = self._sql["replay_after"]
        return [row[0] for row in await self._executor.fetch(statement.sql, statement.bind(**values))]


def _missing(rows: Sequence[HeldRow], returned: Sequence[Sequence[Any]]) -> set[RowKey]:
    if len(rows) == len(returned):
        return set()
    changed = {(row[0], row[1]) for row in returned}
    return {RowKey(row[0], row[1]) for row in rows if (row[0], row[1]) not in changed}
