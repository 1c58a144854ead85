"""A connection that the caller steers. Its commit cannot be seen: rows are born free, and the poller looks soon."""

from __future__ import annotations

from typing import Any

from aftercommit.errors import UnsupportedTransaction
from aftercommit.ports import AdoptedTx, Callback, WrittenRows


class DbapiTransaction:
    """The caller's own connection, in whatever transaction it is in."""

    observes_commit = False

    def __init__(self, connection: Any, tx: AdoptedTx) -> None:
        self._connection = connection
        self.tx = tx

    def is_transaction_active(self) -> bool:
        return self.tx.is_active

    def is_begun(self) -> bool:
        """Whether the database has it open already."""
        return self.tx.is_begun

    def current_connection(self) -> Any:
        return self._connection

    def after_commit(self, callback: Callback) -> None:
        raise self._unseen()

    def after_rollback(self, callback: Callback) -> None:
        raise self._unseen()

    def wrote(self, rows: WrittenRows) -> None:
        """Nothing of it is in memory, so nothing can be wrong there."""

    def _unseen(self) -> UnsupportedTransaction:
        return UnsupportedTransaction(
            "the commit of a plain DB-API connection cannot be observed", fix="use outbox.transaction() for callbacks"
        )
