"""Where asyncpg's connections come from: a pool of the outbox's own, or the user's."""

from __future__ import annotations

from typing import Any

import asyncpg

from aftercommit.stores.postgres.dialect import WHO_SERVES, none_free, of_the_parent
from aftercommit.stores.postgres.per_loop import PerLoop
from aftercommit.stores.sql.connections import LARGEST, PATIENCE


class OwnAsyncpgPool(PerLoop[Any]):
    """Opened by its first use, closed with the outbox. Behind a pooler it has no statement cache: another session would
    not know what is prepared in one."""

    is_direct = False

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self._dsn = dsn

    async def opened(self) -> Any:
        first = await asyncpg.connect(self._dsn, statement_cache_size=0, timeout=PATIENCE)
        try:
            self.is_direct = await first.fetchval(WHO_SERVES) == first.get_server_pid()
        finally:
            await first.close()
        return await asyncpg.create_pool(
            self._dsn,
            min_size=0,
            max_size=LARGEST,
            # What a session could keep is never set here, so nothing has to be reset, a round trip each time.
            reset=_as_it_is,
            **({} if self.is_direct else {"statement_cache_size": 0}),
        )

    async def take(self) -> Any:
        return await acquired(await self.current())

    async def give(self, connection: Any) -> None:
        pool = self._pool
        if pool is not None and connection._holder._pool is pool:
            await pool.release(connection)
        else:
            connection.terminate()  # of an earlier life

    async def apart(self) -> Any:
        return await asyncpg.connect(self._dsn, statement_cache_size=0, timeout=PATIENCE)

    async def check(self) -> None:
        if self._pool is not None:
            await self._pool.expire_connections()

    async def close(self) -> None:
        if (pool := self.let_go()) is not None:
            await pool.close()


async def _as_it_is(_: Any) -> None:
    """Nothing to reset."""


async def acquired(pool: Any) -> Any:
    try:
        return await pool.acquire(timeout=PATIENCE)
    except TimeoutError as error:
        raise none_free(PATIENCE) from error


class GivenAsyncpgPool:
    """The user's own pool. It is used and never closed."""

    is_direct = False

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._is_parents = False

    async def take(self) -> Any:
        if self._is_parents:
            raise of_the_parent()
        return await acquired(self._pool)

    async def give(self, connection: Any) -> None:
        await self._pool.release(connection)

    async def apart(self) -> Any:
        """As the pool opens one, but not out of it: it may be small. There is no public name for that."""
        if self._is_parents:
            raise of_the_parent()
        return await self._pool._get_new_connection()

    async def check(self) -> None:
        await self._pool.expire_connections()

    async def close(self) -> None:
        """It is the user's."""

    def abandon(self) -> None:
        self._is_parents = True
