"""The inbox for threads and blocking drivers."""

from __future__ import annotations

from typing import Any, Self

from aftercommit.events.durations import Duration
from aftercommit.inbox.base import First, InboxBase, MessageId, OnceBase, receipt_of
from aftercommit.inbox.blocks import Block, OwnBlock
from aftercommit.outbox import Transaction
from aftercommit.ports import Colour, Runtime
from aftercommit.runtime.threads import ThreadRuntime, run
from aftercommit.stores.sql.store import SqlStore


class Inbox(InboxBase):
    """Tells a message that comes for the first time from one that comes again.

    >>> inbox = Inbox("sqlite://")
    >>> for _ in range(2):
    ...     with inbox.once("order-7", consumer="billing") as first:
    ...         print("write the bill" if first else "it is written")
    write the bill
    it is written
    """

    _colour = Colour.BLOCKING

    def once(self, message_id: MessageId, *, consumer: str, tx: Any = None) -> Once:
        """A block that is true for whoever gets the message first.

        The id is saved in the transaction `tx`, with what the block does there: a session, a connection, or what
        transaction() gave. An error that leaves the block undoes both, and the transaction goes on. Without `tx` the
        block is a transaction of its own, `first.tx`, or a part of the one that is open around it.
        """
        return Once(self, receipt_of(message_id, consumer), tx)

    def transaction(self, *, isolation: str | None = None) -> Transaction:
        """A transaction on the inbox's database; nested it is a savepoint. Made with an outbox it is that one's."""
        if self._outbox is not None:
            transaction: Transaction = self._outbox.transaction(isolation=isolation)
            return transaction
        return Transaction(self, self._store, self._runtime(), isolation=isolation)

    def seen(self, message_id: MessageId, *, consumer: str) -> bool:
        """Whether this consumer has had the message, as far as it is committed. For looking: only once() is safe
        against others at the same time."""
        return run(self._store.seen(receipt_of(message_id, consumer)))

    def forget(self, message_id: MessageId, *, consumer: str) -> bool:
        """Let the message be the first when it comes again. False when it was not known."""
        return run(self._store.forget(receipt_of(message_id, consumer)))

    def purge(self, older_than: Duration | None = None) -> int:
        """Forget what came longer ago than that, by default `retention`; how many. In small transactions."""
        return run(self._purge(older_than))

    def create_schema(self) -> None:
        """Make the table, if it is not there."""
        run(self._store.create_schema())

    def close(self) -> None:
        """Give up connections; the next use opens new ones. Those of an outbox are the outbox's."""
        if self._outbox is None:
            run(self._store.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()

    # ------------------------------------------------------------ inside

    def _runtime(self) -> Runtime:
        return ThreadRuntime()

    def _transaction(self) -> Transaction:
        return self.transaction()

    def _own_block(self, transaction: Any, theirs: SqlStore | None = None) -> Block:
        return _OwnBlock(self._store, transaction, theirs)


class _OwnBlock(OwnBlock):
    async def _begin(self) -> None:
        self.tx.__enter__()

    async def _end(self, error: BaseException | None) -> None:
        self.tx.__exit__(None if error is None else type(error), error, None)


class Once(OnceBase):
    """`with inbox.once(…) as first:`"""

    def __enter__(self) -> First:
        return run(self._enter())

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        run(self._leave(error))
