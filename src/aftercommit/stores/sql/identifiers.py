"""Names of tables and indexes: checked before they get near a statement, quoted when they do."""

from __future__ import annotations

import re
from dataclasses import dataclass

from aftercommit.errors import InvalidOption

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

#: PostgreSQL's limit is the smallest, and index names add a suffix.
_LONGEST = 48


def checked_name(name: object, option: str) -> str:
    """A plain identifier, or an error that names the option."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise InvalidOption(
            f"{option} is {name!r}",
            fix=f"use letters, digits and underscores, not starting with a digit, {_LONGEST} characters at most",
        )
    return name


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
        return (self.table, *(self.side(noun) for noun in ("schema", "instance", "partition")))

    def quoted(self, name: str) -> str:
        before, behind = self.quotes
        return f"{before}{name}{behind}"

    def qualified(self, name: str) -> str:
        """Quoted, with its schema if there is one."""
        return self.quoted(name) if self.schema is None else f"{self.quoted(self.schema)}.{self.quoted(name)}"
