"""What begin() gives: a handle on a transaction, which nobody can end any more once the handle is gone."""

from __future__ import annotations

from typing import Any, Self

from aftercommit.events.log import Log
from aftercommit.runtime.process import here
from aftercommit.transactions.owned import OwnedTransaction, given_up

log = Log("aftercommit.transactions")


class ByHand:
    """Everything of the transaction itself. Only users hold it, so it goes when they have let go of it."""

    def __init__(self, transaction: OwnedTransaction) -> None:
        self.transaction = transaction

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transaction, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.transaction.__exit__(*error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.transaction.__aexit__(*error)

    def __del__(self) -> None:
        root = self.transaction._root
        # One inside another block ends with that, and a parent process's is not ours to end.
        if root is not None and root.blocks[0] is self.transaction and root.process is here.token:
            root.opener = None  # so that nobody finds it any more
            given_up.append(self.transaction)
            log.error(
                "[AC002] nobody has what begin() gave any more, and called neither commit() nor rollback(): the "
                "transaction is rolled back, and what was written in it is NOT saved. "
                "Fix: with outbox.begin() as tx: …; tx.commit()"
            )
