"""The program as a whole: what it loads, how it ends, and that it says no secret."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from aftercommit.cli.command import Command
from aftercommit.cli.exits import Exit
from aftercommit.cli.importing import load_command
from aftercommit.cli.output import Output, Verbatim, span
from aftercommit.cli.program import COMMANDS, program
from tests.cli.kit import Here, surroundings
from tests.cli.kit import program as real


def test_help_loads_neither_the_engine_nor_a_database_nor_rich(tmp_path: Path) -> None:
    script = (
        "import sys; from aftercommit.cli.program import run_program; code = run_program(['--help']);"
        "print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, cwd=tmp_path, env=surroundings(), check=True, capture_output=True, text=True, timeout=60
    )
    assert all(name in done.stdout for name in COMMANDS)
    loaded = set(done.stderr.split())
    heavy = {"sqlalchemy", "rich", "asyncio", "msgspec", "starlette", "tomllib"}
    assert not loaded & {*heavy, "aftercommit.engine", "aftercommit.outbox", "aftercommit.config"}
    assert {name for name in loaded if name.startswith("aftercommit.stores")} == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_what_the_table_says_of_it(name: str) -> None:
    home = COMMANDS[name]
    command = load_command(home.module, home.attribute)
    assert command.name == name
    assert command.get_short_help_str(limit=200) == home.help
    with click.Context(program, info_name="aftercommit") as above:
        assert _commands(command, click.Context(command, parent=above)) >= 1


def _commands(command: click.Command, ctx: click.Context) -> int:
    """How many there are; each understands the options that all have."""
    if isinstance(command, click.Group):
        return sum(_commands(each, ctx) for each in command.commands.values())
    assert isinstance(command, Command), command.name
    return 1


def test_the_same_program_is_a_module(tmp_path: Path) -> None:
    done = real("version", "--json", folder=tmp_path)
    assert (done.code, done.json["schema"], done.err) == (0, "aftercommit.version/1", "")


def test_an_unknown_command_names_the_nearest(here: Here) -> None:
    done = here("conifg")
    assert done.code == Exit.USAGE
    assert "did you mean 'config'?" in done.err


def test_options_of_the_program_stand_before_or_behind_a_command(here: Here, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("worker_count = 9")
    for arguments in (["--config", "other.toml", "config", "show"], ["config", "show", "--config", "other.toml"]):
        done = here(*arguments, "--json")
        assert done.json["values"]["worker_count"] == {"value": 9, "source": "other.toml"}


def test_an_error_is_one_message_with_its_fix_and_a_traceback_only_on_request(here: Here, tmp_path: Path) -> None:
    (tmp_path / "aftercommit.toml").write_text("worker_cuont = 9")
    done = here("config", "show")
    assert done.code == Exit.NO_START
    assert "[AC040]" in done.err
    assert "did you mean worker_count?" in done.err
    assert str(tmp_path / "aftercommit.toml") in done.err
    assert "Traceback" not in done.err
    assert "Traceback" in here("config", "show", "-vv").err


def test_a_password_in_an_argument_is_not_said(here: Here) -> None:
    done = here("version", "postgresql://user:canary@host/db")
    assert done.code == Exit.USAGE
    assert "canary" not in done.err + done.out


def test_json_masks_secrets_in_every_text_but_a_payload_that_was_asked_for(capsys) -> None:
    Output().json("x/1", where=["http://u:canary@h"], payload=Verbatim("http://u:canary@h"))
    assert capsys.readouterr().out.count("canary") == 1


def test_a_table_steers_no_terminal(capsys) -> None:
    Output().table(("a", "b"), [("\x1b[31m\n", 1234)])
    assert capsys.readouterr().out == "A           B\n\\x1b[31m\\n  1,234\n"


def test_a_change_that_nobody_can_confirm_is_refused() -> None:
    with pytest.raises(click.UsageError, match="--yes"):
        Output().confirm("Will delete 7 events.", yes=False)
    Output().confirm("Will delete 7 events.", yes=True)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0841, "84ms"), (4.25, "4.2s"), (59, "59s"), (724, "12m 04s"), (176400, "2d 01h")]
)
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert span(seconds) == text
