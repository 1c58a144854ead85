"""What the suite asks of stores over SQL more: hooks that are ready for them, and names that come near statements."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

from aftercommit.ports import EventStore, OpenTransaction
from aftercommit.stores.sql.store import SqlStore
from aftercommit.testing.hooks import StoreHooks


class SqlHooks(StoreHooks):
    """Hooks that are the same over every executor. A database with schemas binds `make_schema`."""

    #: Whether tables can lie in a schema of a given name.
    has_schemas = True

    def make_schema(self, name: str) -> None:
        """An empty schema of that name for this test, to be quoted as it is."""
        raise NotImplementedError("bind make_schema, or set has_schemas = False")

    def locked(self, store: EventStore, *event_ids: str) -> AbstractAsyncContextManager[object]:
        return locked(store, *event_ids)

    def held_open(self, store: EventStore, meanwhile: Callable[[], Awaitable[None]]) -> AbstractContextManager[object]:
        assert isinstance(store, SqlStore)
        return _held_open(store.executor, meanwhile)


@asynccontextmanager
async def locked(store: EventStore, *event_ids: str) -> AsyncIterator[OpenTransaction]:
    """An open transaction that has changed these rows and is rolled back in the end."""
    opened = await store.begin()
    try:
        for event_id in event_ids:
            await opened.execute(f"UPDATE outbox_event SET attempts = attempts + 7 WHERE event_id = '{event_id}'")
        yield opened
    finally:
        await opened.end()


@contextmanager
def _held_open(executor: Any, meanwhile: Callable[[], Awaitable[None]]) -> Iterator[None]:
    """What the executor changes in this block is committed only when `meanwhile` has come to its end."""

    async def transact(work: Callable[[Any], Awaitable[Any]], *, writes: bool = True) -> Any:
        opened = await executor.begin()
        try:
            value = await work(opened)
            if writes:
                await meanwhile()
            await opened.commit()
        finally:
            await opened.end()
        return value

    async def fetch(sql: str, parameters: Sequence[object] = (), *, writes: bool = True) -> Any:
        return await transact(lambda tx: tx.fetch(sql, parameters), writes=writes)

    executor.transact, executor.fetch = transact, fetch
    try:
        yield
    finally:
        del executor.transact, executor.fetch
