"""What every command has: the options about its output, and one call that they are valid for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aftercommit.cli.output import Output

if TYPE_CHECKING:
    from aftercommit.settings import Settings


@dataclass
class Call:
    """One call of the program: what was said before and behind the command's name alike."""

    verbosity: int = 0
    log_format: str = "text"
    no_color: bool = False
    config: str | None = None
    profile: str | None = None

    @cached_property
    def output(self) -> Output:
        return Output(is_plain=self.no_color)

    @cached_property
    def settings(self) -> Settings:
        """Read when first asked for: `--help` and `version` work in a folder with a broken file."""
        from aftercommit.settings import read_settings  # noqa: PLC0415  (with all options, and msgspec behind them)

        return read_settings(file=self.config, profile=self.profile)


def call_of(ctx: click.Context) -> Call:
    return ctx.find_root().ensure_object(Call)


def this_call() -> Call:
    return call_of(click.get_current_context())


def _keep(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    """An option may stand at either place; the one that was given counts."""
    call, name = call_of(ctx), str(option.name)
    if value not in (None, False, 0) and not ctx.resilient_parsing:
        setattr(call, name, value)


def common_options(*, hidden: bool) -> list[click.Parameter]:
    """Listed in the help of the program, understood by every command."""

    def option(*names: str, **more: Any) -> click.Option:
        return click.Option(names, expose_value=False, callback=_keep, hidden=hidden, **more)

    return [
        option("-v", "verbosity", count=True, help="Say more: -v what is done, -vv every delivery, with tracebacks."),
        option("--log-format", type=click.Choice(["text", "json"]), help="How log lines are written to stderr."),
        option("--no-color", is_flag=True, help="No colours and no bars, as NO_COLOR does."),
        option("--config", type=click.Path(path_type=Path), help="The configuration file to read."),
        option("--profile", help="The [profiles.NAME] of the configuration file to add."),
    ]


class Command(click.Command):
    """A command. It returns None or its exit code. `is_worker`: its log lines are what it is watched by."""

    def __init__(self, *arguments: Any, is_worker: bool = False, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.params.extend(common_options(hidden=True))
        self._is_worker = is_worker

    def invoke(self, ctx: click.Context) -> Any:
        from aftercommit.cli.logs import set_up_logging  # noqa: PLC0415  (nobody logs what --help does)

        call = call_of(ctx)
        set_up_logging(call.verbosity + self._is_worker, call.log_format)
        return super().invoke(ctx)


class Group(click.Group):
    """Commands of one noun: `dead list`, `dead retry`."""

    command_class = Command


def json_option(function: Any) -> Any:
    """`--json`: the result as one document. The function gets it as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="The result as one JSON document.")(function)


def yes_option(function: Any) -> Any:
    """`--yes`: change without a question."""
    return click.option("-y", "--yes", is_flag=True, help="Do it without a question.")(function)
