"""`aftercommit pause` and `resume`: handlers and event types that get nothing for a while, over the whole fleet."""

from __future__ import annotations

import getpass
from platform import node

import click

from aftercommit.cli.command import Command
from aftercommit.cli.exits import Exit
from aftercommit.cli.session import Session
from aftercommit.cli.targets import takes_outbox


@click.command(cls=Command)
@takes_outbox()
@click.argument("handler", required=False)
@click.option("--type", "event_type", help="An event type, instead of a handler.")
@click.option("--reason", default="", help="Why; others see it.")
@click.option("--for", "lasts", help="It ends by itself after this: 30m. Else with `resume`.")
def pause(*, session: Session, handler: str | None, event_type: str | None, reason: str, lasts: str | None) -> None:
    """Deliver nothing to a handler, or of a type, over the whole fleet."""
    name = _named(handler, event_type)
    who = f"{_user()}@{node()}"
    session.ask(lambda outbox: outbox.pause(handler=handler, event_type=event_type, reason=reason, lasts=lasts, by=who))
    session.output.line(f"{name} is paused" + (f" for {lasts}" if lasts else ""))


@click.command(cls=Command)
@takes_outbox()
@click.argument("handler", required=False)
@click.option("--type", "event_type", help="An event type, instead of a handler.")
def resume(*, session: Session, handler: str | None, event_type: str | None) -> Exit:
    """Deliver again what was paused."""
    name = _named(handler, event_type)
    if session.ask(lambda outbox: outbox.resume(handler=handler, event_type=event_type)):
        session.output.line(f"{name} goes on")
        return Exit.OK
    session.output.complain(f"{name} was not paused")
    return Exit.PROBLEM


def _named(handler: str | None, event_type: str | None) -> str:
    if (handler is None) == (event_type is None):
        raise click.UsageError("name a handler, or a type with --type")
    return f"the handler {handler}" if handler is not None else f"the type {event_type}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        return "somebody"
