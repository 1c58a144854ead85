"""PyMySQL: blocking, in the caller's thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pymysql
from pymysql.constants import CLIENT
from pymysql.constants.SERVER_STATUS import SERVER_STATUS_IN_TRANS
from pymysql.cursors import Cursor

from aftercommit.events.claims import QueryResult
from aftercommit.ports import Colour
from aftercommit.runtime.process import here
from aftercommit.stores.mysql.address import Address
from aftercommit.stores.mysql.executor import MysqlExecutor, MysqlLink
from aftercommit.stores.mysql.link import AdoptedLinkTx
from aftercommit.stores.mysql.pool import GivenPool, own_pool
from aftercommit.stores.mysql.server import check_version, session_settings
from aftercommit.stores.sql.connections import Pool, ThreadTurn, abandoned
from aftercommit.stores.sql.engines import AwaitedEngine


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
        return bool(self.raw.server_status & SERVER_STATUS_IN_TRANS)

    @property
    def is_autocommit(self) -> bool:
        return bool(self.raw.get_autocommit())

    @property
    def charset(self) -> str:
        return str(self.raw.charset).lower()

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


class PymysqlExecutor(MysqlExecutor):
    """Runs in the caller's thread."""

    driver_error = pymysql.MySQLError

    def adopt(self, connection: object) -> AdoptedLinkTx | None:
        return AdoptedLinkTx(PymysqlLink(connection)) if isinstance(connection, pymysql.Connection) else None


def over_connections(connect: Callable[[], Any], pool_size: int) -> PymysqlExecutor:
    """Over connections that `connect` opens, for the store and for users apart."""

    def pool(*, is_users: bool) -> Pool[MysqlLink]:
        async def connected() -> PymysqlLink:
            return await _set_up(PymysqlLink(connect()), is_users=is_users)

        return own_pool(connected, pymysql.MySQLError, ThreadTurn, pool_size)

    return PymysqlExecutor(pool(is_users=False), pool(is_users=True), Colour.BLOCKING)


async def _set_up(link: PymysqlLink, *, is_users: bool) -> PymysqlLink:
    try:
        check_version(link.raw.get_server_info())
        link.raw.autocommit(True)
        for sql in session_settings(is_users=is_users):
            await link.run(sql)
    except BaseException:
        link.drop()
        raise
    return link


def connector(address: Address) -> Callable[[], Any]:
    return lambda: pymysql.connect(
        **address.login(),
        autocommit=True,
        # Rows that a statement matched: an UPDATE that finds a row as it should be has not lost it.
        client_flag=CLIENT.FOUND_ROWS,
        ssl=address.tls(),
        ssl_disabled=address.refuses_tls,
    )


def over_engine(engine: Any) -> PymysqlExecutor:
    """Over the pool of a SQLAlchemy engine."""
    pool = GivenPool(AwaitedEngine(engine, lambda raw: not raw.open), PymysqlLink, pymysql.MySQLError)
    return PymysqlExecutor(pool, pool, Colour.BLOCKING)
