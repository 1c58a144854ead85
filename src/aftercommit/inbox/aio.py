"""The inbox for asyncio: the same methods, awaited."""

from __future__ import annotations

from typing import Any, Self

from aftercommit.async_outbox import AsyncTransaction
from aftercommit.events.durations import Duration
from aftercommit.inbox.base import First, InboxBase, MessageId, OnceBase, receipt_of
from aftercommit.inbox.blocks import Block, OwnBlock
from aftercommit.ports import Colour, Runtime
from aftercommit.runtime.aio import AsyncioRuntime
from aftercommit.stores.sql.store import SqlStore


class AsyncInbox(InboxBase):
    """Tells a message that comes for the first time from one that comes again, for asyncio."""

    _colour = Colour.ASYNC
    #: Of the loop that it is used on.
    _here: Runtime | None = None

    def once(self, message_id: MessageId, *, consumer: str, tx: Any = None) -> AsyncOnce:
        """A block that is true for whoever gets the message first.

        The id is saved in the transaction `tx`, with what the block does there: a session, a connection, or what
        transaction() gave. An error that leaves the block undoes both, and the transaction goes on. Without `tx` the
        block is a transaction of its own, `first.tx`, or a part of the one that is open around it.
        """
        return AsyncOnce(self, receipt_of(message_id, consumer), tx)

    def transaction(self, *, isolation: str | None = None) -> AsyncTransaction:
        """A transaction on the inbox's database; nested it is a savepoint. Made with an outbox it is that one's."""
        if self._outbox is not None:
            transaction: AsyncTransaction = self._outbox.transaction(isolation=isolation)
            return transaction
        return AsyncTransaction(self, self._store, self._runtime(), isolation=isolation)

    async def seen(self, message_id: MessageId, *, consumer: str) -> bool:
        """Whether this consumer has had the message, as far as it is committed. For looking: only once() is safe
        against others at the same time."""
        return await self._store.seen(receipt_of(message_id, consumer))

    async def forget(self, message_id: MessageId, *, consumer: str) -> bool:
        """Let the message be the first when it comes again. False when it was not known."""
        return await self._store.forget(receipt_of(message_id, consumer))

    async def purge(self, older_than: Duration | None = None) -> int:
        """Forget what came longer ago than that, by default `retention`; how many. In small transactions."""
        return await self._purge(older_than)

    async def create_schema(self) -> None:
        """Make the table, if it is not there."""
        await self._store.create_schema()

    async def close(self) -> None:
        """Give up connections; the next use opens new ones. Those of an outbox are the outbox's."""
        if self._outbox is None:
            await self._store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self.close()

    # ------------------------------------------------------------ inside

    def _runtime(self) -> Runtime:
        if self._here is None or not self._here.is_here():
            self._here = AsyncioRuntime(1)
        return self._here

    def _transaction(self) -> AsyncTransaction:
        return self.transaction()

    def _own_block(self, transaction: Any, theirs: SqlStore | None = None) -> Block:
        return _OwnBlock(self._store, transaction, theirs)


class _OwnBlock(OwnBlock):
    async def _begin(self) -> None:
        await self.tx.__aenter__()

    async def _end(self, error: BaseException | None) -> None:
        await self.tx.__aexit__(None if error is None else type(error), error, None)


class AsyncOnce(OnceBase):
    """`async with inbox.once(…) as first:`"""

    async def __aenter__(self) -> First:
        return await self._enter()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._leave(error)
