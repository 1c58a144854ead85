"""The parts of an outbox, wired by hand: writer, dispatcher, poller. `docs/components.md` shows how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aftercommit.components.connecting import ConnectionProvider, DataSourceConnectionProvider
from aftercommit.components.dispatching import DispatcherCommitHook, DispatcherPollerHandler
from aftercommit.components.threads import (
    OutboxDispatcher,
    OutboxPoller,
    OutboxWriter,
    ThreadLocalTxContext,
    TransactionManager,
    detect_store,
)

if TYPE_CHECKING:
    from aftercommit.components.aio import (
        AsyncOutboxDispatcher,
        AsyncOutboxPoller,
        AsyncOutboxWriter,
        AsyncTransactionManager,
        TaskLocalTxContext,
        detect_async_store,
    )

__all__ = [
    "AsyncOutboxDispatcher",
    "AsyncOutboxPoller",
    "AsyncOutboxWriter",
    "AsyncTransactionManager",
    "ConnectionProvider",
    "DataSourceConnectionProvider",
    "DispatcherCommitHook",
    "DispatcherPollerHandler",
    "OutboxDispatcher",
    "OutboxPoller",
    "OutboxWriter",
    "TaskLocalTxContext",
    "ThreadLocalTxContext",
    "TransactionManager",
    "detect_async_store",
    "detect_store",
]

if not TYPE_CHECKING:  # a checker that saw __getattr__ would take every misspelt name for one that is there

    def __getattr__(name: str) -> Any:
        """Only programs that use asyncio load it."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from aftercommit.components import aio  # noqa: PLC0415

        return getattr(aio, name)
