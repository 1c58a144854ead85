"""Parts wired by hand in either world, awaited in both."""

from __future__ import annotations

from typing import Any

from aftercommit import DefaultListenerRegistry
from aftercommit import components as by_hand
from tests.support import Awaited, World

#: What neither colour awaits.
_PLAIN = {"enqueue_hot", "enqueue_cold", "has_cold_queue_capacity", "mark_done", "mark_retry", "mark_dead", "line"}


class Part(Awaited):
    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name) if name in _PLAIN else super().__getattr__(name)


class Parts:
    """The documents' wiring over a world's database. Whatever it made is closed by `close`."""

    def __init__(self, world: World, **store: Any) -> None:
        self.is_async = world.is_async
        detect = by_hand.detect_async_store if self.is_async else by_hand.detect_store
        self.store = detect(world.url, create_schema=True, **store)
        self.context = by_hand.TaskLocalTxContext() if self.is_async else by_hand.ThreadLocalTxContext()
        self.registry = DefaultListenerRegistry()
        self._made: list[Any] = []
        kind: Any = by_hand.AsyncTransactionManager if self.is_async else by_hand.TransactionManager
        self.manager = self._part(kind(self.store, self.context))

    def writer(self, hook: Any = None, **options: Any) -> Any:
        kind: Any = by_hand.AsyncOutboxWriter if self.is_async else by_hand.OutboxWriter
        made = kind(self.context, self.store, hook, **options)
        return made if self.is_async else Part(made)

    def dispatcher(self, **options: Any) -> Any:
        kind: Any = by_hand.AsyncOutboxDispatcher if self.is_async else by_hand.OutboxDispatcher
        return self._part(kind(self.store, self.registry, **options))

    def poller(self, handler: Any, **options: Any) -> Any:
        kind: Any = by_hand.AsyncOutboxPoller if self.is_async else by_hand.OutboxPoller
        return self._part(kind(self.store, plain(handler), **{"poll_interval": "1h", **options}))

    def hook(self, dispatcher: Any) -> by_hand.DispatcherCommitHook:
        return by_hand.DispatcherCommitHook(plain(dispatcher))

    async def write(self, writer: Any, *types: str) -> list[str]:
        async with self.manager.transaction():
            return [await writer.write(each, "{}") for each in types]

    async def close(self) -> None:
        for part in reversed(self._made):
            await part.close()

    def _part(self, part: Any) -> Any:
        self._made.append(part if self.is_async else Part(part))
        return self._made[-1]


def plain(part: Any) -> Any:
    return part.plain if isinstance(part, Awaited) else part
