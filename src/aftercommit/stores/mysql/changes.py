"""What MySQL goes about in its own way: a DELETE does not tell what it deleted. And TiDB, which takes no groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from aftercommit.events.claims import RowKey, Settlement
from aftercommit.ports import Tx
from aftercommit.stores.sql.changes import ByLocking
from aftercommit.stores.sql.rows import HeldRow

#: How rows are found before they are deleted.
_LOOKS: Final = {"purge": "purgeable", "purge_aged": "purgeable_aged"}


class MysqlChanges(ByLocking):
    """Rows are found first, and deleted if they are still as they were found."""

    async def purge(self, name: str, values: Mapping[str, object]) -> int:
        look, delete = self._sql[_LOOKS[name]], self._sql[name]

        async def work(tx: Tx) -> int:
            found = await tx.fetch(look.sql, look.values(values))
            if not found:
                return 0
            positions = self._list([row[0] for row in found])
            deleted = await tx.execute(delete.sql, delete.values({**values, "positions": positions}))
            await self._failures.forget(tx, [(row[1], row[2]) for row in found])
            return deleted

        return await self._executor.transact(work)


class RowByRow(MysqlChanges):
    """A statement for each row, for a server that takes no group as JSON: slower, and said in the plainest SQL."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._list = self._dialect.list

    async def settle(self, settlements: Sequence[Settlement]) -> Collection[RowKey]:
        return await self._row_by_row(*self._grouped(settlements))

    async def renew(self, rows: Sequence[HeldRow], lock_timeout: int) -> Collection[RowKey]:
        """Each by itself, so that nobody who settles one of them waits for all."""
        renew = self._sql["renew"]
        return {
            RowKey(row[0], row[1])
            for row in rows
            if await self._executor.execute(*self._said(renew, [row], lock_timeout=lock_timeout))
        }
