"""What there is of the tables of an outbox, beside what each version of the schema has. The migrations say that: every
table, column and index that one of them makes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from aftercommit.ports import Tx
from aftercommit.stores.sql.statements import Migration, Statements, TableNames

_TABLE: Final = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(?P<table>\S+) \((?P<body>.*?)\n\)", re.DOTALL)
_COLUMN: Final = re.compile(r"^  (?P<column>[a-z_]+) ", re.MULTILINE)
_ALTERED: Final = re.compile(r"ALTER TABLE (?P<table>\S+)")
_ADDED: Final = re.compile(r"\bADD (?:COLUMN )?(?:IF NOT EXISTS )?(?P<column>[a-z_]+) ")
_INDEX: Final = re.compile(r"\b(?:INDEX|KEY)(?: CONCURRENTLY)?(?: IF NOT EXISTS)? [\"`\[](?P<index>\w+)[\"`\]]")


class Inventory(msgspec.Struct, frozen=True):
    """What one look has found."""

    #: The tables that are there.
    tables: tuple[str, ...]
    #: What each step of the schema should have made and is not there, in words.
    lacks: tuple[tuple[str, ...], ...]
    #: What is there and cannot be used as it is, in words.
    flaws: tuple[str, ...] = ()

    @property
    def version(self) -> int:
        """The last version of which all is there; 0 when something is wrong with it."""
        whole = next((number for number, lack in enumerate(self.lacks) if lack), len(self.lacks))
        return 0 if self.flaws else whole

    def missing(self, version: int) -> tuple[str, ...]:
        return (*(each for lack in self.lacks[:version] for each in lack), *self.flaws)


async def take_inventory(tx: Tx, sql: Statements, names: TableNames) -> Inventory:
    """Look at every table that the migrations name."""
    wanted = [dict.fromkeys(_made_by(migration, names)) for migration in sql.migrations()]
    found: dict[tuple[str, str], str | None] = {}
    tables = []
    for name in names.all:
        statement = sql["objects"]
        values = {"name": name, "schema": names.schema, "qualified": names.qualified(name)}
        rows = await tx.fetch(statement.sql, statement.values(values))
        if rows:
            tables.append(name)
            found["table", name] = None
        for kind, what, flaw in rows:
            found[str(kind), f"{name}.{what}" if kind == "column" else str(what)] = flaw
    return Inventory(
        tuple(tables),
        tuple(tuple(_lacking(step, found)) for step in wanted),
        tuple(f"{kind} {what}, which {flaw}" for (kind, what), flaw in found.items() if flaw is not None),
    )


def _made_by(migration: Migration, names: TableNames) -> Iterator[tuple[str, str]]:
    """Kind and name of what a migration makes."""
    plain = {names.qualified(name): name for name in names.all}
    for statement in migration.statements:
        for made in _TABLE.finditer(statement):
            table = plain[made["table"]]
            yield "table", table
            yield from (("column", f"{table}.{each['column']}") for each in _COLUMN.finditer(made["body"]))
        for altered in _ALTERED.finditer(statement):
            table = plain[altered["table"]]
            yield from (("column", f"{table}.{each['column']}") for each in _ADDED.finditer(statement))
        yield from (("index", each["index"]) for each in _INDEX.finditer(statement))


def _lacking(wanted: dict[tuple[str, str], None], found: dict[tuple[str, str], str | None]) -> Iterator[str]:
    """Of a table that is not there no column is named."""
    gone = {name for kind, name in wanted if kind == "table" and (kind, name) not in found}
    for kind, name in wanted:
        if (kind, name) not in found and not (kind == "column" and name.partition(".")[0] in gone):
            yield f"{kind} {name}"
