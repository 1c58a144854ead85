"""`aftercommit dead`: the dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from aftercommit.cli.command import Group, json_option, yes_option
from aftercommit.cli.exits import Exit
from aftercommit.cli.looking import show
from aftercommit.cli.rows import changed, described, found, pages, plain, show_table, takes_filters
from aftercommit.cli.session import Session
from aftercommit.cli.targets import takes_outbox

if TYPE_CHECKING:
    from aftercommit.events.records import EventRecord


@click.group(cls=Group)
def dead() -> None:
    """Look at dead letters, retry or discard them."""


dead.add_command(show)


@dead.command("list")
@takes_outbox()
@takes_filters
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="So many at most.")
@click.option("--payload", is_flag=True, help="With --json: payloads too.")
@json_option
def list_dead(*, session: Session, where: dict[str, Any], limit: int, payload: bool, as_json: bool) -> None:
    """List dead events in order of writing, each with its last error."""
    rows = list(pages(session, _dead(where), limit))
    count = session.ask(lambda outbox: outbox.dead.count(**where))
    if as_json:
        session.output.json("dead/1", count=count, rows=[plain(row, payload=payload) for row in rows])
    else:
        show_table(session.output, rows)
        session.output.say(f"{count} dead, {len(rows)} shown")


@dead.command()
@takes_outbox()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@takes_filters
@click.option("--all", "is_all", is_flag=True, help="All dead events there are.")
@click.option("--rate", help="So many in a second: 50, or 50/s.")
@click.option("--dry-run", is_flag=True, help="Only say how many there are.")
@yes_option
def retry(
    *,
    session: Session,
    ids: tuple[str, ...],
    where: dict[str, Any],
    is_all: bool,
    rate: str | None,
    dry_run: bool,
    yes: bool,
) -> Exit:
    """Make dead events new again, with all their attempts: by their ids, by what they are, or all."""
    _one_choice(ids, where, is_all=is_all)
    pace = None if rate is None else _rate(rate)
    if ids:
        if pace is not None:
            raise click.UsageError("--rate goes with a selection, not with ids")
        return each_of(session, ids, "DEAD", "retried", dry_run, _replay)
    count = session.ask(lambda outbox: outbox.dead.count(**where))
    if dry_run or not count:
        session.output.line(f"{count} dead events would be retried ({described(where)})")
        return Exit.OK
    session.output.confirm(f"Will retry {count} dead events ({described(where)}).", yes=yes)
    with session.output.progress("retrying"):
        retried = session.ask(lambda outbox: outbox.dead.replay_all(rate=pace, **where))
    session.output.line(f"{retried} retried")
    return Exit.OK


@dead.command()
@takes_outbox()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@takes_filters
@click.option("--all", "is_all", is_flag=True, help="All dead events there are.")
@click.option("--reason", default="", help="Why; it is kept with the row.")
@click.option("--dry-run", is_flag=True, help="Only say how many there are.")
@yes_option
def discard(
    *,
    session: Session,
    ids: tuple[str, ...],
    where: dict[str, Any],
    is_all: bool,
    reason: str,
    dry_run: bool,
    yes: bool,
) -> Exit:
    """End dead events without delivering them: by their ids, by what they are, or all."""
    _one_choice(ids, where, is_all=is_all)

    def ended(outbox: Any, row: EventRecord) -> Any:
        return outbox.dead.discard(row.event_id, handler_id=row.handler_id, reason=reason)

    if ids:
        if not dry_run:
            session.output.confirm(f"Will end {len(ids)} dead events without delivering them.", yes=yes)
        return each_of(session, ids, "DEAD", "discarded", dry_run, ended)
    count = session.ask(lambda outbox: outbox.dead.count(**where))
    if dry_run or not count:
        session.output.line(f"{count} dead events would be discarded ({described(where)})")
        return Exit.OK
    session.output.confirm(f"Will end {count} dead events without delivering them ({described(where)}).", yes=yes)
    discarded = 0
    with session.output.progress("discarding", count) as progress:
        for row in pages(session, _dead(where), None):
            discarded += changed(session, ended, row)
            progress.advance()
    session.output.line(f"{discarded} discarded")
    return Exit.OK


def each_of(
    session: Session,
    ids: tuple[str, ...],
    status: str,
    done: str,
    dry_run: bool,
    change: Callable[[Any, EventRecord], Any],
) -> Exit:
    """Change the rows of these events that have the status, one by one. 5: not all of them could be."""
    total, failed = 0, 0
    for event_id in ids:
        fitting = [row for row in found(session, event_id) if row.status.name in status.split()]
        count = len(fitting)
        if not dry_run:
            count = sum(changed(session, change, row) for row in fitting)
        total += count
        if not count:
            failed += 1
            session.output.complain(f"{event_id}: no row of it can be {done}")
    session.output.line(f"{total} {'would be ' if dry_run else ''}{done}")
    return Exit.OK if not failed else Exit.PARTLY if total else Exit.PROBLEM


def _one_choice(ids: tuple[str, ...], where: dict[str, Any], *, is_all: bool) -> None:
    """All of them are meant only by somebody who says so."""
    if sum((bool(ids), bool(where), is_all)) != 1:
        raise click.UsageError("say which: ids, or filters such as --type and --error, or --all")


def _dead(where: dict[str, Any]) -> Callable[..., Any]:
    return lambda outbox, **page: outbox.dead.query(**where, **page)


def _replay(outbox: Any, row: EventRecord) -> Any:
    return outbox.dead.replay(row.event_id, handler_id=row.handler_id)


def _rate(text: str) -> float:
    number = text.removesuffix("/s")
    try:
        return float(number)
    except ValueError:
        raise click.UsageError(f"--rate is {text!r}; write 50 or 50/s") from None
