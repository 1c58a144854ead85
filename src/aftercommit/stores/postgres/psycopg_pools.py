"""psycopg in both colours: connections of the outbox's own behind a URL, or the user's pool."""

from __future__ import annotations

import os
from inspect import isawaitable
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool, PoolTimeout

from aftercommit.ports import Colour
from aftercommit.stores.postgres.executor import PostgresExecutor
from aftercommit.stores.postgres.faults import none_free
from aftercommit.stores.postgres.lenders import GivenPool, OwnPool
from aftercommit.stores.postgres.link import Link
from aftercommit.stores.postgres.psycopg_link import AsyncPsycopgLink, PsycopgLink
from aftercommit.stores.sql.connections import PATIENCE


def over_url(conninfo: str, colour: Colour, **modes: Any) -> PostgresExecutor:
    """Over connections of the outbox's own, on which these are set: `isolation_level`, `read_only`, `deferrable`."""
    kind = PsycopgLink if colour is Colour.BLOCKING else AsyncPsycopgLink
    connection: Any = Connection if kind is PsycopgLink else AsyncConnection
    settings: dict[str, Any] = {"autocommit": True}
    if "connect_timeout" not in conninfo_to_dict(conninfo) and "PGCONNECT_TIMEOUT" not in os.environ:
        settings["connect_timeout"] = int(PATIENCE)

    async def connected(is_direct: bool) -> Link:
        """Behind a pooler nothing is prepared: another session would not know it. Else an INSERT gains half its
        time."""
        prepares = {"prepare_threshold": 2 if is_direct else None}
        raw = await _awaited(connection.connect(conninfo, **settings, **prepares))
        for name, value in modes.items():
            await _awaited(getattr(raw, f"set_{name}")(value))
        return kind(raw)

    return PostgresExecutor(kind, OwnPool(kind, connected))


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
            return self._kind(await taken if self._is_async else taken)
        except PoolTimeout as error:
            # It knocks at the server in the background, and says nothing of what it hears; a connection says why.
            (await self.apart()).drop()
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

    async def close(self) -> None:
        """Nothing is on its way."""


async def _said(value: Any) -> Any:
    """Parameters may be a function of either colour, from psycopg_pool 3.3 on, because a password runs out."""
    return await _awaited(value() if callable(value) else value)


async def _awaited(value: Any) -> Any:
    return await value if isawaitable(value) else value
