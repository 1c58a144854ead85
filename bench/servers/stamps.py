"""Connections that note when the server has answered COMMIT, and the pools that are made of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import asyncpg
import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from bench.paced import now

_POOL: Final = {"min_size": 4, "max_size": 10}


class Stamps:
    """When the last transaction of a writer was committed. `note(connection)` is called inside of it."""

    def last(self) -> int:
        raise NotImplementedError

    def note(self, connection: Any) -> None:
        """Where nothing else tells a writer's transaction from the outbox's own."""


class ThreadStamps(Stamps):
    def __init__(self) -> None:
        self._answered = threading.local()

    def pool(self, url: str) -> ConnectionPool[Any]:
        answered = self._answered

        class Stamped(psycopg.Connection[Any]):
            """Notes for each thread when its last statement was answered: at the end of a block, its COMMIT."""

            def wait(self, *arguments: Any, **options: Any) -> Any:
                answer = super().wait(*arguments, **options)
                answered.at = now()
                return answer

        return ConnectionPool(url, connection_class=Stamped, open=True, **_POOL)

    def last(self) -> int:
        return int(self._answered.at)


class TaskStamps(Stamps):
    """With psycopg: the end of each transaction of several statements; the outbox's own are single ones here."""

    def __init__(self) -> None:
        self._committed = 0

    def pool(self, url: str) -> AbstractAsyncContextManager[Any]:
        stamps = self

        class Stamped(psycopg.AsyncConnection[Any]):
            async def wait(self, *arguments: Any, **options: Any) -> Any:
                was_open = self.pgconn.transaction_status == TransactionStatus.INTRANS
                answer = await super().wait(*arguments, **options)
                if was_open and self.pgconn.transaction_status == TransactionStatus.IDLE:
                    stamps._committed = now()
                return answer

        return AsyncConnectionPool(url, connection_class=Stamped, open=False, **_POOL)

    def last(self) -> int:
        return self._committed


class AsyncpgStamps(Stamps):
    """The end of each transaction in which a business row was written."""

    def __init__(self) -> None:
        self._committed = 0
        self._writing: set[int] = set()

    def pool(self, url: str) -> AbstractAsyncContextManager[Any]:
        stamps = self

        class Stamped(asyncpg.Connection):  # type: ignore[misc]
            async def execute(self, query: str, *arguments: Any, **options: Any) -> Any:
                answer = await super().execute(query, *arguments, **options)
                if query == "COMMIT" and (session := self.get_server_pid()) in stamps._writing:
                    stamps._committed = now()
                    stamps._writing.remove(session)
                return answer

        return asyncpg.create_pool(url, connection_class=Stamped, **_POOL)

    def last(self) -> int:
        return self._committed

    def note(self, connection: Any) -> None:
        self._writing.add(connection.get_server_pid())


#: By the name of the driver.
ASYNC_STAMPS: Final[dict[str, Callable[[], Any]]] = {"psycopg async": TaskStamps, "asyncpg": AsyncpgStamps}
