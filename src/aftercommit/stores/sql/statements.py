"""SQL as data: one named statement per file, its first line the promise, its parameters by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from operator import itemgetter
from typing import Any

from aftercommit.stores.sql.identifiers import TableNames
from aftercommit.stores.sql.rows import HELD_COLUMNS, IN_UTC, HeldRow, Times, as_group

_COMMENT = re.compile(r"^\s*--.*$\n?", re.MULTILINE)
_MACRO = re.compile(r"\{(?P<kind>[a-z_]+)(?::(?P<argument>[a-z_]+))?\}")
_PARAMETER = re.compile(r"(?<![:\w]):(?P<name>[a-z_]+)\b")


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement in the driver's own parameter style, and the names of its parameters in order."""

    sql: str
    names: tuple[str, ...]
    _pick: Callable[[Mapping[str, object]], Any] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_pick", itemgetter(*self.names) if self.names else lambda _: ())

    def bind(self, **values: object) -> tuple[object, ...]:
        picked = self._pick(values)
        return picked if len(self.names) != 1 else (picked,)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs between databases where a whole statement does not."""

    #: As people write it.
    name: str
    #: The package that has `sql/` and `migrations/`.
    package: str
    #: The clock in the type of the time columns, read when the statement runs.
    now: str
    #: How the n-th parameter is written.
    marker: Callable[[int], str]
    #: The group parameters as a table `held` of (event_id, handler_id, owner, epoch, delay, error, counted, done).
    held: str
    #: Only the first four of them, if there is something to gain from it.
    held_keys: str = ""
    #: The values of time columns, in and out.
    times: Times = IN_UTC
    quotes: tuple[str, str] = ('"', '"')
    #: Whether statements return the rows that they changed. Else they are looked for first, in one transaction.
    returns_rows: bool = False
    #: Its own way to look and change, where it needs one.
    steps: Callable[[Any, Any, Any], Any] | None = None
    #: Whether the claim looks for new rows and for retries apart, because one index cannot serve both in order.
    claims_by_status: bool = False
    #: How a column of values is bound as an array, where there are arrays. Else groups travel as one JSON text.
    array: Callable[[Sequence[Any]], object] | None = None
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

    def group(self, rows: Sequence[HeldRow], names: Collection[str] = HELD_COLUMNS) -> dict[str, object]:
        """Held rows as parameters of a statement; as columns, those that it names."""
        if self.array is None:
            return {"held": as_group(rows)}
        columns = zip(HELD_COLUMNS, zip(*rows, strict=True), strict=True)
        return {name: self.array(column) for name, column in columns if name in names}

    def list(self, values: Sequence[object]) -> object:
        """Many values of one kind as one parameter."""
        return as_group(values) if self.array is None else self.array(values)


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema. An `online` one (`0002_name.online.sql`) runs outside transactions, statement by
    statement, while others write; each of its statements can be run again."""

    number: int
    statements: list[str]
    is_online: bool = False


class Statements:
    """The statements of a dialect for one outbox table."""

    def __init__(self, dialect: Dialect, names: TableNames) -> None:
        self._dialect = dialect
        self._names = names
        self._loaded = {file.name[:-4]: self._load(file) for file in _sql_files(dialect.package, "sql")}

    def __getitem__(self, name: str) -> Statement:
        return self._loaded[name]

    def __contains__(self, name: str) -> bool:
        return name in self._loaded

    def migrations(self) -> list[Migration]:
        """All there are, in order."""
        found = sorted(_sql_files(self._dialect.package, "migrations"), key=lambda file: file.name)
        return [
            Migration(int(file.name[:4]), list(_split(self._expand(file.read_text()))), ".online." in file.name)
            for file in found
        ]

    def _load(self, file: Traversable) -> Statement:
        text = self._expand(file.read_text())
        names: list[str] = []

        def mark(match: re.Match[str]) -> str:
            names.append(match["name"])
            return self._dialect.marker(len(names))

        sql = _PARAMETER.sub(mark, text)
        return Statement(sql, tuple(names))

    def _expand(self, text: str) -> str:
        text = _COMMENT.sub("", text).strip()
        return _MACRO.sub(lambda match: self._macro(match["kind"], match["argument"]), text)

    def _macro(self, kind: str, argument: str | None) -> str:
        names = self._names
        table = names.qualified(names.table)
        simple: Mapping[str, str] = {
            "table": table,
            "table_name": names.quoted(names.table),
            "schema_table": names.qualified(names.side("schema")),
            "instance_table": names.qualified(names.side("instance")),
            "partition_table": names.qualified(names.side("partition")),
            "now": self._dialect.now,
            "held": self._dialect.held,
            "fence": (
                f"{table}.event_id = held.event_id AND {table}.handler_id = held.handler_id"
                " AND locked_by = held.owner AND lease_epoch = held.epoch AND status IN (0, 2)"
            ),
        }
        if kind == "index":
            return names.quoted(f"{names.table}_{argument}")
        if kind == "qualified_index":
            return names.qualified(f"{names.table}_{argument}")
        if kind == "held" and argument == "keys" and self._dialect.held_keys:
            return self._dialect.held_keys
        return simple[kind]


def _sql_files(package: str, folder: str) -> Iterator[Any]:
    return (file for file in files(package).joinpath(folder).iterdir() if file.name.endswith(".sql"))


def _split(script: str) -> Iterator[str]:
    return (statement for part in script.split(";\n") if (statement := part.strip(" \n;")))
