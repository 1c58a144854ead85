"""`aftercommit explain AC001`: what a code means and what to do, from the page of errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import click

from aftercommit.cli.command import Command, json_option, this_call
from aftercommit.errors import closest

#: The page lies in the package when it is installed, and with the other pages in a checkout.
_PAGES: Final = (Path(__file__).with_name("errors.md"), Path(__file__).parents[3] / "docs" / "errors.md")
_ROW: Final = re.compile(
    r"^\| (?P<code>AC\d{3}) \| `(?P<name>\w+)` \| (?P<meaning>.+) \| (?P<fix>.+) \|$", re.MULTILINE
)
#: `[text](link)`: a terminal follows no link.
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")


class Explanation(NamedTuple):
    code: str
    name: str
    meaning: str
    fix: str


@click.command(cls=Command)
@json_option
@click.argument("code")
def explain(*, code: str, as_json: bool) -> None:
    """Say what an error code means and what to do."""
    output, known = this_call().output, explanations()
    wanted = next((each for each in known.values() if code.lower() in (each.code.lower(), each.name.lower())), None)
    if wanted is None:
        near = closest(code.upper(), known) or closest(code, [each.name for each in known.values()])
        hint = f"did you mean {near}?" if near else f"they go from {min(known)} to {max(known)}"
        raise click.UsageError(f"there is no code {code}; {hint}")
    if as_json:
        output.json("explain/1", **wanted._asdict())
        return
    output.line(f"{wanted.code} {wanted.name}")
    output.line(f"  {wanted.meaning}")
    output.line(f"  Fix: {wanted.fix}")


def explanations() -> Mapping[str, Explanation]:
    """By code, in the order of the page."""
    page = next(path for path in _PAGES if path.is_file()).read_text(encoding="utf-8")
    rows = (
        Explanation(**{name: _LINK.sub(r"\1", text) for name, text in row.groupdict().items()})
        for row in _ROW.finditer(page)
    )
    return {each.code: each for each in rows}
