"""asyncmy: async, on the caller's event loop. Connections of a loop that has ended are given up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import asyncmy
from asyncmy.connection import Connection
from asyncmy.constants.CLIENT import FOUND_ROWS
from asyncmy.cursors import Cursor
from asyncmy.errors import MySQLError

from aftercommit.events.claims import QueryResult
from aftercommit.ports import Colour
from aftercommit.runtime.process import here
from aftercommit.runtime.threads import run
from aftercommit.stores.mysql import pool
from aftercommit.stores.mysql.executor import MysqlExecutor
from aftercommit.stores.mysql.link import DriverLink, rendered
from aftercommit.stores.mysql.target import Address
from aftercommit.stores.sql.aio import TaskTurn, cut


class AsyncmyLink(DriverLink):
    """An asyncmy connection as the executor wants it."""

    colour = Colour.ASYNC
    connections = Connection
    error = MySQLError
    turn = TaskTurn

    @property
    def is_open(self) -> bool:
        return bool(self.raw.connected)

    @property
    def is_here(self) -> bool:
        return self.raw.loop is asyncio.get_running_loop()

    @property
    def is_lost(self) -> bool:
        return bool(self.raw.loop.is_closed())

    @property
    def descriptor(self) -> int:
        # Older releases speak through a stream.
        speaker = getattr(self.raw, "_transport", None) or self.raw._writer
        return int(speaker.get_extra_info("socket").fileno())

    @property
    def charset(self) -> str:
        return str(self.raw._charset).lower()

    async def run(self, sql: str, parameters: Any = None) -> QueryResult:
        # Not closed, which would look for more results: a single statement has none.
        cursor = self.raw.cursor(Cursor)
        try:
            await cursor.execute(sql, parameters or None)
            rows = list(await cursor.fetchall()) if cursor.description else []
        except asyncio.CancelledError:
            self.drop()
            raise
        return QueryResult(rows, cursor.rowcount, cursor.lastrowid)

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        if self._has_listeners():
            return (await self.run(sql, parameters)).rowcount
        try:
            return int(await self.raw.query(rendered(sql, parameters, self.raw)))
        except asyncio.CancelledError:
            self.drop()
            raise

    def _has_listeners(self) -> bool:
        """Whether it is a user's, and somebody may want to hear from its cursors what is run."""
        raw = self.raw
        if type(raw) is not Connection:
            return True
        return bool(getattr(raw, "_echo", False)) or getattr(raw, "_query_callback", None) is not None

    async def send(self, sql: str) -> None:
        try:
            await self.raw.query(sql)
        except asyncio.CancelledError:
            self.drop()  # the reply is still on its way, and would answer the next statement
            raise

    async def commit(self) -> None:
        try:
            await self.raw.commit()
        except asyncio.CancelledError:
            self.drop()
            raise

    async def query(self, sql: str, parameters: Any = None) -> QueryResult:
        cursor = self.raw.cursor()
        try:
            await cursor.execute(sql, parameters or None)
            rows = list(await cursor.fetchall()) if cursor.description else []
            found = QueryResult(rows, cursor.rowcount, cursor.lastrowid)
            await cursor.close()  # which reads what is left
        except asyncio.CancelledError:
            self.drop()
            raise
        return found

    async def ping(self) -> None:
        await self.raw.ping(reconnect=False)

    async def close(self) -> None:
        if self._process is not here.token:
            self.drop()
            return
        with suppress(Exception):
            await self.raw.ensure_closed()

    def drop(self) -> None:
        if self.is_open and self.is_lost and self._process is here.token:
            cut(run(self.raw.connect())[1])  # which gives what is connected, its wire the second of it
        super().drop()
        if self._process is here.token:
            self.raw._connected = False  # which close() leaves as it was


def over_address(address: Address) -> MysqlExecutor:
    def connect() -> Any:
        return asyncmy.connect(
            **address.login(),
            autocommit=True,
            # Rows that a statement matched: an UPDATE that finds a row as it should be has not lost it.
            client_flag=FOUND_ROWS,
            ssl=address.tls(),
        )

    return pool.over_connections(AsyncmyLink, connect, address.pool_size, product=address.product)


def over_engine(engine: Any, *, product: str = "MySQL") -> MysqlExecutor:
    return pool.over_engine(AsyncmyLink, engine, product=product)
