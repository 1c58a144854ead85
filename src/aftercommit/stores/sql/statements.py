"""SQL as data: one named statement per file, its first line the promise, its parameters by name. Names of tables and
indexes are checked before they get near a statement, quoted when they do.

What is said in the same way everywhere stands in `stores/sql/sql/`; a file of a dialect's own wins over it. Words in
braces stand for what every database says in its own way: `{now}`, `{free}`, `{now_plus:delay}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib.resources import files
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from aftercommit.errors import InvalidOption
from aftercommit.events.columns import CLAIMED, COLUMNS, GIVEN, WRITTEN, Column, Kind
from aftercommit.stores.sql.rows import HELD_COLUMNS, IN_UTC, HeldRow, Times, as_group
from aftercommit.stores.sql.words import WORDS

if TYPE_CHECKING:
    from aftercommit.stores.sql.changes import ByStatement
    from aftercommit.stores.sql.diagnosis import SqlDiagnosis
    from aftercommit.stores.sql.execution import Executor
    from aftercommit.stores.sql.runs import RunsByStatement

_SHARED: Final = "aftercommit.stores.sql"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

#: PostgreSQL's limit is the smallest, and index names add a suffix.
_LONGEST = 48

#: What the tables beside that of events hold.
SIDES: Final = ("schema", "instance", "partition", "failure", "pause")

_COMMENT = re.compile(r"^\s*--.*$\n?", re.MULTILINE)
_WORD = re.compile(r"\{(?P<word>[a-z_]+)(?::(?P<argument>[a-z_.()]+))?\}")
_PARAMETER = re.compile(r"(?<![:\w]):(?P<name>[a-z_]+)\b(?=(?P<cast>::)?)")

#: What only some outcomes have. A statement that names none of it needs only the key and the lease of held rows.
_OF_OUTCOMES: Final = re.compile(r"\bheld\.(delay|error|counted|done)\b")


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """One statement in the driver's own parameter style, and the names of its parameters in order."""

    sql: str
    names: tuple[str, ...]
    #: Its parameters in order, picked from values by name.
    values: Callable[[Mapping[str, object]], Sequence[object]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        names = self.names
        pick: Callable[[Mapping[str, object]], Any] = (
            itemgetter(*names) if len(names) > 1 else lambda values: tuple(values[name] for name in names)
        )
        object.__setattr__(self, "values", pick)

    def bind(self, **values: object) -> Sequence[object]:
        return self.values(values)


@dataclass(frozen=True, slots=True, eq=False)
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
    #: How it changes rows, and how it looks for keys and takes their runs.
    changes: Callable[[Executor, Statements, Dialect, Statement], ByStatement]
    runs: Callable[[Executor, Statements, Dialect], RunsByStatement]
    #: Its own words. `held` is a group of rows as a table of (event_id, handler_id, owner, epoch, delay, error,
    #: counted, done); `held_keys` has only the first four of them, if there is something to gain from it.
    words: Mapping[str, str]
    #: How it is examined, where there is something to examine.
    diagnosis: Callable[..., SqlDiagnosis] | None = None
    #: Around the markers of these parameters, instead of `$`, where a bare one does not say enough.
    parameters: Mapping[str, str] = field(default_factory=dict)
    #: The types of what becomes a variable when it is said more than once, where a marker stands for one place only.
    variables: Mapping[str, str] = field(default_factory=dict)
    #: The values of time columns, in and out.
    times: Times = IN_UTC
    quotes: tuple[str, str] = ('"', '"')
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
    #: Those that a transaction of the user's can be begun in.
    isolations: tuple[str, ...] = ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
    #: An instant as a literal in the type of `now`, for tests, where time stands still; None where nobody has tried.
    instant: Callable[[datetime], str] | None = None

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
class TableNames:
    """The event table and the names that follow from it: `outbox_event` and `outbox_schema`, `x` and `x_schema`."""

    table: str
    schema: str | None = None
    #: What stands before and behind a quoted name.
    quotes: tuple[str, str] = ('"', '"')

    def __post_init__(self) -> None:
        checked_name(self.table, "table")
        if self.schema is not None:
            checked_name(self.schema, "schema")
        if self.table.lower() == "outbox":
            raise InvalidOption(
                f"table is {self.table!r}, whose side tables would be those of outbox_event",
                fix="use outbox_event, or a name of your own such as shop_outbox",
            )

    def side(self, noun: str) -> str:
        stem = "outbox" if self.table == "outbox_event" else self.table
        return f"{stem}_{noun}"

    @property
    def all(self) -> tuple[str, ...]:
        """The tables of one outbox, whichever there are."""
        return (self.table, *map(self.side, SIDES))

    def quoted(self, name: str) -> str:
        before, behind = self.quotes
        return f"{before}{name}{behind}"

    def qualified(self, name: str) -> str:
        """Quoted, with its schema if there is one."""
        return self.quoted(name) if self.schema is None else f"{self.quoted(self.schema)}.{self.quoted(name)}"


def checked_name(name: object, option: str) -> str:
    """A plain identifier, or an error that names the option."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise InvalidOption(
            f"{option} is {name!r}",
            fix=f"use letters, digits and underscores, not starting with a digit, {_LONGEST} characters at most",
        )
    return name


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema. An `online` one (`0002_name.online.sql`) runs outside transactions, statement by
    statement, while others write; each of its statements can be run again."""

    number: int
    statements: list[str]
    is_online: bool = False


class Statements(dict[str, Statement]):
    """The statements of a dialect for one outbox table, by their names."""

    def __init__(self, dialect: Dialect, names: TableNames) -> None:
        self._dialect = dialect
        self._names = names
        self._words = {
            **WORDS,
            "table": names.qualified(names.table),
            "table_name": names.quoted(names.table),
            **{f"{noun}_table": names.qualified(names.side(noun)) for noun in SIDES},
            "now": dialect.now,
            "written": ", ".join(column.name for column in WRITTEN),
            **dialect.words,
        }
        texts = {**_texts(_SHARED, "sql"), **_texts(dialect.package, "sql")}
        super().__init__({name: self._load(text) for name, text in texts.items()})

    def migrations(self) -> list[Migration]:
        """All there are, in order."""
        return self._steps("migrations")

    def downgrades(self) -> list[Migration]:
        """What takes each of them back, in the same order."""
        return self._steps("downgrades")

    def _steps(self, folder: str) -> list[Migration]:
        return [
            Migration(int(name[:4]), list(_split(self._expand(text))), name.endswith(".online"))
            for name, text in sorted(_texts(self._dialect.package, folder).items())
        ]

    def word(self, name: str) -> str:
        """How this database says it."""
        return self._words[name]

    def _load(self, text: str) -> Statement:
        text = self._with_variables(self._expand(text).strip())
        names: list[str] = []

        def mark(match: re.Match[str]) -> str:
            names.append(match["name"])
            marker = self._dialect.marker(len(names))
            around = "$" if match["cast"] else self._dialect.parameters.get(match["name"], "$")
            return around.replace("$", marker)

        return Statement(_PARAMETER.sub(mark, text), tuple(names))

    def _with_variables(self, text: str) -> str:
        """What is said more than once as variables, declared in front."""
        declared = []
        for name, kind in self._dialect.variables.items():
            said = self._dialect.now if name == "now" else f":{name}"
            changed, times = re.subn(re.escape(said) + r"(?!\w)", f"@{name}", text)
            if times > 1:
                text = changed
                declared.append(f"@{name} {kind} = {said}")
        return f"DECLARE {', '.join(declared)};\n{text}" if declared else text

    def _expand(self, text: str) -> str:
        """The text with everything said that stands in braces."""
        held = "held" if _OF_OUTCOMES.search(text) or "held_keys" not in self._words else "held_keys"

        def said(found: re.Match[str]) -> str:
            word, argument = found["word"], found["argument"] or ""
            match word:
                case "index":
                    return self._names.quoted(f"{self._names.table}_{argument}")
                case "qualified_index":
                    return self._names.qualified(f"{self._names.table}_{argument}")
                case "claimed":
                    text = self._read(CLAIMED, argument)
                case "recorded":
                    text = self._read(COLUMNS, argument)
                case "values":
                    text = _values(argument)
                case "held":
                    text = self._words[held]
                case "now_plus" | "now_minus" if "." not in argument:
                    text = self._words[word].replace("$", f":{argument}")
                case _:
                    text = self._words[word].replace("$", argument)
            return _WORD.sub(said, text)

        return _WORD.sub(said, text)

    def _read(self, columns: Sequence[Column], source: str) -> str:
        """Columns as rows are to have them, of the table or of another source of rows."""
        prefix = {"": "", "table": "{table}."}.get(source, f"{source}.")
        read = self._words["read"]
        return ", ".join(
            read.replace("$", prefix + column.name) if column.kind is Kind.INSTANT else prefix + column.name
            for column in columns
        )


statements_of = cache(Statements)  # a program may open many stores of one table


def _values(source: str) -> str:
    """What an INSERT writes: of parameters, or of the columns of a table of new rows."""
    values = ", ".join(f":{column.name}" if column.value == GIVEN else str(column.value) for column in WRITTEN)
    if source:
        values = _PARAMETER.sub(rf"{source}.\g<name>", values).replace("{now_plus:", f"{{now_plus:{source}.")
    return values


@cache
def _texts(package: str, folder: str) -> dict[str, str]:
    """What the files of a folder say, by their names, without comments."""
    found = (file for file in files(package).joinpath(folder).iterdir() if file.name.endswith(".sql"))
    return {file.name[:-4]: _COMMENT.sub("", file.read_text()).strip() for file in found}


def _split(script: str) -> Iterator[str]:
    return (statement for part in script.split(";\n") if (statement := part.strip(" \n;")))
