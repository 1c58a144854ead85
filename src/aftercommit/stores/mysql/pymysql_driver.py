"""PyMySQL: blocking, in the caller's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pymysql
from pymysql.constants import CLIENT
from pymysql.cursors import Cursor

from aftercommit.errors import MissingDriver
from aftercommit.events.claims import QueryResult
from aftercommit.ports import Colour
from aftercommit.stores.mysql import pool
from aftercommit.stores.mysql.executor import MysqlExecutor
from aftercommit.stores.mysql.link import SEQUENCES, DriverLink, rendered
from aftercommit.stores.mysql.replies import SHORTEST, packet, reply_in
from aftercommit.stores.mysql.target import Address
from aftercommit.stores.sql.connections import ThreadTurn


class PymysqlLink(DriverLink):
    """A PyMySQL connection as the executor wants it."""

    colour = Colour.BLOCKING
    connections = pymysql.Connection
    error = pymysql.MySQLError
    turn = ThreadTurn

    @property
    def is_open(self) -> bool:
        return bool(self.raw.open)

    @property
    def descriptor(self) -> int:
        return int(self.raw._sock.fileno())

    @property
    def charset(self) -> str:
        return str(self.raw.charset).lower()

    def _told(self, sql: str) -> int:
        """How many rows it matched. What is not the plain answer that it was done is left to the driver."""
        raw = self.raw
        last, wire = raw._result, packet(sql.encode(raw.encoding))
        is_in_step = last is None or not (last.unbuffered_active or last.has_next)
        if wire is None or not is_in_step or not raw._sock or raw._read_timeout != raw._write_timeout:
            return int(raw.query(sql))
        raw._write_bytes(wire)
        raw._result, raw._next_seq_id = None, 1
        try:
            seen = raw._rfile.peek(SHORTEST)
        except OSError:
            seen = b""  # which the driver meets as well, and knows how to say
        except BaseException:
            raw._force_close()  # the reply is still on its way, and would answer the next statement
            raise
        reply = reply_in(seen, 0, len(seen))
        if reply is None:
            raw._affected_rows = raw._read_query_result()
            return int(raw._affected_rows)
        raw._rfile.read(reply.size)
        raw._result, raw._affected_rows, raw.server_status = reply, reply.affected_rows, reply.server_status
        return reply.affected_rows

    async def run(self, sql: str, parameters: Any = None) -> QueryResult:
        # Not closed, which would look for more results: a single statement has none.
        cursor = self.raw.cursor(Cursor)
        count = cursor.execute(sql, parameters or None)
        return QueryResult(list(cursor.fetchall()) if cursor.description else [], count, cursor.lastrowid)

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        if type(self.raw) is not pymysql.Connection:  # a user's, whose cursors may have more to do, such as to trace
            return (await self.run(sql, parameters)).rowcount
        return self._told(rendered(sql, parameters, self.raw))

    async def send(self, sql: str) -> None:
        self._told(sql)

    async def commit(self) -> None:
        self._told("COMMIT")

    async def query(self, sql: str, parameters: Any = None) -> QueryResult:
        raw = self.raw
        has_cursors = type(raw) is not pymysql.Connection or raw.cursorclass is not Cursor
        text = None if has_cursors or type(parameters) not in SEQUENCES else self._text(sql, parameters)
        if text is not None:
            return self._asked(text)
        with raw.cursor() as cursor:  # which reads what is left
            cursor.execute(sql, parameters or None)
            rows = list(cursor.fetchall()) if cursor.description else []
            return QueryResult(rows, cursor.rowcount, cursor.lastrowid)

    def _asked(self, sql: str) -> QueryResult:
        raw = self.raw
        count, result = self._told(sql), raw._result
        while raw._result.has_next:
            raw.next_result()
        return QueryResult(list(result.rows) if result.description else [], count, result.insert_id)

    async def ping(self) -> None:
        self.raw.ping(reconnect=False)


def over_connections(connect: Callable[[], Any], pool_size: int, *, product: str = "MySQL") -> MysqlExecutor:
    """Over connections that `connect` opens."""

    async def connected() -> Any:
        return connect()

    return pool.over_connections(PymysqlLink, connected, pool_size, product=product)


def over_address(address: Address) -> MysqlExecutor:
    refuse_downgrades(wants_tls=address.tls() is not None)

    def connect() -> Any:
        return pymysql.connect(
            **address.login(),
            autocommit=True,
            # Rows that a statement matched: an UPDATE that finds a row as it should be has not lost it.
            client_flag=CLIENT.FOUND_ROWS,
            ssl=address.tls(),
            ssl_disabled=address.refuses_tls,
        )

    return over_connections(connect, address.pool_size, product=address.product)


def refuse_downgrades(*, wants_tls: bool) -> None:
    """Before 1.2 the driver logs in without TLS when the server, or somebody on the way to it, says it has none."""
    if wants_tls and pymysql.VERSION < (1, 2):
        raise MissingDriver(
            f"PyMySQL {pymysql.__version__} goes on without TLS where a server offers none", fix="PyMySQL 1.2 or later"
        )


def over_engine(engine: Any, *, product: str = "MySQL") -> MysqlExecutor:
    return pool.over_engine(PymysqlLink, engine, product=product)
