"""`aftercommit send`: write one event by hand."""

from __future__ import annotations

import sys
from typing import Any

import click

from aftercommit.cli.command import Command, json_option
from aftercommit.cli.session import Session, done
from aftercommit.cli.targets import takes_outbox


@click.command(cls=Command)
@takes_outbox()
@json_option
@click.argument("event_type", metavar="TYPE")
@click.argument("payload", metavar="JSON")
@click.option("--key", help="The ordering key.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header; may be given several times.")
@click.option("--deliver-after", metavar="DURATION", help="When it is due: 90s, 15m, 2h.")
@click.option("--dry-run", is_flag=True, help="Check it, and write nothing.")
def send(
    *,
    session: Session,
    event_type: str,
    payload: str,
    key: str | None,
    headers: tuple[str, ...],
    deliver_after: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write one event, in a transaction of its own.

    The payload is JSON text, or - to read it from stdin. The id of the event is printed.
    """
    text = sys.stdin.read() if payload == "-" else payload
    given: dict[str, Any] = {"key": key, "headers": _mapping(headers), "deliver_after": deliver_after}
    options = {name: value for name, value in given.items() if value}
    if dry_run:
        session.outbox._composer.compose(event_type, text, **options)
        session.output.say("it would be written")
        return

    async def write(outbox: Any) -> Any:
        async with session.block(outbox.transaction()):
            return await done(outbox.write(event_type, text, **options))

    event_id = session.ask(write)
    if as_json:
        session.output.json("send/1", event_id=event_id)
    else:
        session.output.line(str(event_id))


def _mapping(headers: tuple[str, ...]) -> dict[str, str]:
    pairs = [each.partition("=") for each in headers]
    if wrong := [name for name, sign, _ in pairs if not sign]:
        raise click.UsageError(f"the header {wrong[0]!r} has no value; write NAME=VALUE")
    return {name: value for name, _, value in pairs}
