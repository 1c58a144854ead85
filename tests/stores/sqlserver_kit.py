"""A stand-in for pyodbc: connections, transactions and errors as that driver shows them, over a list of numbers.

It stands for the driver only. It knows the few statements that steer transactions, and two more; that SQL Server
understands the others, and does what they promise, is shown by a parser and by the conformance suite on a server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Any

from aftercommit.ports import Colour
from aftercommit.stores.sqlserver.connection import BEGIN, COMMIT, LEVEL, ROLLBACK, SESSION
from aftercommit.stores.sqlserver.executor import SqlServerExecutor
from tests.stores.kit import run_in

INSERT = "INSERT INTO t VALUES (?)"
SELECT = "SELECT n FROM t"


class Error(Exception):
    """As pyodbc's: (SQLSTATE, text)."""


class OperationalError(Error): ...


class ProgrammingError(Error): ...


class IntegrityError(Error): ...


def refused(kind: type[Error], state: str, number: int, text: str, function: str = "SQLExecDirectW") -> Error:
    """An error as the driver words it."""
    where = "[Microsoft][ODBC Driver 18 for SQL Server][SQL Server]"
    return kind(state, f"[{state}] {where}{text} ({number}) ({function})")


def deadlock() -> Error:
    return refused(Error, "40001", 1205, "Transaction was deadlocked on lock resources with another process.")


def lost() -> Error:
    return OperationalError(
        "08S01", "[08S01] [Microsoft][ODBC Driver 18 for SQL Server]Link failure (104) (SQLExecute)"
    )


def duplicate(number: object) -> Error:
    text = f"Violation of UNIQUE KEY constraint. The duplicate key value is ({number})."
    error = refused(IntegrityError, "23000", 2627, text, "SQLExecute")
    return IntegrityError(
        error.args[0], error.args[1] + "; [23000] [SQL Server]The statement has been terminated. (3621)"
    )


class Server:
    """What all connections share: the committed numbers, what was said, and what is to go wrong."""

    def __init__(self) -> None:
        self.committed: list[object] = []
        self.log: list[str] = []
        self.connections: list[Connection] = []
        #: Asked before every statement; raises what is to go wrong.
        self.before: Callable[[Connection, str], None] = lambda connection, sql: None
        self.connecting: list[Error] = []
        #: The number of the isolation level that sessions begin with.
        self.level = 2

    def connect(self, *_: object, **__: object) -> Connection:
        if self.connecting:
            raise self.connecting.pop(0)
        self.connections.append(Connection(self))
        return self.connections[-1]

    def fail(self, word: str, error: Exception, *, times: int = 1, ends_transaction: bool = False) -> None:
        """The next statements that begin with the word fail."""
        left = [error] * times

        def before(connection: Connection, sql: str) -> None:
            if sql.startswith(word) and left:
                if ends_transaction:
                    connection.undo()
                raise left.pop()

        self.before = before

    def kill(self) -> None:
        """All sessions end; new ones can be opened."""
        for connection in self.open:
            connection.is_dead = True
            connection.undo()

    @property
    def open(self) -> list[Connection]:
        return [each for each in self.connections if not each.closed]

    @property
    def said(self) -> list[str]:
        """The statements, without the questions that errors and new and handed out connections lead to."""
        words = {SESSION: "session", BEGIN: "begin", COMMIT: "commit", ROLLBACK: "rollback"}
        return [words.get(sql, sql) for sql in self.log if sql not in ("SELECT @@TRANCOUNT", LEVEL)]


class Connection:
    """A session. Numbers that are not committed are its own; a savepoint remembers how many there were."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.autocommit = True
        self.closed = False
        self.is_dead = False
        self.depth = 0
        self.pending: list[object] = []
        self.savepoints: dict[str, int] = {}

    def cursor(self) -> Cursor:
        if self.closed:
            raise ProgrammingError("Attempt to use a closed connection.")
        return Cursor(self)

    def rollback(self) -> None:
        """Of the driver: nothing in autocommit mode."""
        if not self.autocommit:
            self.undo()

    def close(self) -> None:
        if self.closed:
            raise ProgrammingError("Attempt to use a closed connection.")
        self.undo()
        self.closed = True

    def undo(self) -> None:
        self.depth, self.pending, self.savepoints = 0, [], {}

    def run(self, sql: str, parameters: Any) -> tuple[list[Any] | None, int]:
        self.server.log.append(sql)
        if self.is_dead:
            raise lost()
        self.server.before(self, sql)
        return self._answer(sql, parameters)

    def _answer(self, sql: str, parameters: Any) -> tuple[list[Any] | None, int]:
        if sql == ROLLBACK or sql.startswith(SESSION):
            self.undo()
            self.depth = 1 if sql.endswith("BEGIN TRANSACTION") else 0
        elif sql == LEVEL:
            return [(self.server.level,)], -1
        elif sql == "BEGIN TRANSACTION":
            self.depth += 1
        elif sql == COMMIT:
            self._commit()
        elif sql == "SELECT @@TRANCOUNT":
            return [(self.depth,)], -1
        elif found := re.fullmatch(r"(SAVE|ROLLBACK) TRANSACTION \[?(\w+)\]?", sql):
            self._savepoint(*found.groups())
        elif sql == INSERT:
            return None, self._insert(parameters[0])
        elif sql == SELECT:
            return [(number,) for number in self.server.committed + self.pending], -1
        return None, -1

    def _commit(self) -> None:
        if not self.depth:
            raise refused(ProgrammingError, "25000", 3902, "COMMIT has no corresponding BEGIN TRANSACTION.")
        self.depth -= 1
        if not self.depth:
            self.server.committed += self.pending
            self.undo()

    def _savepoint(self, verb: str, name: str) -> None:
        if not self.depth:
            raise refused(ProgrammingError, "42000", 628, "Cannot issue SAVE TRANSACTION without a transaction.")
        if verb == "SAVE":
            self.savepoints[name] = len(self.pending)
        else:
            del self.pending[self.savepoints[name] :]

    def _insert(self, number: object) -> int:
        if number in self.server.committed + self.pending:
            raise duplicate(number)
        if self.depth or not self.autocommit:
            self.depth = self.depth or 1
            self.pending.append(number)
        else:
            self.server.committed.append(number)
        return 1


class Cursor:
    """Results one after the other: of a batch, only the first is there at once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rows: list[Any] | None = None
        self.rowcount = -1

    @property
    def description(self) -> object:
        return None if self._rows is None else [("n",)]

    def execute(self, sql: str, parameters: Any = ()) -> None:
        self._rows, self.rowcount = self._connection.run(sql, parameters)

    def fetchall(self) -> list[Any]:
        assert self._rows is not None
        return self._rows

    def nextset(self) -> bool:
        return False

    def close(self) -> None: ...


class Driver:
    """The module `pyodbc`, as far as it is used."""

    Connection = Connection
    Error = Error

    def __init__(self, server: Server) -> None:
        self.server = server
        self.strings: list[str] = []
        self.options: list[dict[str, Any]] = []

    def connect(self, connection_string: str, **options: Any) -> Connection:
        self.strings.append(connection_string)
        self.options.append(options)
        return self.server.connect()

    def drivers(self) -> list[str]:
        return ["FreeTDS"]


class SqlServerBench:
    """An executor over the stand-in, and the colour to run it in."""

    def __init__(self, colour: Colour) -> None:
        self.colour = colour
        self.server = Server()
        self.executor: Any = SqlServerExecutor(self.server.connect, Driver(self.server), colour)

    def run(self, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            try:
                await scenario()
            finally:
                await self.executor.close()

        run_in(self.colour, whole())

    async def insert(self, *numbers: int) -> None:
        async def work(tx: Any) -> None:
            for number in numbers:
                await tx.execute(INSERT, (number,))

        await self.executor.transact(work)

    async def insert_as_user(self, number: int) -> None:
        """On a connection of those that users get."""
        opened = await self.executor.begin()
        await opened.execute(INSERT, (number,))
        await opened.commit()
