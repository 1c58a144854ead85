"""A SQLite file as a database: it is told from others by its path."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from aftercommit.ports import Tx
from aftercommit.stores.sql.execution import Executor
from aftercommit.stores.sql.identifiers import TableNames
from aftercommit.stores.sql.schema import Schema
from aftercommit.stores.sql.statements import Dialect, Statements
from aftercommit.stores.sql.table import OwnTable


class FileTable(OwnTable):
    """Connections are asked which file they have open: it costs less than a row, and reads nothing."""

    def __init__(
        self,
        path: str,
        executor: Executor,
        dialect: Dialect,
        statements: Statements,
        names: TableNames,
        schema: Schema,
    ) -> None:
        super().__init__(executor, dialect, statements, names, schema)
        self.whose_sql = "PRAGMA database_list"
        self._path = path

    @property
    def knows_itself(self) -> bool:
        return True

    def is_own(self, answer: Sequence[Sequence[object]]) -> bool:
        return _is_same_file(_main_of(answer), self._path)

    def may_be(self, database: str, name: str | None) -> bool:
        if database not in self.databases:
            return False
        if not name or name == ":memory:" or name.startswith("file:"):
            return True  # a creator may open another file than the URL says
        return _is_same_file(name, self._path)

    def is_autocommit(self, connection: Any) -> bool:
        """Also of drivers that wrap sqlite3's connections."""
        if connection.isolation_level is None and not connection.in_transaction:
            return True
        return super().is_autocommit(connection)

    async def _name_of(self, tx: Tx) -> str:
        path = _main_of(await tx.fetch(self.whose_sql))
        return repr(path) if path else "a database in memory"


def _main_of(answer: Sequence[Sequence[object]]) -> str:
    return next((str(row[2] or "") for row in answer if row[1] == "main"), "")


def _is_same_file(path: str, ours: str) -> bool:
    return path == ours or (bool(path) and os.path.realpath(path) == os.path.realpath(ours))
