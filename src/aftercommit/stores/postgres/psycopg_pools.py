"""psycopg's pools in both colours: one of the outbox's own behind a URL, or the user's."""

from __future__ import annotations

import os
from inspect import isawaitable
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from aftercommit.ports import Colour
from aftercommit.stores.postgres.executor import PostgresExecutor
from aftercommit.stores.postgres.faults import none_free
from aftercommit.stores.postgres.lenders import GivenPool, OwnPool
from aftercommit.stores.postgres.link import Link
from aftercommit.stores.postgres.psycopg_link import AsyncPsycopgLink, PsycopgLink
from aftercommit.stores.sql.connections import LARGEST, PATIENCE


def over_url(conninfo: str, colour: Colour) -> PostgresExecutor:
    """Over a pool of the outbox's own."""
    kind = PsycopgLink if colour is Colour.BLOCKING else AsyncPsycopgLink
    return PostgresExecutor(kind, OwnPool(kind, conninfo, _connect, _open_pool))


def over_pool(pool: Any) -> PostgresExecutor:
    """Over the user's pool; its colour decides."""
    kind = PsycopgLink if isinstance(pool, ConnectionPool) else AsyncPsycopgLink
    return PostgresExecutor(kind, GivenPool(PsycopgPool(pool, kind)))


class PsycopgPool:
    """A pool of either colour."""

    def __init__(self, pool: Any, kind: type[Link]) -> None:
        self.pool = pool
        self._kind = kind
        self._is_async = kind is AsyncPsycopgLink

    async def take(self) -> Link:
        try:
            taken = self.pool.getconn()
            return self._kind(await taken if self._is_async else taken, self)
        except PoolTimeout as error:
            raise none_free(self.pool.timeout) from error

    async def give(self, link: Link) -> None:
        given = self.pool.putconn(link.raw)
        if self._is_async:
            await given

    async def apart(self) -> Link:
        conninfo, kwargs = await _said(self.pool.conninfo), await _said(self.pool.kwargs)
        return self._kind(await _awaited(self.pool.connection_class.connect(conninfo, **(kwargs or {}))))

    async def check(self) -> None:
        await _awaited(self.pool.check())

    def idle(self) -> list[Link]:
        return [self._kind(each) for each in self.pool._pool]

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


async def _connect(kind: type[Link], conninfo: str) -> Link:
    connection: Any = Connection if kind is PsycopgLink else AsyncConnection
    return kind(await _awaited(connection.connect(conninfo, **_settings())))


async def _open_pool(kind: type[Link], conninfo: str, is_direct: bool) -> PsycopgPool:
    """Nothing is opened before it is needed."""
    pool: Any = (ConnectionPool if kind is PsycopgLink else AsyncConnectionPool)(
        conninfo,
        min_size=0,
        max_size=LARGEST,
        timeout=PATIENCE,
        kwargs=_settings(is_direct=is_direct),
        open=False,
        name=f"aftercommit-{os.getpid()}",
    )
    await _awaited(pool.open())
    return PsycopgPool(pool, kind)
