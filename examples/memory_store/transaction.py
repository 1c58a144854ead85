"""A transaction of the example: rows that nobody else sees until its commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from aftercommit.errors import UnsupportedTransaction
from aftercommit.events.claims import QueryResult, RowKey
from examples.memory_store.rows import Row, Rows


class Transaction:
    """Rows that nobody else sees until the commit. There is no SQL to be run in it."""

    is_open = True

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.connection = self
        self.written: dict[RowKey, Row] = {}
        self._marks: dict[str, int] = {}

    async def commit(self) -> None:
        with self.rows.lock:
            for row in self.written.values():  # the order of writing is the order of commits, and the table's own
                row["position"] = next(self.rows.positions)
            self.rows.by_key |= self.written
        self.is_open = False

    async def end(self) -> None:
        self.is_open = False

    async def query(self, sql: str, parameters: Any = ()) -> QueryResult:
        refuse_sql()

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        refuse_sql()

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        refuse_sql()

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        refuse_sql()

    async def savepoint(self, name: str) -> None:
        self._marks[name] = len(self.written)

    async def release(self, name: str) -> None:
        del self._marks[name]

    async def rollback_to(self, name: str) -> None:
        self.written = dict(list(self.written.items())[: self._marks[name]])


def refuse_sql() -> NoReturn:
    raise UnsupportedTransaction("this store has no SQL", fix="call its own methods")
