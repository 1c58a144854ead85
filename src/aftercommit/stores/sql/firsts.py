"""Events with a key that are born leased: only as the first of their key, and only where no other transaction can write
that key until this one has ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from aftercommit.events.claims import NewEvent, RowKey
from aftercommit.events.order import OrderKey
from aftercommit.ports import Tx
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.runs import asked_values
from aftercommit.stores.sql.statements import Statements


class Firsts:
    """Finds out which events are the first of their keys: nothing of it is unfinished, nor dead where that blocks.
    It is asked behind the lock on the keys, in a statement of its own: the snapshot of a statement is older than the
    locks that it waits for."""

    def __init__(self, sql: Statements, dialect: Dialect, *, blocks: bool) -> None:
        self._sql = sql
        self._dialect = dialect
        self._blocks = blocks

    async def lock(self, tx: Tx, events: Sequence[NewEvent], table: str) -> None:
        """Before the positions of what has a key are drawn."""
        named = [new.event.key for new in events if new.event.key is not None]
        if named:
            statement = self._sql["lock_keys"]
            # Prepared, as it has no plan that could go wrong. It waits, and so it is a statement of its own: a snapshot
            # is older than the locks of its statement.
            await tx.execute(statement.sql, statement.bind(table=table, keys=self._dialect.list(named)))

    async def only(self, tx: Tx, events: Sequence[NewEvent]) -> Sequence[NewEvent]:
        """The events as they may be written: what is not the first of its key is born free."""
        asked = [
            OrderKey(new.partition, new.event.key)
            for new in events
            if new.owner is not None and new.event.key is not None
        ]
        if not asked:
            return events
        statement = self._sql["busy_keys"]
        values = {**asked_values(asked, self._dialect), "blocks": self._blocks}
        busy = {row[0] for row in await tx.fetch(statement.sql, statement.values(values))}
        return [replace(new, owner=None) if new.event.key in busy else new for new in events] if busy else events


def free_of(events: Sequence[NewEvent]) -> Collection[RowKey]:
    """Those that are born free."""
    return {RowKey(new.event.event_id, new.handler_id) for new in events if new.owner is None}
