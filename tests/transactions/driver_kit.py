"""What the tests of driver connections share: a caller's own connection of each driver, steered by statements."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any
from urllib.parse import urlsplit

import asyncmy
import asyncpg
import psycopg

from tests.servers import pymysql_connect
from tests.stores.mysql_kit import parts_of
from tests.support import World


class Caller:
    """A connection of the caller's, steered by statements; `commit()` and `close()` as the driver has them."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    async def run(self, sql: str) -> None:
        if hasattr(self.raw, "cursor") and not isinstance(self.raw, asyncpg.Connection):
            cursor = self.raw.cursor()
            await done(cursor.execute(sql))
            await done(cursor.close())
        else:
            await self.raw.execute(sql)

    async def close(self) -> None:
        await done(self.raw.ensure_closed() if hasattr(self.raw, "ensure_closed") else self.raw.close())


async def done(value: Any) -> Any:
    return await value if isawaitable(value) else value


async def _asyncmy(url: str, autocommit: bool) -> Any:
    return await asyncmy.connect(**parts_of(url), charset="utf8mb4", autocommit=autocommit)


def _sqlite(path: str, autocommit: bool) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=20, isolation_level=None if autocommit else "DEFERRED")


async def connect(world: World, *, autocommit: bool, url: str | None = None) -> Any:
    """To the world's database, or to another of its kind."""
    plain = urlsplit(url or world.url)._replace(scheme="postgresql").geturl()
    match world.database, world.name, urlsplit(world.url).scheme:
        case "sqlite", _, _:
            return _sqlite(url or str(world.path), autocommit)
        case "postgres", "threads", _:
            return psycopg.connect(plain, autocommit=autocommit)
        case "postgres", _, "postgresql":
            return await psycopg.AsyncConnection.connect(plain, autocommit=autocommit)
        case "postgres", _, _:
            return await asyncpg.connect(plain)
        case _, "threads", _:
            return pymysql_connect(url or world.url, charset="utf8mb4", autocommit=autocommit)
        case _:
            return await _asyncmy(url or world.url, autocommit)


@asynccontextmanager
async def calling(world: World, *, autocommit: bool, url: str | None = None) -> AsyncIterator[Caller]:
    caller = Caller(await connect(world, autocommit=autocommit, url=url))
    try:
        yield caller
    finally:
        await caller.close()


def is_asyncpg(world: World) -> bool:
    return "asyncpg" in world.url
