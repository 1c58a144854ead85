"""PyMySQL: blocking, in the caller's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pymysql
from pymysql.constants import CLIENT, SERVER_STATUS
from pymysql.cursors import Cursor

from aftercommit.claims import QueryResult
from aftercommit.ports import Colour
from aftercommit.runtime.process import here
from aftercommit.stores.mysql.address import Address
from aftercommit.stores.mysql.executor import MysqlExecutor
from aftercommit.stores.mysql.link import AdoptedLinkTx, abandoned
from aftercommit.stores.mysql.pool import PATIENCE, Pool, no_connection
from aftercommit.stores.mysql.server import check_version, session_settings

_IN_TRANSACTION: Final = SERVER_STATUS.SERVER_STATUS_IN_TRANS


class PymysqlLink:
    """A PyMySQL connection as the executor wants it."""

    is_here = True

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self._process = here.token

    @property
    def is_open(self) -> bool:
        return bool(self.raw.open)

    @property
    def is_in_transaction(self) -> bool:
        return bool(self.raw.server_status & _IN_TRANSACTION)

    @property
    def is_autocommit(self) -> bool:
        return bool(self.raw.get_autocommit())

    @property
    def charset(self) -> str:
        return str(self.raw.charset)

    async def run(self, sql: str, parameters: Any = None) -> QueryResult:
        return _result(self.raw.cursor(Cursor), sql, parameters)

    async def query(self, sql: str, parameters: Any = None) -> QueryResult:
        return _result(self.raw.cursor(), sql, parameters)

    async def ping(self) -> None:
        self.raw.ping(reconnect=False)

    async def close(self) -> None:
        self.drop()

    def drop(self) -> None:
        if self._process is not here.token:
            abandoned.append(self.raw)
        elif self.raw.open:
            with suppress(Exception):
                self.raw.close()


def _result(cursor: Any, sql: str, parameters: Any) -> QueryResult:
    with cursor:  # which reads what is left
        cursor.execute(sql, parameters or None)
        return QueryResult(list(cursor.fetchall()), cursor.rowcount, cursor.lastrowid)


class ThreadSlots:
    """So many threads at a time."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.reset()

    def reset(self) -> None:
        self._semaphore = threading.Semaphore(self._count)

    async def take(self) -> Callable[[], None]:
        semaphore = self._semaphore
        if not semaphore.acquire(timeout=PATIENCE):
            raise no_connection(self._count)
        return semaphore.release


class PymysqlExecutor(MysqlExecutor):
    """Runs in the caller's thread."""

    colour = Colour.BLOCKING
    driver_error = pymysql.MySQLError

    def __init__(self, address: Address) -> None:
        def pool(*, is_users: bool) -> Pool:
            async def connect() -> PymysqlLink:
                return await _connected(address, is_users=is_users)

            return Pool(connect, self.fault_of, ThreadSlots(address.pool_size))

        super().__init__(own=pool(is_users=False), lent=pool(is_users=True))

    def adopt(self, connection: object) -> AdoptedLinkTx | None:
        return AdoptedLinkTx(PymysqlLink(connection)) if isinstance(connection, pymysql.Connection) else None


async def _connected(address: Address, *, is_users: bool) -> PymysqlLink:
    raw = pymysql.connect(
        **address.login(),
        autocommit=True,
        # Rows that a statement matched: an UPDATE that finds a row as it should be has not lost it.
        client_flag=CLIENT.FOUND_ROWS,
        ssl=address.tls(),
        ssl_disabled=address.refuses_tls,
    )
    link = PymysqlLink(raw)
    try:
        check_version(raw.get_server_info())
        for sql in session_settings(is_users=is_users):
            await link.run(sql)
    except BaseException:
        link.drop()
        raise
    return link
