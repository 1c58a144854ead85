"""A write that is a transaction of its own, where the store needs none of the user's. Nobody else can reach it, so that
there is nothing to nest, to look for or to end from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from aftercommit.events.log import Log
from aftercommit.events.redact import error_text
from aftercommit.ports import Callback, EventStore, OpenTransaction, Runtime, TxContext, WrittenRows
from aftercommit.transactions.callbacks import checked, our_word_for, run_all
from aftercommit.transactions.owned import end_given_up, given_up

T = TypeVar("T")

log = Log("aftercommit.transactions")


async def at_once(store: EventStore, runtime: Runtime, write: Callable[[TxContext], Coroutine[Any, Any, T]]) -> T:
    """What `write` gives, when all that it wrote is committed. Colourless."""
    if given_up:
        await end_given_up(runtime)
    if not store.is_ready:
        await store.open()
    transaction = AtOnce(store, await store.begin())
    try:
        value = await write(transaction)
    except BaseException as error:
        await runtime.shielded(transaction.undo(error))
        raise
    # To the end even when the task is cancelled: those who wait for a commit have to hear of it.
    await runtime.shielded(transaction.commit())
    return value


class AtOnce:
    """The transaction of one write."""

    observes_commit = True

    def __init__(self, store: EventStore, opened: OpenTransaction) -> None:
        self.tx = opened
        self._store = store
        self._on_commit: list[Callback] = []
        self._on_rollback: list[Callback] = []

    def is_transaction_active(self) -> bool:
        return True

    def current_connection(self) -> Any:
        return self.tx.connection

    def after_commit(self, callback: Callback) -> None:
        self._on_commit.append(checked(callback))

    def after_rollback(self, callback: Callback) -> None:
        self._on_rollback.append(checked(callback))

    def wrote(self, rows: WrittenRows) -> None:
        self._on_commit.append(rows.committed)
        self._on_rollback.append(rows.rolled_back)

    async def commit(self) -> None:
        try:
            await self.tx.commit()
        except BaseException as error:
            ours = our_word_for(error, self._store)
            await self.undo(ours)
            raise ours  # noqa: B904
        if self._on_commit:
            run_all(self._on_commit)

    async def undo(self, cause: BaseException) -> None:
        """The error that led here goes before all others."""
        try:
            await self.tx.end()
        except Exception as error:
            log.warning("the rollback failed; the connection is given up: %s", error_text(error))
        finally:
            run_all(self._on_rollback, beside=cause)
