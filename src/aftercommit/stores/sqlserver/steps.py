"""How SQL Server changes rows: by single statements, but for runs of keys."""

from __future__ import annotations

from aftercommit.events.order import KeyClaimRequest
from aftercommit.ports import Tx
from aftercommit.stores.sql.at_once import AtOnce
from aftercommit.stores.sql.run_steps import RunsInSteps
from aftercommit.stores.sql.runs import Candidate


class SqlServerSteps(RunsInSteps, AtOnce):
    """A list of rows is no snapshot here: a scan may pass the place of a row that is written then, and come to one that
    was written after it. A second list, taken when the rows of the first are locked, has both."""

    async def _confirmed(self, tx: Tx, request: KeyClaimRequest, listed: list[Candidate]) -> list[Candidate]:
        ends = {each.number: each.position for each in listed}
        return [each for each in await self._candidates(tx, request) if each.position <= ends.get(each.number, -1)]
