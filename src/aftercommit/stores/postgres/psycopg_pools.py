"""psycopg's pools in both colours: one of the outbox's own behind a URL, or the user's."""

from __future__ import annotations

import os
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from aftercommit.execution import Colour
from aftercommit.stores.postgres.executor import PostgresExecutor
from aftercommit.stores.postgres.faults import none_free
from aftercommit.stores.postgres.lenders import GivenPool, OwnPool
from aftercommit.stores.postgres.link import Link
from aftercommit.stores.postgres.psycopg_link import ASYNC, BLOCKING, AsyncPsycopgLink, PsycopgLink
from aftercommit.stores.sql.connections import LARGEST, PATIENCE


def over_url(conninfo: str, colour: Colour) -> PostgresExecutor:
    """Over a pool of the outbox's own."""
    if colour is Colour.BLOCKING:
        return PostgresExecutor(BLOCKING, OwnPool(BLOCKING, conninfo, _connect, _open_pool))
    return PostgresExecutor(ASYNC, OwnPool(ASYNC, conninfo, _connect_async, _open_async_pool))


def over_pool(pool: Any) -> PostgresExecutor:
    """Over the user's pool; its colour decides."""
    if isinstance(pool, ConnectionPool):
        return PostgresExecutor(BLOCKING, GivenPool(PsycopgPool(pool, PsycopgLink)))
    return PostgresExecutor(ASYNC, GivenPool(PsycopgPool(pool, AsyncPsycopgLink)))


class PsycopgPool:
    """A pool of either colour."""

    def __init__(self, pool: Any, link: Callable[[Any, object], Link]) -> None:
        self.pool = pool
        self._link = link
        self._is_async = link is AsyncPsycopgLink

    async def take(self) -> Link:
        try:
            taken = self.pool.getconn()
            return self._link(await taken if self._is_async else taken, self)
        except PoolTimeout as error:
            raise none_free(self.pool.timeout) from error

    async def give(self, link: Link) -> None:
        given = self.pool.putconn(link.raw)
        if self._is_async:
            await given

    async def apart(self) -> Link:
        conninfo, kwargs = await _said(self.pool.conninfo), await _said(self.pool.kwargs)
        return self._link(await _awaited(self.pool.connection_class.connect(conninfo, **(kwargs or {}))), None)

    async def check(self) -> None:
        await _awaited(self.pool.check())

    async def close(self) -> None:
        await _awaited(self.pool.close())


async def _said(value: Any) -> Any:
    """Parameters may be a function of either colour, from psycopg_pool 3.3 on, because a password runs out."""
    return await _awaited(value() if callable(value) else value)


async def _awaited(value: Any) -> Any:
    return await value if isawaitable(value) else value


def _settings(*, is_direct: bool = False) -> dict[str, Any]:
    """Behind a pooler nothing is prepared: another session would not know it. Else an INSERT gains half its time."""
    return {"autocommit": True, "prepare_threshold": 2 if is_direct else None}


async def _connect(conninfo: str) -> psycopg.Connection[Any]:
    return psycopg.connect(conninfo, **_settings())


async def _connect_async(conninfo: str) -> psycopg.AsyncConnection[Any]:
    return await psycopg.AsyncConnection.connect(conninfo, **_settings())


async def _open_pool(conninfo: str, is_direct: bool) -> PsycopgPool:
    pool: ConnectionPool[Any] = ConnectionPool(
        conninfo, **_size(), kwargs=_settings(is_direct=is_direct), open=True, name=f"aftercommit-{os.getpid()}"
    )
    return PsycopgPool(pool, PsycopgLink)


async def _open_async_pool(conninfo: str, is_direct: bool) -> PsycopgPool:
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
        conninfo, **_size(), kwargs=_settings(is_direct=is_direct), open=False
    )
    await pool.open()
    return PsycopgPool(pool, AsyncPsycopgLink)


def _size() -> dict[str, Any]:
    return {"min_size": 0, "max_size": LARGEST, "timeout": PATIENCE}
