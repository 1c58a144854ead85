"""The same work on PostgreSQL, written by hand on each driver.

It is meant to be hard to beat: one connection that stays open, statements of constant text that the driver may prepare,
one round trip each, times from the server's clock, and plans made for their values where a kept plan goes wrong.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, Final, Self

import asyncpg
import psycopg

from bench import hand

BUSINESS: Final = "INSERT INTO orders (id, customer, total) VALUES (%s, %s, %s)"

_EVENT_COLUMNS: Final = (
    "event_id, event_type, aggregate_type, partition_no, payload, content_type, occurred_at, created_at, available_at"
)
_ONE_EVENT: Final = (
    "(%s, 'OrderPlaced', '__GLOBAL__', 0, %s, 'application/json',"
    " statement_timestamp(), statement_timestamp(), statement_timestamp())"
)
_EVENT: Final = f"INSERT INTO outbox_event ({_EVENT_COLUMNS}) VALUES {_ONE_EVENT}"

#: The outbox's own claim without its floor: the same columns, the same conditions, the same order.
_CLAIM: Final = """
WITH due AS MATERIALIZED (
  SELECT *
  FROM outbox_event
  WHERE status IN (0, 2) AND available_at <= statement_timestamp()
    AND (locked_by IS NULL OR lease_until <= statement_timestamp())
  ORDER BY available_at, position
  LIMIT %s
  FOR UPDATE SKIP LOCKED
)
UPDATE outbox_event AS row
SET locked_by = 'hand', locked_at = statement_timestamp(), lease_until = statement_timestamp() + interval '30 s',
    lease_epoch = row.lease_epoch + 1
FROM due
WHERE row.event_id = due.event_id AND row.handler_id = due.handler_id
RETURNING due.event_id, due.handler_id, due.event_type, due.aggregate_type, due.aggregate_id, due.tenant_id,
  due.event_key, due.payload, due.payload_bytes, due.headers, due.occurred_at, due.attempts, due.lease_epoch,
  due.created_at, due.available_at, due.content_type, due.payload_version
"""

_DONE: Final = """
UPDATE outbox_event
SET status = 1, done_at = statement_timestamp(), locked_by = NULL, locked_at = NULL, lease_until = NULL
WHERE event_id = ANY (%s::text[]) AND locked_by = 'hand'
"""

_DELETE: Final = "DELETE FROM outbox_event WHERE event_id = ANY (%s::text[]) AND locked_by = 'hand'"


_LOCK: Final = """
SELECT event_id, handler_id, event_type, aggregate_type, aggregate_id, tenant_id, event_key, payload, payload_bytes,
  headers, occurred_at, attempts, lease_epoch, created_at, available_at, content_type, payload_version
FROM outbox_event
WHERE status IN (0, 2) AND available_at <= statement_timestamp()
ORDER BY available_at, position
LIMIT %s
FOR UPDATE SKIP LOCKED
"""

_DONE_LOCKED: Final = _DONE.replace(" AND locked_by = 'hand'", "")

#: Where the claim has the text.
_PAYLOAD: Final = 7


@cache
def numbered(sql: str) -> str:
    """As asyncpg writes parameters."""
    first, *others = sql.split("%s")
    return first + "".join(f"${number}{text}" for number, text in enumerate(others, 1))


@cache
def _events(count: int) -> str:
    return f"INSERT INTO outbox_event ({_EVENT_COLUMNS}) VALUES {', '.join([_ONE_EVENT] * count)}"


class PsycopgHand:
    """psycopg as it comes: it begins by itself, and prepares what is used often."""

    def __init__(self, url: str) -> None:
        self._url = url

    def open(self) -> Self:
        self.connection = psycopg.connect(self._url)
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

    def drain(self, batch_size: int, function: Callable[[Any], object], *, marks: str = "done") -> int:
        if marks == "lock":
            return self._drain_locked(batch_size, function)
        self.connection.autocommit = True
        execute, mark, total = self._cursor.execute, _DELETE if marks == "delete" else _DONE, 0
        while rows := execute(_CLAIM, (batch_size,), prepare=False).fetchall():
            for row in rows:
                function(row[_PAYLOAD])
            # psycopg takes its time with lists; ids need no quotes.
            execute(mark, ("{" + ",".join([row[0] for row in rows]) + "}",), prepare=False)
            total += len(rows)
        return total

    def _drain_locked(self, batch_size: int, function: Callable[[Any], object]) -> int:
        """Locks, handles and marks in one transaction: no lease, and nothing may take long."""
        execute, total = self._cursor.execute, 0
        while rows := execute(_LOCK, (batch_size,), prepare=False).fetchall():
            for row in rows:
                function(row[_PAYLOAD])
            execute(_DONE_LOCKED, ("{" + ",".join([row[0] for row in rows]) + "}",), prepare=False)
            self.connection.commit()
            total += len(rows)
        self.connection.rollback()
        return total


class AsyncPsycopgHand:
    """The same, awaited."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self) -> Self:
        self.connection = await psycopg.AsyncConnection.connect(self._url)
        self._cursor = self.connection.cursor()
        return self

    async def close(self) -> None:
        await self.connection.close()

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
        await self.connection.set_autocommit(True)
        execute, total = self._cursor.execute, 0
        while rows := await (await execute(_CLAIM, (batch_size,), prepare=False)).fetchall():
            for row in rows:
                await function(row[_PAYLOAD])
            await execute(_DONE, ("{" + ",".join([row[0] for row in rows]) + "}",), prepare=False)
            total += len(rows)
        return total


class AsyncpgHand:
    """asyncpg with its cache of prepared statements, or without it."""

    BUSINESS: Final = numbered(BUSINESS)
    _EVENT: Final = numbered(_EVENT)
    _CLAIM: Final = numbered(_CLAIM)

    def __init__(self, url: str, *, has_cache: bool = True) -> None:
        self._url = url
        self._options: dict[str, Any] = {} if has_cache else {"statement_cache_size": 0}

    async def open(self) -> Self:
        self.connection = await asyncpg.connect(self._url, **self._options)
        return self

    async def close(self) -> None:
        await self.connection.close()

    async def write(self, number: int) -> None:
        connection = self.connection
        async with connection.transaction():
            await connection.execute(self.BUSINESS, *hand.order(number))
            await self.event(number)

    def event(self, number: int) -> Awaitable[object]:
        return self.connection.execute(self._EVENT, f"{number:026d}", hand.text(number))

    async def write_all(self, contents: list[Any], first: int) -> None:
        async with self.connection.transaction():
            await self.connection.execute(numbered(_events(len(contents))), *hand.flat(contents, first))

    async def drain(self, batch_size: int, function: Callable[[Any], Any]) -> int:
        fetch, execute, total = self.connection.fetch, self.connection.execute, 0
        # A plan that was made on an empty table and kept would be the wrong one later.
        await execute("SET plan_cache_mode = force_custom_plan")
        mark = numbered(_DONE)
        while rows := await fetch(self._CLAIM, batch_size):
            for row in rows:
                await function(row[_PAYLOAD])
            await execute(mark, [row[0] for row in rows])
            total += len(rows)
        return total

    async def drain_together(
        self, batch_size: int, function: Callable[[list[tuple[str, str]]], Awaitable[None]]
    ) -> int:
        """Ids and texts, all that were claimed at once."""
        fetch, execute, total = self.connection.fetch, self.connection.execute, 0
        await execute("SET plan_cache_mode = force_custom_plan")
        mark = numbered(_DONE)
        while rows := await fetch(self._CLAIM, batch_size):
            await function([(row[0], row[_PAYLOAD]) for row in rows])
            await execute(mark, [row[0] for row in rows])
            total += len(rows)
        return total
