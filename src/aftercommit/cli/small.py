"""`aftercommit demo`, `completion` and `version`: small ones that need no outbox."""

from __future__ import annotations

import platform

import click

import aftercommit
from aftercommit.cli.command import Command, json_option, this_call


@click.command(cls=Command)
@click.option("--fast", is_flag=True, help="Do not wait for readers.")
@click.option("--keep", is_flag=True, help="Keep the database, and say where it is.")
def demo(*, fast: bool, keep: bool) -> int:
    """Show in ten seconds what becomes of an event."""
    from aftercommit.demo.__main__ import main  # noqa: PLC0415  (it brings the engine along)

    return main([*(["--fast"] if fast else []), *(["--keep"] if keep else [])])


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(*, shell: str) -> None:
    """Print the completion script for a shell."""
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    program = click.get_current_context().find_root().command
    kind = get_completion_class(shell)
    assert kind is not None, shell  # noqa: S101  (click has all three)
    click.echo(kind(program, {}, "aftercommit", "_AFTERCOMMIT_COMPLETE").source())


@click.command(cls=Command)
@json_option
def version(*, as_json: bool) -> None:
    """Print the version."""
    output, own, python = this_call().output, aftercommit.__version__, platform.python_version()
    if as_json:
        output.json("version/1", version=own, python=python)
    else:
        output.line(f"aftercommit {own} (Python {python})")
