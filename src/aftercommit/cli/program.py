"""The program, and the table of its commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import click

from aftercommit.cli.command import Call, common_options
from aftercommit.cli.ending import ended
from aftercommit.cli.importing import load_command


class Home(NamedTuple):
    """Where a command is: its module in this folder, its name there, and its line in the help of the program."""

    module: str
    attribute: str
    help: str


#: In the order of the help. A command's module is loaded when the command is asked for.
COMMANDS: Final[Mapping[str, Home]] = {
    "run": Home("run", "run", "Deliver events in a process of its own."),
    "send": Home("send", "send", "Write one event, in a transaction of its own."),
    "handlers": Home("handlers", "handlers", "List the handlers of an outbox: their ids, events and options."),
    "status": Home("status", "status", "Show what waits, what is dead, who delivers, and how far behind it is."),
    "tail": Home("looking", "tail", "Follow rows as they are written, tried again and ended, until Ctrl-C."),
    "list": Home("looking", "list_rows", "List rows by what they are."),
    "show": Home("looking", "show", "Show every row of an event."),
    "dead": Home("dead", "dead", "Look at dead letters, retry or discard them."),
    "cancel": Home("changing", "cancel", "End events that wait, without delivering them."),
    "replay": Home("changing", "replay", "Deliver events once more that are done."),
    "pause": Home("pausing", "pause", "Deliver nothing to a handler, or of a type, over the whole fleet."),
    "resume": Home("pausing", "resume", "Deliver again what was paused."),
    "purge": Home("changing", "purge", "Delete rows that ended long ago."),
    "migrate": Home("migrate", "migrate", "Make and upgrade the tables, or tell how they are."),
    "doctor": Home("doctor", "doctor", "Look for what hurts in production, and say how to mend it."),
    "healthcheck": Home("healthcheck", "healthcheck", "Ask a running worker whether it is live, ready or started."),
    "bench": Home("bench", "bench", "Measure writing, delivery and latency on a scratch table."),
    "config": Home("config", "config", "Show every option and where its value comes from."),
    "explain": Home("explain", "explain", "Say what an error code means and what to do."),
    "init": Home("init", "init", "Write a configuration file and an example of a handler here."),
    "demo": Home("small", "demo", "Show in ten seconds what becomes of an event."),
    "completion": Home("small", "completion", "Print the completion script for a shell."),
    "version": Home("small", "version", "Print the version."),
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
    """The exit code of a call."""
    call = Call()
    words = None if arguments is None else list(arguments)
    return ended(call, lambda: program.main(words, "aftercommit", standalone_mode=False, obj=call))
