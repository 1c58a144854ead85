"""How events with a unique key get into the table: only while no other event that is not done has it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from aftercommit.events.claims import NewEvent, RowKey
from aftercommit.ports import Tx
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.execution import Fault
from aftercommit.stores.sql.inserting import unique_values
from aftercommit.stores.sql.statements import Statements

#: Writes events that have none.
Insert = Callable[[Tx, Sequence[NewEvent]], Coroutine[Any, Any, object]]


class Uniques:
    """In the transaction that it is given, in order, all or none."""

    def __init__(
        self, sql: Statements, dialect: Dialect, plain: Insert, fault_of: Callable[[Exception], Fault]
    ) -> None:
        self._sql = sql
        self._dialect = dialect
        self._plain = plain
        self._times = dialect.times
        self._fault_of = fault_of

    async def insert(self, tx: Tx, events: Sequence[NewEvent]) -> Collection[RowKey]:
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
            await self._plain(tx, [event])
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
