"""Where asyncpg's connections come from: a pool of the outbox's own, or the user's."""

from __future__ import annotations

from typing import Any

import asyncpg

from aftercommit.stores.postgres.per_loop import LARGEST, PATIENCE, PerLoop


class OwnAsyncpgPool(PerLoop[Any]):
    """A pool of asyncpg's connections without a statement cache, which a pooler would break."""

    def __init__(self, dsn: str, **settings: Any) -> None:
        super().__init__()
        self._dsn = dsn
        self._settings = {"min_size": 0, "max_size": LARGEST, "statement_cache_size": 0, **settings}

    async def opened(self) -> Any:
        # What a session could keep is never set here, so nothing has to be reset: that would be a round trip each time.
        return await asyncpg.create_pool(self._dsn, reset=_as_it_is, **self._settings)

    async def take(self) -> Any:
        return await (await self.current()).acquire(timeout=PATIENCE)

    async def give(self, connection: Any) -> None:
        pool = self._pool
        if pool is not None and connection._holder._pool is pool:
            await pool.release(connection)
        else:
            connection.terminate()  # of an earlier life

    async def check(self) -> None:
        if self._pool is not None:
            await self._pool.expire_connections()

    async def close(self) -> None:
        if (pool := self.let_go()) is not None:
            await pool.close()


async def _as_it_is(_: Any) -> None:
    """Nothing to reset."""


class GivenAsyncpgPool:
    """The user's own pool. It is used and never closed."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def take(self) -> Any:
        return await self._pool.acquire(timeout=PATIENCE)

    async def give(self, connection: Any) -> None:
        await self._pool.release(connection)

    async def check(self) -> None:
        await self._pool.expire_connections()

    async def close(self) -> None:
        """It is the user's."""

    def abandon(self) -> None:
        """The user's pool has to be made anew in the child by the user."""
