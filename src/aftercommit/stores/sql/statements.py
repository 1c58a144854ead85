"""SQL as data: one named statement per file, its first line the promise, its parameters by name. Names of tables and
indexes are checked before they get near a statement, quoted when they do.

What is said in the same way everywhere stands in `stores/sql/sql/`; a file of a dialect's own wins over it. Words in
braces stand for what every database says in its own way: `{now}`, `{free}`, `{now_plus:delay}`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from operator import itemgetter
from typing import Any, Final

import msgspec

from aftercommit.errors import InvalidOption
from aftercommit.events.columns import CLAIMED, COLUMNS, GIVEN, PLAIN, WRITTEN, Column, Kind
from aftercommit.events.fields import JSON
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.words import WORDS

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

#: A column of a held row.
_OF_HELD: Final = re.compile(r"\bheld\.(?P<column>\w+)")


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


class TableNames(msgspec.Struct, frozen=True):
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


class Migration(msgspec.Struct, frozen=True):
    """One step of the schema. An `online` one (`0002_name.online.sql`) runs outside transactions, statement by
    statement, while others write; each of its statements can be run again."""

    number: int
    statements: list[str]
    is_online: bool = False


class Statements(dict[str, Statement]):
    """The statements of a dialect for one outbox table, by their names; or, from another folder, for another table."""

    def __init__(self, dialect: Dialect, names: TableNames, folder: str = "sql") -> None:
        self._dialect = dialect
        self._names = names
        self._words = {
            **WORDS,
            "table": names.qualified(names.table),
            "table_name": names.quoted(names.table),
            **{f"{noun}_table": names.qualified(names.side(noun)) for noun in SIDES},
            "now": dialect.now,
            "plain": ", ".join((*(column.name for column in PLAIN), "content_type, created_at, available_at")),
            "written": ", ".join(column.name for column in WRITTEN),
            **dialect.words,
        }
        texts = {**_texts(_SHARED, folder), **self._own_texts(folder)}
        super().__init__({name: self._load(text) for name, text in texts.items() if text})

    def _own_texts(self, folder: str) -> dict[str, str]:
        """Those of the dialect, over those of the one that it is based on."""
        base, package = self._dialect.base, self._dialect.package
        return {**(_texts(base, folder) if base else {}), **_texts(package, folder)}

    def migrations(self) -> list[Migration]:
        """All there are, in order."""
        return self._steps("migrations")

    def downgrades(self) -> list[Migration]:
        """What takes each of them back, in the same order."""
        return self._steps("downgrades")

    def _steps(self, folder: str) -> list[Migration]:
        return [
            Migration(int(name[:4]), list(_split(self._expand(text))), name.endswith(".online"))
            for name, text in sorted(self._own_texts(folder).items())
        ]

    def word(self, name: str) -> str:
        """How this database says it."""
        return self._words[name]

    def _load(self, text: str) -> Statement:
        text = self._with_variables(self._expand(text).strip())
        if self._dialect.is_row_by_row:
            text = _OF_HELD.sub(r":\g<column>", text)
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
                case "plain_values":
                    text = _plain_values(argument)
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


def _plain_values(source: str) -> str:
    """What the INSERT of a plain event writes: of parameters, or of the columns of a table of new rows."""
    before = f"{source}." if source else ":"
    return ", ".join((*(before + column.name for column in PLAIN), f"'{JSON}', {{now}}, {{now}}"))


@cache
def _texts(package: str, folder: str) -> dict[str, str]:
    """What the files of a folder say, by their names, without comments."""
    found = (_read_folder if os.path.isdir(place_of(package)) else _read_archive)(package, folder)
    return {name[:-4]: _COMMENT.sub("", text).strip() for name, text in found if name.endswith(".sql")}


def _read_folder(package: str, folder: str) -> Iterator[tuple[str, str]]:
    """As nearly every package is installed."""
    place = os.path.join(place_of(package), folder)
    for name in os.listdir(place) if os.path.isdir(place) else ():
        with open(os.path.join(place, name), encoding="utf-8") as file:
            yield name, file.read()


def _read_archive(package: str, folder: str) -> Iterator[tuple[str, str]]:
    from importlib.resources import files  # noqa: PLC0415  (a third of the time that the statements take)

    place = files(package).joinpath(folder)
    for file in place.iterdir() if place.is_dir() else ():
        yield file.name, file.read_text(encoding="utf-8")


def place_of(package: str) -> str:
    spec = find_spec(package)
    return next(iter((spec and spec.submodule_search_locations) or ()), "")


def _split(script: str) -> Iterator[str]:
    return (statement for part in script.split(";\n") if (statement := part.strip(" \n;")))
