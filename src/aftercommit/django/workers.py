"""Where handlers run: in threads of the outbox, which Django does not know, or in the thread of an atomic block."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from functools import lru_cache, wraps
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async
from django.db import close_old_connections

from aftercommit.events.outcome import Result
from aftercommit.runtime.colours import is_async
from aftercommit.runtime.threads import ThreadRuntime


class WorkerRuntime(ThreadRuntime):
    """Around each handler that a worker calls, connections that are broken or too old are closed, as around requests.

    A handler that is called in the caller's own thread, by drain(), leaves the caller's connections alone.
    """

    def __init__(self, is_started: Callable[[], bool]) -> None:
        super().__init__()
        self._is_started = is_started
        self._wrapped = lru_cache(maxsize=1024)(_between_requests)

    async def call(self, function: Callable[..., Any], *arguments: object, **options: Any) -> Result:
        called = function
        if self._is_started():
            try:
                called = self._wrapped(function)
            except TypeError:  # an unhashable callable
                called = _between_requests(function)
        return await super().call(called, *arguments, **options)


class BlockRuntime(ThreadRuntime):
    """Every handler runs in the thread that has the block, also what an async one asks of the database.

    Timeouts are not kept: another thread, which could be left behind, would have another connection.
    """

    async def call(self, function: Callable[..., Any], *arguments: object, context: Context, **_: Any) -> Result:
        called = async_to_sync(function) if is_async(function) else function
        return await super().call(called, *arguments, context=context)


def _between_requests(function: Callable[..., Any]) -> Callable[..., Any]:
    """In the thread that runs it: a worker's, one beside it, or the one where Django does the work of async code."""
    if is_async(function):

        @wraps(function)
        async def awaited(*arguments: object) -> object:
            await sync_to_async(close_old_connections)()
            try:
                return await function(*arguments)
            finally:
                await sync_to_async(close_old_connections)()

        return awaited

    @wraps(function)
    def called(*arguments: object) -> object:
        close_old_connections()
        try:
            return function(*arguments)
        finally:
            close_old_connections()

    return called
