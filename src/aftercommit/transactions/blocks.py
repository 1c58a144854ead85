"""outbox.transaction() in its two colours: blocks around the one way a transaction is steered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from aftercommit.events.claims import QueryResult
from aftercommit.runtime.threads import run
from aftercommit.transactions.owned import OwnedTransaction


class Transaction(OwnedTransaction):
    """`with outbox.transaction() as tx:` commits at the end of the block and rolls back on an error."""

    def begin(self) -> Self:
        run(self._begin())
        return self

    def execute(self, sql: str, parameters: Any = ()) -> QueryResult:
        """Run a statement of your own in this transaction."""
        return run(self._query(sql, parameters))

    def commit(self) -> None:
        run(self._commit())

    def rollback(self) -> None:
        run(self._rollback())

    def __enter__(self) -> Self:
        return self if self._root is not None else self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._leave(error))


class AsyncTransaction(OwnedTransaction):
    """`async with outbox.transaction() as tx:` commits at the end of the block and rolls back on an error."""

    async def begin(self) -> Self:
        await self._begin()
        return self

    def execute(self, sql: str, parameters: Any = ()) -> Awaitable[QueryResult]:
        """Run a statement of your own in this transaction."""
        return self._query(sql, parameters)

    async def commit(self) -> None:
        await self._shielded(self._commit)

    async def rollback(self) -> None:
        await self._shielded(self._rollback)

    async def __aenter__(self) -> Self:
        return self if self._root is not None else await self.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._shielded(lambda: self._leave(error))

    async def _shielded(self, work: Callable[[], Any]) -> None:
        """To the end even when the task is cancelled: those who wait for a commit have to hear of it."""
        try:
            await self._runtime.shielded(work())
        finally:
            if self._ended is not None:
                self._leave_context()  # the shielded part ran in a context of its own
