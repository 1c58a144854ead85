"""`aftercommit cancel`, `replay` and `purge`: what a person changes in the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aftercommit.cli.command import Command, yes_option
from aftercommit.cli.dead import each_of
from aftercommit.cli.exits import Exit
from aftercommit.cli.session import Session
from aftercommit.cli.targets import takes_outbox

if TYPE_CHECKING:
    from aftercommit.events.records import EventRecord


@click.command(cls=Command)
@takes_outbox()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--dry-run", is_flag=True, help="Only say how many rows there are.")
@yes_option
def cancel(*, session: Session, ids: tuple[str, ...], dry_run: bool, yes: bool) -> Exit:
    """End events that wait, without delivering them. One that is being delivered is left alone."""
    if not dry_run:
        session.output.confirm(f"Will end {len(ids)} events that wait, without delivering them.", yes=yes)
    return each_of(session, ids, "NEW RETRY", "cancelled", dry_run, _cancel)


@click.command(cls=Command)
@takes_outbox()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--dry-run", is_flag=True, help="Only say how many rows there are.")
@yes_option
def replay(*, session: Session, ids: tuple[str, ...], dry_run: bool, yes: bool) -> Exit:
    """Deliver events once more that are done. Dead ones are for `dead retry`."""
    if not dry_run:
        session.output.confirm(f"Will deliver {len(ids)} events again that were delivered before.", yes=yes)
    return each_of(session, ids, "DONE", "replayed", dry_run, _replay)


def _cancel(outbox: Any, row: EventRecord) -> Any:
    return outbox.cancel(row.event_id, handler_id=row.handler_id)


def _replay(outbox: Any, row: EventRecord) -> Any:
    return outbox.replay_done(row.event_id, handler_id=row.handler_id)


@click.command(cls=Command)
@takes_outbox(positional=True)
@click.option("--older-than", help="Ended longer ago than this: 7d. By default purge_retention.")
@click.option("--dead", is_flag=True, help="Dead events, too.")
@yes_option
def purge(*, session: Session, older_than: str | None, dead: bool, yes: bool) -> None:
    """Delete rows that ended long ago."""
    age = older_than or session.outbox.config.purge_retention
    if age is None:
        raise click.UsageError("say how old is old: --older-than 7d")
    what = "done and dead" if dead else "done"
    session.output.confirm(f"Will delete {what} rows that ended more than {age} ago.", yes=yes)
    with session.output.progress("purging"):
        deleted = session.ask(lambda outbox: outbox.purge(age, dead=dead))
    session.output.line(f"{deleted} rows deleted")
