"""What MySQL goes about in its own way: a DELETE does not tell what it deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aftercommit.ports import Tx
from aftercommit.stores.sql.changes import ByLocking

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
