"""The atomic block around a transactional handler, on Django's connection of the thread that runs it."""

from __future__ import annotations

from typing import Any

from django.db import connections
from django.db.transaction import atomic

from aftercommit.django.store import DjangoStore
from aftercommit.events.claims import Lease
from aftercommit.events.log import Log
from aftercommit.events.redact import error_text

log = Log("aftercommit.django")


class AtomicTx:
    """Begun by entering an atomic block, and ended by leaving it; inside of another one it is a savepoint."""

    def __init__(self, alias: str, store: DjangoStore) -> None:
        self._alias, self._store = alias, store
        self._block: Any = None
        self.is_committed = False

    async def begin(self) -> Any:
        connection, block = connections[self._alias], atomic(using=self._alias)
        is_inner = connection.in_atomic_block
        block.__enter__()
        self._block = block
        if not is_inner:  # to know of the commit although a function of the user's fails behind it
            connection.on_commit(self._committed)
        return connection

    def _committed(self) -> None:
        self.is_committed = True

    async def mark(self, lease: Lease, done_handlers: tuple[str, ...]) -> bool:
        return await self._store.settle_in(self._store.vendor.tx(connections[self._alias]), lease, done_handlers)

    async def commit(self) -> None:
        block, self._block = self._block, None
        block.__exit__(None, None, None)
        self._committed()

    async def undo(self, cause: BaseException | None) -> None:
        block, self._block = self._block, None
        if block is None:
            return
        error = _Undone() if cause is None else cause
        try:
            block.__exit__(type(error), error, error.__traceback__)
        except Exception as failure:
            log.warning("the rollback failed; the connection is given up: %s", error_text(failure))


class _Undone(Exception):
    """Rolled back, and nobody's error."""
