"""One connection in either colour, and the transaction on it. Under threads nothing here ever suspends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, Protocol, TypeVar

from aftercommit.errors import NotInTransaction, PayloadTooLarge, UnsupportedTransaction
from aftercommit.events.claims import QueryResult
from aftercommit.ports import Colour
from aftercommit.runtime.process import here
from aftercommit.stores.sql.connections import Turn, abandoned

T = TypeVar("T")

#: Statements of more than this are asked about before they are sent. Few servers take less, and the driver's
#: escapes may double a text.
_LARGE: Final = 500_000

#: Many rows go as statements of about this size.
_CHUNK: Final = 500_000

_SAVEPOINT: Final = "aftercommit_many"

#: Flags of the server's status, which the protocol fixes.
IN_TRANSACTION: Final = 1
AUTOCOMMIT: Final = 2
_NO_BACKSLASH_ESCAPES: Final = 512

_BACKSLASH: Final = "\\"
_ESCAPED: Final = "\\\\"


class Link(Protocol):
    """A driver's connection, awaited. The server's own word, which comes with every reply, tells its state."""

    raw: Any

    @property
    def is_open(self) -> bool: ...

    @property
    def is_in_transaction(self) -> bool: ...

    @property
    def is_autocommit(self) -> bool: ...

    @property
    def charset(self) -> str: ...

    async def run(self, sql: str, parameters: Any = None) -> QueryResult:
        """One of our statements: rows are tuples, whatever cursors the connection was given."""

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """One of our statements that gives no rows; how many it matched."""

    async def query(self, sql: str, parameters: Any = None) -> QueryResult:
        """One of the user's."""

    async def ping(self) -> None:
        """Hear the state anew: an error does not bring it, and some errors end the transaction."""


class DriverLink(Link):
    """A connection of one of the drivers, which the class tells from the other."""

    colour: ClassVar[Colour]
    #: The driver's own.
    connections: ClassVar[type]
    #: The root of the driver's errors.
    error: ClassVar[type[Exception]]
    #: How one waits for a connection.
    turn: ClassVar[Callable[[], Turn]]

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self._process = here.token

    @property
    def is_here(self) -> bool:
        """Whether it can be awaited from here."""
        return True

    @property
    def is_lost(self) -> bool:
        """Whether whoever had it will never give it back."""
        return False

    @property
    def descriptor(self) -> int:
        """The number of its socket."""
        raise NotImplementedError

    @property
    def is_in_transaction(self) -> bool:
        return bool(self.raw.server_status & IN_TRANSACTION)

    @property
    def is_autocommit(self) -> bool:
        return bool(self.raw.server_status & AUTOCOMMIT)

    async def send(self, sql: str) -> None:
        """A statement that takes and returns nothing, such as ROLLBACK, at half the cost of a cursor."""
        raise NotImplementedError

    async def commit(self) -> None:
        """By the driver's own, which makes no result of the reply."""
        raise NotImplementedError

    def _text(self, sql: str, parameters: Sequence[object]) -> str | None:
        """The user's statement; None when its parameters do not fit, of which a cursor makes the driver's error."""
        try:
            return rendered(sql, parameters, self.raw)
        except TypeError:
            return None

    async def close(self) -> None:
        """Say good-bye and close."""
        self.drop()

    def drop(self) -> None:
        """Close at once. Never raises, and leaves alone what is a parent process's."""
        if self._process is not here.token:
            abandoned.append(self.raw)
            return
        with suppress(Exception):  # it may be closed, or its event loop may have ended
            self.raw.close()


#: Of parameters that are bound as they stand.
SEQUENCES: Final = (tuple, list)

#: One of a link's ways to run a statement.
Run = Callable[[str, Sequence[object]], Awaitable[T]]


def rendered(sql: str, values: Sequence[object], raw: Any) -> str:
    """The statement with its values in it, which is all that a cursor of either driver does to bind them. What it would
    do with the types that are not met here, the connection says. A text ends with a quote that stands alone, and only
    a backslash makes another character of what is behind it, unless the server has said that it does not."""
    if not values:
        return sql  # where a percent sign is one
    has_escapes = not raw.server_status & _NO_BACKSLASH_ESCAPES
    texts = []
    for value in values:
        if value is None:
            texts.append("NULL")
        elif type(value) is str:
            text = value.replace("'", "''")
            texts.append(f"'{text.replace(_BACKSLASH, _ESCAPED) if has_escapes else text}'")
        elif type(value) is int:
            texts.append(str(value))
        elif type(value) is datetime:
            texts.append(f"'{value.isoformat(' ', 'microseconds')[:26]}'")  # without its zone, as drivers say it
        else:
            texts.append(raw.escape(value))
    return sql % tuple(texts)


@dataclass(eq=False)
class LinkTx:
    """A Tx over a connection."""

    _link: Link

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return await self._run(self._link.execute, sql, parameters)

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        return (await self._run(self._link.run, sql, parameters)).rows

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        """An INSERT of many rows, all or none: one statement is that by itself, several are under a savepoint."""
        statements = list(_many(sql, parameters))
        if len(statements) == 1:
            return await self.execute(*statements[0])
        await self.execute(f"SAVEPOINT {_SAVEPOINT}")
        try:
            count = sum([await self.execute(*statement) for statement in statements])
        except BaseException:
            with suppress(Exception):  # a lost connection or a deadlock has undone it already
                await self.execute(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
            raise
        await self.execute(f"RELEASE SAVEPOINT {_SAVEPOINT}")
        return count

    async def _run(self, run: Run[T], sql: str, parameters: Sequence[object]) -> T:
        values, length = parameters, 0
        for value in parameters:
            if isinstance(value, str):
                length += len(value)
            elif isinstance(value, bytes):
                values, length = [one.hex() if isinstance(one, bytes) else one for one in parameters], _LARGE
        try:
            if length * 4 > _LARGE and (size := _size(values)) > _LARGE:  # UTF-8: four bytes a character at most
                await self._refuse_too_large(size)
            return await run(sql, values)
        except Exception as error:
            await self._hear(error)
            raise

    async def _hear(self, error: Exception) -> None:
        """Of a statement that failed."""

    async def _refuse_too_large(self, size: int) -> None:
        """The server would cut the connection in the middle of the statement."""
        limit = (await self._link.run("SELECT @@max_allowed_packet")).rows[0][0]
        if size >= limit:
            raise PayloadTooLarge(
                f"the statement has {size:,} bytes, the server takes {limit:,} (max_allowed_packet)",
                fix="raise max_allowed_packet on the server, or store the bulk elsewhere and send a reference to it",
            )


class AdoptedLinkTx(LinkTx):
    """A caller's own connection, in whatever transaction, time zone and SQL mode it is in."""

    @property
    def is_begun(self) -> bool:
        return self._link.is_open and self._link.is_in_transaction

    @property
    def is_active(self) -> bool:
        """Begun, or without autocommit, where the server begins one with the INSERT."""
        return self._link.is_open and (self._link.is_in_transaction or not self._link.is_autocommit)

    @property
    def mark(self) -> object:
        """What the last statement gave. A rollback of the driver's leaves nothing there."""
        return getattr(self._link.raw, "_result", None)

    async def _run(self, run: Run[T], sql: str, parameters: Sequence[object]) -> T:
        if self._link.charset != "utf8mb4" and not all(_is_ascii(value) for value in parameters):
            raise UnsupportedTransaction(
                f"the connection speaks {self._link.charset}, in which not every event can be said",
                fix='connect with charset="utf8mb4"',
            )
        if self._link.is_autocommit:
            await self._refuse_undone()
        return await super()._run(run, sql, parameters)

    async def _refuse_undone(self) -> None:
        """A deadlock ends the transaction, and the driver does not see it: the row would be saved by itself."""
        await self._link.ping()
        if not self._link.is_in_transaction:
            raise NotInTransaction(
                "the server has rolled the transaction back, after a deadlock for instance",
                fix="begin a new one, and do its work again",
            )


def _is_ascii(value: object) -> bool:
    return not isinstance(value, str) or value.isascii()


def _size(values: Sequence[object]) -> int:
    return sum(len(value) if value.isascii() else len(value.encode()) for value in values if isinstance(value, str))


def _many(sql: str, rows: Sequence[Sequence[object]]) -> Iterator[tuple[str, list[object]]]:
    """INSERTs of several rows each, in order."""
    head, word, row_text = sql.partition(" VALUES ")
    values: list[object] = []
    count = size = 0
    for row in rows:
        more = sum(len(value) for value in row if isinstance(value, str | bytes))
        if count and size + more > _CHUNK:
            yield head + word + ", ".join([row_text] * count), values
            values, count, size = [], 0, 0
        values.extend(row)
        count, size = count + 1, size + more
    yield head + word + ", ".join([row_text] * count), values
