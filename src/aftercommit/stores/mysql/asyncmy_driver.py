"""asyncmy: the async executor."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import asyncmy
from asyncmy.connection import Connection
from asyncmy.constants.CLIENT import FOUND_ROWS
from asyncmy.constants.SERVER_STATUS import SERVER_STATUS_IN_TRANS
from asyncmy.cursors import Cursor
from asyncmy.errors import MySQLError

from aftercommit.events.claims import QueryResult
from aftercommit.ports import Colour
from aftercommit.runtime.process import here
from aftercommit.stores.mysql.address import Address
from aftercommit.stores.mysql.executor import MysqlExecutor, MysqlLink
from aftercommit.stores.mysql.link import AdoptedLinkTx
from aftercommit.stores.mysql.pool import GivenPool, own_pool
from aftercommit.stores.mysql.server import check_version, session_settings
from aftercommit.stores.sql.aio import TaskTurn
from aftercommit.stores.sql.connections import Pool, abandoned
from aftercommit.stores.sql.engines import AwaitedEngine


class AsyncmyLink:
    """An asyncmy connection as the executor wants it."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self._process = here.token

    @property
    def is_open(self) -> bool:
        return bool(self.raw.connected)

    @property
    def is_here(self) -> bool:
        return self.raw.loop is asyncio.get_running_loop()

    @property
    def is_in_transaction(self) -> bool:
        return bool(self.raw.server_status & SERVER_STATUS_IN_TRANS)

    @property
    def is_autocommit(self) -> bool:
        return bool(self.raw.get_autocommit())

    @property
    def charset(self) -> str:
        return str(self.raw._charset).lower()

    async def run(self, sql: str, parameters: Any = None) -> QueryResult:
        return await self._result(self.raw.cursor(Cursor), sql, parameters)

    async def query(self, sql: str, parameters: Any = None) -> QueryResult:
        return await self._result(self.raw.cursor(), sql, parameters)

    async def _result(self, cursor: Any, sql: str, parameters: Any) -> QueryResult:
        try:
            await cursor.execute(sql, parameters or None)
            rows = list(await cursor.fetchall())
            found = QueryResult(rows, cursor.rowcount, cursor.lastrowid)
            await cursor.close()  # which reads what is left
        except asyncio.CancelledError:
            self.drop()  # the reply is still on its way, and would answer the next statement
            raise
        return found

    async def ping(self) -> None:
        await self.raw.ping(reconnect=False)

    async def close(self) -> None:
        if self._process is not here.token:
            abandoned.append(self.raw)
            return
        with suppress(Exception):
            await self.raw.ensure_closed()

    def drop(self) -> None:
        if self._process is not here.token:
            abandoned.append(self.raw)
            return
        with suppress(Exception):  # its event loop may have ended
            self.raw.close()
        self.raw._connected = False  # which close() leaves as it was


class AsyncmyExecutor(MysqlExecutor):
    """Runs on the caller's event loop. Connections of a loop that has ended are given up."""

    driver_error = MySQLError

    def adopt(self, connection: object) -> AdoptedLinkTx | None:
        return AdoptedLinkTx(AsyncmyLink(connection)) if isinstance(connection, Connection) else None


def over_connections(address: Address) -> AsyncmyExecutor:
    """Over connections of our own, for the store and for users apart."""

    def pool(*, is_users: bool) -> Pool[MysqlLink]:
        async def connected() -> AsyncmyLink:
            return await _connected(address, is_users=is_users)

        return own_pool(connected, MySQLError, TaskTurn, address.pool_size, is_lost)

    return AsyncmyExecutor(pool(is_users=False), pool(is_users=True), Colour.ASYNC)


def is_lost(one: MysqlLink) -> bool:
    """Whoever had it has ended with their event loop."""
    return one.link is not None and one.link.raw.loop.is_closed()


async def _connected(address: Address, *, is_users: bool) -> AsyncmyLink:
    raw = await asyncmy.connect(
        **address.login(),
        autocommit=True,
        # Rows that a statement matched: an UPDATE that finds a row as it should be has not lost it.
        client_flag=FOUND_ROWS,
        ssl=address.tls(),
    )
    link = AsyncmyLink(raw)
    try:
        check_version(raw.get_server_info())
        for sql in session_settings(is_users=is_users):
            await link.run(sql)
    except BaseException:
        link.drop()
        raise
    return link


def over_engine(engine: Any) -> AsyncmyExecutor:
    """Over the pool of a SQLAlchemy async engine."""
    pool = GivenPool(AwaitedEngine(engine, lambda raw: not raw.connected), AsyncmyLink, MySQLError)
    return AsyncmyExecutor(pool, pool, Colour.ASYNC)
