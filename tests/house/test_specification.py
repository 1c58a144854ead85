"""The page that maps the names of the specification to ours names only what there is."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import aftercommit
from aftercommit import OutboxConfig

PAGE = Path(__file__).parents[2] / "docs" / "specification.md"
OPTIONS = {field.name for field in fields(OutboxConfig)}


def rows() -> list[tuple[int, str, str]]:
    """The line, the first and the middle column of each row of a table."""
    found = []
    for number, line in enumerate(PAGE.read_text().splitlines(), 1):
        if line.startswith("| ") and not line.startswith("| in the document"):
            theirs, ours, _ = (cell.strip() for cell in line.strip("|").split("|"))
            found.append((number, theirs, ours))
    return found


NAMES = [(number, name) for number, _, ours in rows() for name in re.findall(r"`([^`]+)`", ours)]


def test_every_row_says_where_its_name_is_here() -> None:
    assert len(NAMES) >= len(rows()) > 60
    assert [number for number, _, ours in rows() if "`" not in ours] == []


def test_every_name_of_the_page_exists() -> None:
    missing = [(number, name) for number, name in NAMES if not is_option(name) and not is_public(name)]
    assert missing == [], "lines of docs/specification.md, and what they name"


def is_option(name: str) -> bool:
    return name in OPTIONS


def is_public(name: str) -> bool:
    """A public name, or what one of them has: a method, a property, a declared field."""
    first, _, rest = name.partition(".")
    if first not in aftercommit.__all__:
        return False
    found = getattr(aftercommit, first)
    declared = {field for base in getattr(found, "__mro__", ()) for field in getattr(base, "__annotations__", {})}
    return not rest or hasattr(found, rest) or rest in declared


def test_a_name_that_does_not_exist_is_noticed() -> None:
    for name in ("Outbox.wrote", "Nobody", "worker_counts", "EventEnvelope.event"):
        assert not is_option(name)
        assert not is_public(name)
