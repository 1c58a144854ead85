"""The program: the table of its commands, and how a call of it ends."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any, Final, NamedTuple

import click

from aftercommit.cli.command import Call, common_options
from aftercommit.cli.exits import Exit, exit_of
from aftercommit.cli.importing import load_command
from aftercommit.errors import OutboxError
from aftercommit.events.redact import error_text, traceback_text


class Home(NamedTuple):
    """Where a command is: its module in this folder, its name there, and its line in the help of the program."""

    module: str
    attribute: str
    help: str


#: In the order of the help. A command's module is loaded when the command is asked for.
COMMANDS: Final[Mapping[str, Home]] = {
    "status": Home("status", "status", "Show what waits, what is dead, who delivers, and how far behind it is."),
    "tail": Home("looking", "tail", "Follow rows as they are written, tried again and ended, until Ctrl-C."),
    "list": Home("looking", "list_rows", "List rows by what they are."),
    "show": Home("looking", "show", "Show every row of an event."),
    "dead": Home("dead", "dead", "Look at dead letters, retry or discard them."),
    "cancel": Home("changing", "cancel", "End events that wait, without delivering them."),
    "replay": Home("changing", "replay", "Deliver events once more that are done."),
    "purge": Home("changing", "purge", "Delete rows that ended long ago."),
    "migrate": Home("migrate", "migrate", "Make and upgrade the tables, or tell how they are."),
    "doctor": Home("doctor", "doctor", "Look for what hurts in production, and say how to mend it."),
    "config": Home("config", "config", "Show every option and where its value comes from."),
    "version": Home("version", "version", "Print the version."),
}


class Program(click.Group):
    """Knows its commands by the table, and loads the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        home = COMMANDS[cmd_name]
        command: click.Command = load_command(home.module, home.attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS:
            from aftercommit.errors import closest  # noqa: PLC0415

            near = closest(args[0], COMMANDS)
            hint = f"did you mean {near!r}?" if near else "see aftercommit --help"
            ctx.fail(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, home.help) for name, home in COMMANDS.items()])


program: Final = Program(
    "aftercommit",
    help="A transactional outbox: deliver events, look at them, mend what went wrong.\n\n"
    "The options below may also stand behind a command.",
    params=common_options(hidden=False),
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": None},
    no_args_is_help=True,
    epilog="Exit codes: 0 done, 1 a problem was found, 2 wrong usage or not confirmed, 3 could not start, "
    "4 the database cannot be reached, 5 partly done, 130 interrupted.",
)


def run_program(arguments: Sequence[str] | None = None) -> int:
    """The exit code of a call. Whatever happens is one clean message, and a traceback only with -vv."""
    call = Call()
    try:
        code: Any = program.main(
            None if arguments is None else list(arguments), "aftercommit", standalone_mode=False, obj=call
        )
        sys.stdout.flush()
    except click.ClickException as error:
        said = StringIO()
        error.show(said)
        call.output.say(said.getvalue().rstrip())  # it may quote an argument with a password in it
        return Exit.USAGE
    except OutboxError as error:
        return _told(call, error, str(error), exit_of(error))
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except OSError as error:
        if error.errno != errno.EPIPE:
            return _told(call, error, error_text(error), Exit.PROBLEM)
        # Whoever read our output has seen enough. What is still to be written goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except Exception as error:  # a mistake of ours, or of a program that was loaded
        return _told(call, error, f"{error_text(error)}\n  Fix: -vv shows where it happened", Exit.PROBLEM)
    return int(code or Exit.OK)


def _told(call: Call, error: BaseException, text: str, code: Exit) -> Exit:
    if call.verbosity > 1:
        call.output.say(traceback_text(error))
    call.output.complain(f"aftercommit: {text}")
    return code
