"""`aftercommit handlers`: who gets what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from aftercommit.cli.command import Command, json_option
from aftercommit.cli.session import Session
from aftercommit.cli.targets import takes_outbox


@click.command(cls=Command)
@takes_outbox(positional=True)
@json_option
def handlers(*, session: Session, as_json: bool) -> None:
    """List the handlers of an outbox: their ids, events and options."""
    rows = list(_rows(session.outbox))
    if as_json:
        session.output.json("handlers/1", handlers=rows)
        return
    columns = ("handler", "events", "retry", "timeout", "fallback", "where")
    session.output.table(columns, [[_text(row[name]) for name in columns] for row in rows])


def _rows(outbox: Any) -> Iterator[dict[str, Any]]:
    """Handlers in order of registration, then listeners, which the registry knows by their routes."""
    for each in outbox._roster.handlers.values():
        settings = each.settings
        yield {
            "handler": each.id,
            "aliases": list(settings.aliases),
            "events": _events(outbox, each),
            "retry": str(settings.retry or outbox.config.retry_policy),
            "timeout": settings.timeout,
            "fallback": each.bound_fallback is not None,
            "where": _where(each.function),
        }
    for route in getattr(outbox._registry, "route_names", list)():
        yield {
            "handler": "(listener)",
            "aliases": [],
            "events": [route],
            "retry": str(outbox.config.retry_policy),
            "timeout": None,
            "fallback": False,
            "where": "",
        }


def _events(outbox: Any, handler: Any) -> list[str]:
    if handler.is_generic:
        return ["any"]
    if handler.event_type is not None:
        return [handler.event_type]
    return sorted(outbox._payloads.names_for(handler.route_type))


def _where(function: Any) -> str:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return ", ".join(value)
    return f"{value:g}s" if isinstance(value, float) else value
