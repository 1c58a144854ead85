"""A connection that the caller steers. Its commit cannot be seen: rows are born free, and the poller looks soon."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from aftercommit.claims import RowKey
from aftercommit.errors import UnsupportedTransaction
from aftercommit.ports import Tx


class DbapiTransaction:
    """The caller's own sqlite3 connection, in whatever transaction it is in."""

    observes_commit = False

    def __init__(self, connection: sqlite3.Connection, tx: Tx) -> None:
        self._connection = connection
        self.tx = tx

    def is_transaction_active(self) -> bool:
        """Begun, or in a mode in which the driver begins one before the INSERT."""
        try:
            if self._connection.in_transaction:
                return True
        except sqlite3.ProgrammingError:  # it is closed
            return False
        # Since Python 3.12: True, False, or LEGACY (-1) for the rule of isolation_level.
        autocommit = getattr(self._connection, "autocommit", -1)
        return not autocommit if autocommit != -1 else self._connection.isolation_level is not None

    def current_connection(self) -> Any:
        return self._connection

    def after_commit(self, callback: Callable[[], None]) -> None:
        raise self._unseen()

    def after_rollback(self, callback: Callable[[], None]) -> None:
        raise self._unseen()

    def wrote(self, keys: Sequence[RowKey], lost: object) -> None:
        """Nothing of it is in memory, so nothing can be wrong there."""

    def _unseen(self) -> UnsupportedTransaction:
        return UnsupportedTransaction(
            "the commit of a plain DB-API connection cannot be observed", fix="use outbox.transaction() for callbacks"
        )
