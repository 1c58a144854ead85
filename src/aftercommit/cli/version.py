"""`aftercommit version`."""

from __future__ import annotations

import platform

import click

import aftercommit
from aftercommit.cli.command import Command, json_option, this_call


@click.command(cls=Command)
@json_option
def version(*, as_json: bool) -> None:
    """Print the version."""
    output, own, python = this_call().output, aftercommit.__version__, platform.python_version()
    if as_json:
        output.json("version/1", version=own, python=python)
    else:
        output.line(f"aftercommit {own} (Python {python})")
