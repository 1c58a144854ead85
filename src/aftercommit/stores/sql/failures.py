"""The last errors of rows, in a table of their own: written in the transaction of the outcome, gone with the row."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from aftercommit.events.claims import RowKey, Settlement
from aftercommit.events.outcome import Dead, FailureNote, Retry
from aftercommit.events.records import KEPT_FAILURES
from aftercommit.ports import Tx
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.rows import HeldRow
from aftercommit.stores.sql.statements import Statements


def notes_of(settlement: Settlement) -> tuple[FailureNote, ...]:
    """What is to be written down of an outcome."""
    return settlement.outcome.failures if isinstance(settlement.outcome, Retry | Dead) else ()


class Failures(msgspec.Struct, eq=False, dict=True):
    """Beside the rows. Nothing of it is touched by an event that is delivered at its first attempt."""

    _sql: Statements
    _dialect: Dialect

    async def add(self, tx: Tx, failed: Sequence[Settlement], refused: Collection[RowKey]) -> None:
        """Write down why these deliveries failed, but for those that the fence refused."""
        kept = [each for each in failed if each.lease.key not in refused]
        if not kept:
            return
        add, trim = self._sql["add_failure"], self._sql["trim_failures"]
        await tx.execute_many(
            add.sql,
            [
                add.bind(
                    event_id=each.lease.key.event_id,
                    handler_id=each.lease.key.handler_id,
                    attempt=note.attempt,
                    handler=note.handler,
                    instance=each.lease.owner,
                    error_class=note.error_class,
                    message=note.message,
                    traceback=note.traceback,
                )
                for each in kept
                for note in notes_of(each)
            ],
        )
        # Each failure had an epoch of its own, so a row with few of them cannot have many.
        for each in kept:
            if each.lease.epoch > KEPT_FAILURES or len(notes_of(each)) > 1:
                event_id, handler_id = each.lease.key
                await tx.execute(trim.sql, trim.bind(event_id=event_id, handler_id=handler_id, kept=KEPT_FAILURES))

    async def forget(self, tx: Tx, rows: Sequence[tuple[str, str]]) -> None:
        """Of rows that are no more."""
        if rows:
            statement = self._sql["forget_failures"]
            gone: list[HeldRow] = [(*row, "", 0, None, None, 0, None) for row in rows]
            for group in [[each] for each in gone] if self._dialect.is_row_by_row else [gone]:
                await tx.execute(statement.sql, statement.values(self._dialect.group(group, statement.names)))
