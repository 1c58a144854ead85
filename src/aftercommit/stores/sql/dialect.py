"""What databases are like that the stores speak to: a value for each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from aftercommit.errors import InvalidOption
from aftercommit.events.headers import HeaderCodec, headers_by
from aftercommit.stores.sql.rows import BETWEEN, HELD_COLUMNS, IN_UTC, HeldRow, Times, as_group

if TYPE_CHECKING:
    from aftercommit.stores.sql.changes import ByStatement
    from aftercommit.stores.sql.diagnosis import SqlDiagnosis
    from aftercommit.stores.sql.execution import Executor
    from aftercommit.stores.sql.runs import RunsByStatement
    from aftercommit.stores.sql.statements import Statement, Statements

_HOW_TO_SERIALIZE: Final = (
    "leave it out: on SQLite writers never overlap; elsewhere lock a row of your own, such as the order, before write()"
)

_HOW_TO_ORDER: Final = "leave it out, or use PostgreSQL, MySQL, MariaDB, SQLite or Redis for what has to be in order"


class Dialect(msgspec.Struct, frozen=True, eq=False):
    """What differs between databases where a whole statement does not."""

    #: As people write it.
    name: str
    #: The package that has `sql/`, `migrations/` and `downgrades/`.
    package: str
    #: The clock in the type of the time columns, read when the statement runs.
    now: str
    #: How the n-th parameter is written.
    marker: Callable[[int], str]
    #: How it changes rows, and how it looks for keys and takes their runs.
    changes: Callable[[Executor, Statements, Dialect, Statement], ByStatement]
    runs: Callable[[Executor, Statements, Dialect], RunsByStatement]
    #: Its own words. `held` is a group of rows as a table of (event_id, handler_id, owner, epoch, delay, error,
    #: counted, done); `held_keys` has only the first four of them, if there is something to gain from it.
    words: Mapping[str, str]
    #: The package of a database that it says nearly all as. A file of its own wins, and one that says nothing takes the
    #: other's away.
    base: str = ""
    #: How it is examined, where there is something to examine.
    diagnosis: Callable[..., SqlDiagnosis] | None = None
    #: Around the markers of these parameters, instead of `$`, where a bare one does not say enough.
    parameters: Mapping[str, str] = msgspec.field(default_factory=dict)
    #: The types of what becomes a variable when it is said more than once, where a marker stands for one place only.
    variables: Mapping[str, str] = msgspec.field(default_factory=dict)
    #: The values of time columns, in and out.
    times: Times = IN_UTC
    quotes: tuple[str, str] = ('"', '"')
    #: Whether the claim looks for new rows and for retries apart, because one index cannot serve both in order.
    claims_by_status: bool = False
    #: How a column of values is bound as an array, where there are arrays. Else groups travel as one JSON text.
    array: Callable[[Sequence[Any]], object] | None = None
    #: Whether neither can be: then a row of a group has a statement of its own, whose parameters are what `held` has
    #: elsewhere, and the driver writes many values as a list in parentheses.
    is_row_by_row: bool = False
    #: Asks a connection how its database is called, for a message.
    name_sql: str = ""
    #: Whether a statement that fails takes the whole transaction with it.
    fails_whole: bool = False
    #: Whether an open transaction keeps everybody else from writing.
    has_one_writer: bool = False
    #: What SQLAlchemy calls such databases, its family first; nothing where rows are not written through it.
    sqlalchemy: tuple[str, ...] = ()
    #: A level that has transactions, as SQLAlchemy calls it.
    isolation_level: str = "READ COMMITTED"
    #: Those that a transaction of the user's can be begun in.
    isolations: tuple[str, ...] = ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
    #: Why it cannot keep order, where that is so. There it has no fleet either.
    unordered: str = ""
    #: An instant as a literal in the type of `now`, for tests, where time stands still; None where nobody has tried.
    instant: Callable[[datetime], str] | None = None

    def with_headers(self, codec: HeaderCodec) -> Dialect:
        """The same, for headers that are written and read by a codec of the user's."""
        return replace(self, times=self.times._replace(headers=headers_by(codec)))

    def refuse_impossible(self, statements: Statements, *, ordered: bool, serialize_keys: bool) -> None:
        """By name, before anything is promised."""
        if ordered and self.unordered:
            raise InvalidOption(f"{self.name} cannot keep order: {self.unordered}", fix=_HOW_TO_ORDER)
        if serialize_keys and "lock_keys" not in statements:
            raise InvalidOption(f"{self.name} cannot serialize_keys", fix=_HOW_TO_SERIALIZE)

    def group(self, rows: Sequence[HeldRow], names: Collection[str] = HELD_COLUMNS) -> dict[str, object]:
        """Held rows as parameters of a statement; as columns, those that it names; or the only row."""
        if self.is_row_by_row:
            (row,) = rows
            return dict(zip(HELD_COLUMNS, row, strict=True))
        if self.array is None:
            return {"held": as_group(rows)}
        columns = zip(HELD_COLUMNS, zip(*rows, strict=True), strict=True)
        return {name: self.array(column) for name, column in columns if name in names}

    def columns(self, names: Sequence[str], columns: Iterable[Sequence[Any]]) -> Sequence[object]:
        """Rows, column by column, as the parameters of a statement that takes arrays, or many texts as one."""
        named = zip(names, columns, strict=True)
        return tuple([BETWEEN.join(column) if name == "texts" else self.list(column) for name, column in named])

    def list(self, values: Sequence[object]) -> object:
        """Many values of one kind as one parameter."""
        if self.is_row_by_row:
            return tuple(values) or (None,)  # a list in parentheses may not be empty
        return as_group(values) if self.array is None else self.array(values)
