"""Where psycopg's async connections come from: a pool of the outbox's own, or the user's."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from aftercommit.stores.postgres.per_loop import LARGEST, PATIENCE, PerLoop, check_version
from aftercommit.stores.postgres.pools import WHO_SERVES, settings


class OwnAsyncPool(PerLoop[AsyncConnectionPool[Any]]):
    """A pool of psycopg's async connections: opened by its first use, closed with the outbox."""

    def __init__(self, conninfo: str) -> None:
        super().__init__()
        self._conninfo = conninfo

    async def opened(self) -> AsyncConnectionPool[Any]:
        async with await psycopg.AsyncConnection.connect(self._conninfo, **settings(is_direct=False)) as connection:
            check_version(connection.info.server_version // 10_000)
            served_by = await (await connection.execute(WHO_SERVES)).fetchone()
            is_direct = served_by == (connection.info.backend_pid,)
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

    async def take(self) -> Any:
        return await (await self.current()).getconn()

    async def give(self, connection: Any) -> None:
        if self._pool is None or connection._pool is not self._pool:
            await connection.close()  # of an earlier life
        else:
            await self._pool.putconn(connection)

    async def check(self) -> None:
        if self._pool is not None:
            await self._pool.check()

    async def close(self) -> None:
        if (pool := self.let_go()) is not None:
            await pool.close()


class GivenAsyncPool:
    """The user's own pool. It is used and never closed."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def take(self) -> Any:
        return await self._pool.getconn()

    async def give(self, connection: Any) -> None:
        await self._pool.putconn(connection)

    async def check(self) -> None:
        await self._pool.check()

    async def close(self) -> None:
        """It is the user's."""

    def abandon(self) -> None:
        """The user's pool has to be made anew in the child by the user."""
