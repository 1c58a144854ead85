"""Where psycopg's async connections come from: a pool of the outbox's own, or the user's."""

from __future__ import annotations

from inspect import isawaitable
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from aftercommit.errors import StoreBusy
from aftercommit.stores.postgres.dialect import WHO_SERVES, none_free, of_the_parent
from aftercommit.stores.postgres.per_loop import PerLoop
from aftercommit.stores.postgres.pools import settings
from aftercommit.stores.sql.connections import LARGEST, PATIENCE


class OwnAsyncPool(PerLoop[AsyncConnectionPool[Any]]):
    """A pool of psycopg's async connections: opened by its first use, closed with the outbox."""

    def __init__(self, conninfo: str) -> None:
        super().__init__()
        self._conninfo = conninfo

    async def opened(self) -> AsyncConnectionPool[Any]:
        is_direct = await self._is_direct()
        pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
            self._conninfo,
            min_size=0,
            max_size=LARGEST,
            timeout=PATIENCE,
            kwargs=settings(is_direct=is_direct),
            open=False,
        )
        await pool.open()
        return pool

    async def _is_direct(self) -> bool:
        """A pool would try for a long while and then say only that it took too long; a connection says why."""
        async with await psycopg.AsyncConnection.connect(self._conninfo, **settings(is_direct=False)) as connection:
            served_by = await (await connection.execute(WHO_SERVES)).fetchone()
            return bool(served_by == (connection.info.backend_pid,))

    async def take(self) -> Any:
        try:
            return await taken(await self.current())
        except StoreBusy:
            await self._is_direct()  # none is free, or none can be opened
            raise

    async def give(self, connection: Any) -> None:
        if self._pool is None or connection._pool is not self._pool:
            await connection.close()  # of an earlier life
        else:
            await self._pool.putconn(connection)

    async def apart(self) -> Any:
        return await psycopg.AsyncConnection.connect(self._conninfo, **settings(is_direct=False))

    async def check(self) -> None:
        if self._pool is not None:
            await self._pool.check()

    async def close(self) -> None:
        if (pool := self.let_go()) is not None:
            await pool.close()


async def taken(pool: Any) -> Any:
    try:
        return await pool.getconn()
    except PoolTimeout as error:
        raise none_free(pool.timeout) from error


async def _said(value: Any) -> Any:
    """Parameters may be a function of either colour, because a password runs out."""
    said = value() if callable(value) else value
    return await said if isawaitable(said) else said


class GivenAsyncPool:
    """The user's own pool. It is used and never closed."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._is_parents = False

    async def take(self) -> Any:
        if self._is_parents:
            raise of_the_parent()
        return await taken(self._pool)

    async def give(self, connection: Any) -> None:
        await self._pool.putconn(connection)

    async def apart(self) -> Any:
        """As the pool opens one, but not out of it: it may be small."""
        if self._is_parents:
            raise of_the_parent()
        conninfo, kwargs = await _said(self._pool.conninfo), await _said(self._pool.kwargs)
        return await self._pool.connection_class.connect(conninfo, **(kwargs or {}))

    async def check(self) -> None:
        await self._pool.check()

    async def close(self) -> None:
        """It is the user's."""

    def abandon(self) -> None:
        self._is_parents = True
