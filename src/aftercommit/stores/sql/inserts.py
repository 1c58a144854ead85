"""How new rows get into the table: by one statement where that can be; those with a unique key only while no other
event that is not done has it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from aftercommit.events.claims import NewEvent, RowKey
from aftercommit.ports import Tx
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.execution import Fault
from aftercommit.stores.sql.rows import insert_values, unique_values
from aftercommit.stores.sql.statements import Statements


class Inserts:
    """In the transaction that it is given, in order, all or none."""

    def __init__(self, sql: Statements, dialect: Dialect, fault_of: Callable[[Exception], Fault]) -> None:
        self._sql = sql
        self._dialect = dialect
        self._times = dialect.times
        self._fault_of = fault_of

    async def plain(self, tx: Tx, events: Sequence[NewEvent]) -> None:
        """Events without a unique key."""
        if len(events) == 1:
            statement = self._sql["insert"]
            await tx.execute(statement.sql, statement.values(insert_values(events[0], self._times)))
            return
        rows = [insert_values(event, self._times) for event in events]
        if (array := self._dialect.array) is not None:
            statement = self._sql["insert_many"]
            columns = [array(column) for column in zip(*map(statement.values, rows), strict=True)]
            await tx.execute(statement.sql, columns)
        else:  # in one call, which writes all or none
            statement = self._sql["insert"]
            await tx.execute_many(statement.sql, list(map(statement.values, rows)))

    async def unique(self, tx: Tx, events: Sequence[NewEvent]) -> Collection[RowKey]:
        """Events some of which have a unique key; those that are not written. The database's unique index decides, at
        every level of isolation, and lets the second of two transactions wait for the first."""
        if (array := self._dialect.array) is not None and len(events) > 1:
            statement = self._sql["insert_many_unique"]
            rows = [statement.values(unique_values(event, self._times)) for event in events]
            columns = [array(column) for column in zip(*rows, strict=True)]
            written = {RowKey(*row) for row in await tx.fetch(statement.sql, columns)}
            return [key for key in map(_key_of, events) if key not in written]
        refused: list[RowKey] = []
        for number, event in enumerate(events):
            try:
                if not await self._one(tx, event):
                    refused.append(_key_of(event))
            except Exception:
                await self._take_back(tx, [key for key in map(_key_of, events[:number]) if key not in refused])
                raise
        return refused

    async def _one(self, tx: Tx, event: NewEvent) -> bool:
        """Whether it is written."""
        if event.event.unique_key is None:
            await self.plain(tx, [event])
            return True
        statement = self._sql["insert_unique"]
        try:
            return await tx.execute(statement.sql, statement.values(unique_values(event, self._times))) > 0
        except Exception as error:
            # Where an INSERT cannot say that only this index may refuse it, somebody has to look which one it was.
            look = self._sql.get("has_unique")
            if look is None or self._fault_of(error) is not Fault.ROW:
                raise
            if not await tx.fetch(look.sql, look.bind(unique_key=event.event.unique_key)):
                raise
            return False

    async def _take_back(self, tx: Tx, keys: Sequence[RowKey]) -> None:
        """Not by a savepoint, which begins a transaction, and commits it, where the driver has not begun one."""
        statement = self._sql["unwrite"]
        with suppress(Exception):  # a lost connection or a deadlock has undone all of it already
            for key in keys:
                await tx.execute(statement.sql, statement.bind(event_id=key.event_id, handler_id=key.handler_id))


def _key_of(new: NewEvent) -> RowKey:
    return RowKey(new.event.event_id, new.handler_id)
