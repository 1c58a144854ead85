"""Statements on Django's own connection: through its cursors, so that its logs, wrappers and checks see them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar

from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import atomic

from aftercommit.errors import UnsupportedTransaction
from aftercommit.events.claims import QueryResult
from aftercommit.ports import Colour, Tx
from aftercommit.stores.sql.execution import Fault

T = TypeVar("T")


class CursorTx:
    """A Tx over a connection of Django, in whatever transaction it is in."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        with self._connection.cursor() as cursor:
            cursor.execute(_marked(sql), parameters or None)
            return int(cursor.rowcount)

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        """All or none: a row that is refused takes those before it with it."""
        with atomic(using=self._connection.alias), self._connection.cursor() as cursor:
            cursor.executemany(_marked(sql), parameters)
            return int(cursor.rowcount)

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(_marked(sql), parameters or None)
            return list(cursor.fetchall())


@lru_cache(maxsize=128)
def _marked(sql: str) -> str:
    """Django's cursors want every parameter as %s; SQLite's statements have question marks for nothing else."""
    return sql.replace("?", "%s")


class CursorLink:
    """What the MySQL statements need of a connection, whichever driver Django uses."""

    #: In an atomic block it is off, and nothing else comes here.
    is_autocommit = False
    is_in_transaction = True
    is_open = True
    is_here = True

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.raw = connection

    @property
    def charset(self) -> str:
        return str(self.raw.connection.character_set_name())

    async def run(self, sql: str, parameters: Any = None) -> QueryResult:
        with self.raw.cursor() as cursor:
            cursor.execute(sql, [_without_zone(value) for value in parameters] if parameters else None)
            rows = list(cursor.fetchall()) if cursor.description else []
            return QueryResult(rows, cursor.rowcount)

    query = run

    async def ping(self) -> None:
        """The state is Django's to know."""

    async def close(self) -> None:
        """It is Django's to close."""

    def drop(self) -> None:
        """It is Django's to close."""


def _without_zone(value: Any) -> Any:
    """mysqlclient would write the zone, which MariaDB does not read."""
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value


class BlockExecutor:
    """Runs everything on Django's connection of this thread: in its atomic block, else in one of its own."""

    colour = Colour.BLOCKING

    def __init__(
        self, alias: str, tx: Callable[[BaseDatabaseWrapper], Tx], fault_of: Callable[[Exception], Fault]
    ) -> None:
        self._alias = alias
        self._tx = tx
        self._fault_of = fault_of

    async def fetch(self, sql: str, parameters: Sequence[object] = (), *, writes: bool = True) -> list[Any]:
        return await self.transact(lambda tx: tx.fetch(sql, parameters))

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return await self.transact(lambda tx: tx.execute(sql, parameters))

    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], *, writes: bool = True) -> T:
        with atomic(using=self._alias):
            return await work(self._tx(connections[self._alias]))

    async def begin(self) -> Any:
        raise UnsupportedTransaction(
            "in Django a transaction is an atomic block", fix=f"with transaction.atomic(using={self._alias!r}): …"
        )

    def adopt(self, connection: object) -> None:
        return None

    def fault_of(self, error: Exception) -> Fault:
        cause = error.__cause__ if isinstance(error, Error) else error  # Django wraps the driver's error
        return self._fault_of(cause) if isinstance(cause, Exception) else Fault.OTHER

    async def close(self) -> None:
        """It is Django's to close."""

    def abandon(self) -> None:
        """It is Django's to know."""
