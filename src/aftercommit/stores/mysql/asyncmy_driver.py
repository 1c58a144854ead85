"""asyncmy: the async executor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import asyncmy
from asyncmy.connection import Connection
from asyncmy.constants.CLIENT import FOUND_ROWS
from asyncmy.cursors import Cursor
from asyncmy.errors import MySQLError

from aftercommit.claims import QueryResult
from aftercommit.ports import Colour
from aftercommit.runtime.process import here
from aftercommit.stores.mysql.address import Address
from aftercommit.stores.mysql.executor import MysqlExecutor
from aftercommit.stores.mysql.link import AdoptedLinkTx, abandoned
from aftercommit.stores.mysql.pool import PATIENCE, Pool, no_connection
from aftercommit.stores.mysql.server import check_version, session_settings

_IN_TRANSACTION: Final = 1


class AsyncmyLink:
    """An asyncmy connection as the executor wants it. asyncmy closes it when a statement is cancelled half way."""

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
        return bool(self.raw.server_status & _IN_TRANSACTION)

    @property
    def is_autocommit(self) -> bool:
        return bool(self.raw.get_autocommit())

    @property
    def charset(self) -> str:
        return str(self.raw._charset)

    async def run(self, sql: str, parameters: Any = None) -> QueryResult:
        return await _result(self.raw.cursor(Cursor), sql, parameters)

    async def query(self, sql: str, parameters: Any = None) -> QueryResult:
        return await _result(self.raw.cursor(), sql, parameters)

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
        self.raw._connected = False


async def _result(cursor: Any, sql: str, parameters: Any) -> QueryResult:
    await cursor.execute(sql, parameters or None)
    rows = list(await cursor.fetchall())
    found = QueryResult(rows, cursor.rowcount, cursor.lastrowid)
    await cursor.close()  # which reads what is left
    return found


class TaskSlots:
    """So many tasks at a time, on the event loop at hand."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._loop: object = None
        self.reset()

    def reset(self) -> None:
        self._semaphore = asyncio.Semaphore(self._count)

    async def take(self) -> Callable[[], None]:
        if self._loop is not asyncio.get_running_loop():
            self._loop = asyncio.get_running_loop()
            self.reset()
        semaphore = self._semaphore
        try:
            async with asyncio.timeout(PATIENCE):
                await semaphore.acquire()
        except TimeoutError:
            raise no_connection(self._count) from None
        return semaphore.release


class AsyncmyExecutor(MysqlExecutor):
    """Runs on the caller's event loop. Connections of a loop that has ended are given up."""

    colour = Colour.ASYNC
    driver_error = MySQLError

    def __init__(self, address: Address) -> None:
        def pool(*, is_users: bool) -> Pool:
            async def connect() -> AsyncmyLink:
                return await _connected(address, is_users=is_users)

            return Pool(connect, self.fault_of, TaskSlots(address.pool_size))

        super().__init__(own=pool(is_users=False), lent=pool(is_users=True))

    def adopt(self, connection: object) -> AdoptedLinkTx | None:
        return AdoptedLinkTx(AsyncmyLink(connection)) if isinstance(connection, Connection) else None


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
