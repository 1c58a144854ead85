"""`aftercommit explain AC001`: what a code means and what to do, from the pages of errors and of checks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import click

from aftercommit.cli.command import Command, json_option, this_call
from aftercommit.errors import closest

#: The pages lie in the package when it is installed, and with the others in a checkout.
_FOLDERS: Final = (Path(__file__).with_name("pages"), Path(__file__).parents[3] / "docs")
#: Errors have the name of their class, findings of `aftercommit doctor` have none.
_ROWS: Final = {
    "errors.md": re.compile(r"^\| (?P<code>AC\d{3}) \| `(?P<name>\w+)` \| (?P<meaning>.+) \| (?P<fix>.+) \|$", re.M),
    "doctor.md": re.compile(r"^\| (?P<code>AC\d{3}) \| (?P<meaning>.+) \| (?P<fix>.+) \|$", re.M),
}
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
    """By code, in the order of the pages."""
    folder = next(each for each in _FOLDERS if each.is_dir())
    found = {}
    for page, row in _ROWS.items():
        for match in row.finditer((folder / page).read_text(encoding="utf-8")):
            texts = {name: _LINK.sub(r"\1", text) for name, text in match.groupdict().items()}
            found[texts["code"]] = Explanation(**{"name": "(a check of aftercommit doctor)", **texts})
    return found
