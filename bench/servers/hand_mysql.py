"""The same work on MySQL and MariaDB, written by hand: one connection that stays open and begins by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, Final, Self

import asyncmy
import pymysql

from bench import hand
from bench.servers.places import login

BUSINESS: Final = "INSERT INTO orders (id, customer, total) VALUES (%s, %s, %s)"

_EVENT_COLUMNS: Final = (
    "event_id, event_type, aggregate_type, partition_no, payload, content_type, occurred_at, created_at, available_at"
)
_ONE_EVENT: Final = (
    "(%s, 'OrderPlaced', '__GLOBAL__', 0, %s, 'application/json', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))"
)
_EVENT: Final = f"INSERT INTO outbox_event ({_EVENT_COLUMNS}) VALUES {_ONE_EVENT}"

#: The outbox's own claim without its floor: the same columns, the same conditions, the same order.
_CLAIM: Final = """
SELECT position, event_id, handler_id, event_type, aggregate_type, aggregate_id, tenant_id, event_key, payload,
       payload_bytes, headers, occurred_at, attempts, lease_epoch, created_at, available_at, content_type,
       payload_version
FROM outbox_event
WHERE status = 0 AND available_at <= UTC_TIMESTAMP(6) AND (locked_by IS NULL OR lease_until <= UTC_TIMESTAMP(6))
ORDER BY available_at, position
LIMIT %s
FOR UPDATE SKIP LOCKED
"""

_LEASE: Final = """
UPDATE outbox_event
SET locked_by = 'hand', locked_at = UTC_TIMESTAMP(6), lease_until = UTC_TIMESTAMP(6) + INTERVAL 30 SECOND,
    lease_epoch = lease_epoch + 1
WHERE position IN ({})
"""

_DONE: Final = """
UPDATE outbox_event
SET status = 1, done_at = UTC_TIMESTAMP(6), locked_by = NULL, locked_at = NULL, lease_until = NULL
WHERE position IN ({}) AND locked_by = 'hand'
"""


#: Where the claim has the text.
_PAYLOAD: Final = 8


@cache
def _events(count: int) -> str:
    return f"INSERT INTO outbox_event ({_EVENT_COLUMNS}) VALUES {', '.join([_ONE_EVENT] * count)}"


def _positions(rows: Any) -> str:
    return ",".join([str(row[0]) for row in rows])


class PymysqlHand:
    def __init__(self, url: str) -> None:
        self._url = url

    def open(self) -> Self:
        self.connection = pymysql.connect(**login(self._url))
        self._cursor = self.connection.cursor()
        return self

    def close(self) -> None:
        self.connection.close()

    def write(self, number: int) -> None:
        self._cursor.execute(BUSINESS, hand.order(number))
        self.event(number)
        self.connection.commit()

    def event(self, number: int) -> object:
        return self._cursor.execute(_EVENT, (f"{number:026d}", hand.text(number)))

    def write_all(self, contents: list[Any], first: int) -> None:
        self._cursor.execute(_events(len(contents)), hand.flat(contents, first))
        self.connection.commit()

    def drain(self, batch_size: int, function: Callable[[Any], object]) -> int:
        execute, total = self._cursor.execute, 0
        while rows := self._claim(batch_size):
            for row in rows:
                function(row[_PAYLOAD])
            execute(_DONE.format(_positions(rows)))
            self.connection.commit()
            total += len(rows)
        return total

    def _claim(self, batch_size: int) -> Any:
        self._cursor.execute(_CLAIM, (batch_size,))
        rows = self._cursor.fetchall()
        if rows:
            self._cursor.execute(_LEASE.format(_positions(rows)))
        self.connection.commit()
        return rows


class AsyncmyHand:
    """The same, awaited."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self) -> Self:
        options = login(self._url)
        self.connection = await asyncmy.connect(**options)
        self._cursor = self.connection.cursor()
        return self

    async def close(self) -> None:
        await self.connection.ensure_closed()

    async def write(self, number: int) -> None:
        await self._cursor.execute(BUSINESS, hand.order(number))
        await self.event(number)
        await self.connection.commit()

    def event(self, number: int) -> Awaitable[object]:
        return self._cursor.execute(_EVENT, (f"{number:026d}", hand.text(number)))

    async def write_all(self, contents: list[Any], first: int) -> None:
        await self._cursor.execute(_events(len(contents)), hand.flat(contents, first))
        await self.connection.commit()

    async def drain(self, batch_size: int, function: Callable[[Any], Any]) -> int:
        execute, total = self._cursor.execute, 0
        while rows := await self._claim(batch_size):
            for row in rows:
                await function(row[_PAYLOAD])
            await execute(_DONE.format(_positions(rows)))
            await self.connection.commit()
            total += len(rows)
        return total

    async def _claim(self, batch_size: int) -> Any:
        await self._cursor.execute(_CLAIM, (batch_size,))
        rows = await self._cursor.fetchall()
        if rows:
            await self._cursor.execute(_LEASE.format(_positions(rows)))
        await self.connection.commit()
        return rows
