"""`aftercommit config show`: every option, its value, and who says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta
from typing import Any

import click

from aftercommit.cli.command import Group, json_option, this_call
from aftercommit.config import OPTIONS, OutboxConfig, configure
from aftercommit.events.durations import text_of
from aftercommit.options import Wiring
from aftercommit.settings import Settings


@click.group(cls=Group)
def config() -> None:
    """Show every option and where its value comes from."""


@config.command()
@json_option
def show(*, as_json: bool) -> None:
    """Every option with its value and its source; passwords masked.

    Keywords of an outbox in code win over all of it, and are not shown here.
    """
    call = this_call()
    rows = list(_rows(call.settings))
    if as_json:
        file = None if call.settings.file is None else str(call.settings.file)
        values = {name: {"value": value, "source": source} for name, value, source in rows}
        call.output.json("config/1", file=file, profile=call.settings.profile, values=values)
    else:
        call.output.say(f"file: {call.settings.file or 'none'}")
        texts = [(name, _text(value), source) for name, value, source in rows]
        call.output.table(("option", "value", "from"), texts)


def _rows(settings: Settings) -> Iterator[tuple[str, Any, str]]:
    for name in ("app", "url"):
        if name in settings.values:
            yield name, settings.values[name].value, settings.values[name].source
    made = configure(Wiring.CUSTOM, settings.options)
    shown = {each.name: each.default for each in fields(OutboxConfig)}
    for name, option in OPTIONS.items():
        source = settings.values[name].source if name in settings.values else "default"
        value = getattr(made, name)
        if option.kind.is_object and value is shown[name]:
            value = option.shown.strip("`")
        yield name, _plain(value), source


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return text_of(value)
    return value if isinstance(value, bool | int | str | None) else str(value)


def _text(value: Any) -> str:
    """As an environment variable would say it."""
    return str(value).lower() if isinstance(value, bool | None) else str(value)
