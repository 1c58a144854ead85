"""The components for asyncio: the same, awaited."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from enum import Enum
from typing import Any, Self, TypeVar, cast, overload

from aftercommit.async_outbox import AsyncTransaction
from aftercommit.async_outbox import Writing as WritingOne
from aftercommit.components.connecting import detected
from aftercommit.components.desk import Part, needs
from aftercommit.components.dispatching import Dispatching
from aftercommit.components.polling import Polling
from aftercommit.components.writing import AmbientTxContext, Writing
from aftercommit.events.annotations import EventObject
from aftercommit.events.envelope import EventEnvelope
from aftercommit.ports import Colour, EventStore, Runtime, TxContext
from aftercommit.runtime.aio import AsyncioRuntime
from aftercommit.transactions.by_hand import ByHand
from aftercommit.transactions.owned import OwnedTransaction
from aftercommit.transactions.pending import PendingWrite
from aftercommit.writing.compose import MISSING
from aftercommit.writing.writer import refuse_without_transaction

T = TypeVar("T")


def detect_async_store(target: Any, **options: Any) -> EventStore:
    """The store for a URL, an async engine or pool, or a ConnectionProvider where the driver knows no asyncio; with the
    options `table`, `schema`, `create_schema` and `delete_completed`."""
    return detected(target, Colour.ASYNC, options)


class _Async(Part):
    _colour = Colour.ASYNC

    def _runtime(self) -> Runtime:
        return AsyncioRuntime(1)


class TaskLocalTxContext(AmbientTxContext):
    """The transaction that an AsyncTransactionManager has open in this task."""


class AsyncTransactionManager(_Async):
    """Transactions on the store's own connections, which a context finds in their task."""

    def __init__(self, store: EventStore, tx_context: TaskLocalTxContext) -> None:
        super().__init__(store)
        needs(tx_context, "a transaction context", "current", "pass a TaskLocalTxContext()")
        self._tx_context = tx_context
        self._here: Runtime | None = None

    async def begin(self) -> AsyncTransaction:
        """Steered by hand: `async with await manager.begin() as tx: …; await tx.commit()` rolls back unless commit()
        was called."""
        begun = AsyncTransaction(self._tx_context, self._store, self._runs_on(), commits_on_exit=False)
        return cast("AsyncTransaction", ByHand(await begun.begin()))

    def transaction(self) -> AsyncTransaction:
        """A block that commits at its end and rolls back on an error; nested it is a savepoint."""
        return AsyncTransaction(self._tx_context, self._store, self._runs_on())

    async def create_schema(self) -> None:
        """Create or upgrade the tables now."""
        await self._store.create_schema()

    async def close(self) -> None:
        """Give up the store's connections, unless a dispatcher or poller still uses them."""
        await self._leave()

    def _runs_on(self) -> Runtime:
        if self._here is None or not self._here.is_here():
            self._here = self._runtime()
        return self._here


class AsyncOutboxWriter(_Async, Writing):
    """Writes events in the transaction of its context. Everything is checked at once; forgetting the `await` rolls the
    transaction back."""

    @overload
    def write(self, event: EventEnvelope | EventObject) -> WritingOne: ...
    @overload
    def write(self, event: str | Enum, payload: object) -> WritingOne: ...
    def write(self, event: object, payload: object = MISSING) -> WritingOne:
        """Gives the event's id; None when a hook suppressed it."""
        envelope = self._composer.compose(event, payload)
        context = self._open_context()

        async def work() -> str | None:
            ids = await self._write_all([envelope], context)
            return ids[0] if ids else None

        return _tracked(PendingWrite(envelope.event_type, work), context)

    def write_all(self, events: Iterable[object]) -> Coroutine[Any, Any, list[str]]:
        """Many at once; their ids in order. All are checked before the first is written."""
        envelopes = self._composer.compose_all(events)
        context = self._open_context()
        pending = PendingWrite(f"{len(envelopes)} events", lambda: self._write_all(envelopes, context))
        return _tracked(pending, context)

    def _open_context(self) -> TxContext:
        context = self._context()
        refuse_without_transaction(context, self._store)
        return context


def _tracked(pending: PendingWrite[T], context: TxContext) -> PendingWrite[T]:
    if isinstance(context, OwnedTransaction):
        context.track(pending)
    return pending


class AsyncOutboxDispatcher(_Async, Dispatching):
    """Two lanes and the workers that drain them, on the loop that runs when the first event comes."""

    def _runtime(self) -> Runtime:
        return AsyncioRuntime(self.config.worker_count)

    async def close(self) -> None:
        """Take nothing new, finish what waits within `drain_timeout`, give back the rest. Again is fine."""
        await self._close()

    async def __aenter__(self) -> Self:
        self.line()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self.close()


class AsyncOutboxPoller(_Async, Polling):
    """Looks into the table for what nobody delivered: `AsyncOutboxPoller(store, dispatcher)`, or with a handler of your
    own."""

    async def start(self) -> Self:
        """Look from now on, in a task of its own. Again is fine; after close() it starts anew."""
        await self._start()
        return self

    async def poll(self) -> int:
        """One cycle now; how many events it claimed."""
        return await self._poll()

    async def close(self) -> None:
        """Look no more. Again is fine."""
        await self._close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self.close()
