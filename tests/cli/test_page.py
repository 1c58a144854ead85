"""The page of the command line says what there is, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from aftercommit.cli.exits import Exit
from aftercommit.cli.importing import load_command
from aftercommit.cli.program import COMMANDS

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def test_every_command_has_its_place_on_the_page_and_no_other() -> None:
    heads = re.findall(r"^### `([a-z -]+)`$", PAGE, re.MULTILINE)
    assert sorted(heads) == sorted(_names())


def test_every_option_of_a_command_stands_in_its_place() -> None:
    places = dict(re.findall(r"^### `([a-z -]+)`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
    shared = {"--json", "--yes", "--help", "--app", "--url", "--table", "--schema"}
    for name, command in _commands():
        own = {option for each in command.params if not getattr(each, "hidden", False) for option in each.opts}
        missing = {option for option in own if option.startswith("--")} - shared
        assert not [option for option in missing if f"`{option}" not in places[name]], name


def test_the_exit_codes_are_those_of_the_program() -> None:
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)] == list(Exit)


def _names() -> list[str]:
    return [name for name, _ in _commands()]


def _commands() -> Iterator[tuple[str, click.Command]]:
    for name, home in COMMANDS.items():
        command = load_command(home.module, home.attribute)
        if isinstance(command, click.Group):
            yield from ((f"{name} {below}", each) for below, each in command.commands.items())
        else:
            yield name, command
