"""`aftercommit list`, `show` and `tail`: rows, one by one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec.structs import asdict

from aftercommit.cli.command import Command, json_option
from aftercommit.cli.exits import Exit
from aftercommit.cli.output import Output, span
from aftercommit.cli.rows import found, header, pages, plain, show_table, shown_payload, takes_filters
from aftercommit.cli.session import Session
from aftercommit.cli.targets import takes_outbox

if TYPE_CHECKING:
    from aftercommit.events.records import EventRecord

_STATES: Final = ("new", "retry", "dead", "done")


@click.command("list", cls=Command)
@takes_outbox()
@click.option("--state", type=click.Choice(_STATES), help="In this state only.")
@takes_filters
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="So many at most.")
@click.option("--payload", is_flag=True, help="With --json: payloads too.")
@json_option
def list_rows(
    *, session: Session, state: str | None, where: dict[str, Any], limit: int, payload: bool, as_json: bool
) -> None:
    """List rows by what they are.

    Unfinished ones come as they fall due, dead ones in order of writing, all others newest first.
    """
    from aftercommit.events.envelope import EventStatus  # noqa: PLC0415  (with the events, when there are any)

    status = None if state is None else EventStatus[state.upper()]

    def query(outbox: Any, **page: Any) -> Any:
        return outbox.records.query(status=status, **where, **page)

    rows = list(pages(session, query, limit))
    if as_json:
        session.output.json("list/1", rows=[plain(row, payload=payload) for row in rows])
    else:
        show_table(session.output, rows)
        session.output.say(f"{len(rows)} rows" + (", and there may be more" if len(rows) == limit else ""))


@click.command(cls=Command)
@takes_outbox()
@click.argument("event_id", metavar="ID")
@click.option("--payload", is_flag=True, help="Its payload and headers, too.")
@json_option
def show(*, session: Session, event_id: str, payload: bool, as_json: bool) -> Exit:
    """Show every row of an event. The first six characters of its id or more will do."""
    rows = found(session, event_id)
    if not rows:
        session.output.complain(f"there is no event {event_id}")
        return Exit.PROBLEM
    if as_json:
        document = [{**plain(row, payload=payload), "failures": _failures(session, row)} for row in rows]
        session.output.json("show/1", rows=document)
        return Exit.OK
    for row in rows:
        _show(session, row, payload=payload)
    return Exit.OK


def _failures(session: Session, row: EventRecord) -> list[dict[str, object]]:
    """The last of the row, oldest first."""
    failures = session.ask(lambda outbox: outbox.records.failures(row.event_id, row.handler_id))
    return [asdict(each) for each in failures]


def _show(session: Session, row: EventRecord, *, payload: bool) -> None:
    output = session.output
    handler = f" -> {row.handler_id}" if row.handler_id else ""
    output.line(f"{row.event_id}  {row.event_type}{handler}  {row.status.name.lower()}")
    facts = {"key": row.key, "partition": row.partition, "aggregate": _aggregate(row), "tenant": row.tenant_id}
    output.line("  " + "  ".join(f"{name} {value}" for name, value in facts.items() if value not in (None, "")))
    output.line(f"  written {_when(row.created_at)}, due {_when(row.available_at)}, attempts {row.attempts}")
    if row.locked_by and row.lease_until is not None:
        output.line(f"  held by {row.locked_by} until {_when(row.lease_until)}")
    if row.done_at is not None:
        output.line(f"  ended {_when(row.done_at)}")
    for each in session.ask(lambda outbox: outbox.records.failures(row.event_id, row.handler_id)):
        what = f"{each.error_class}: {each.message}"
        output.line(f"  #{each.attempt} {_when(each.failed_at)}  {each.handler}  {each.instance}  {what}")
    if row.last_error:
        output.line(f"  last error: {row.last_error}")
    if payload:
        for name, value in row.headers.items():
            output.line(f"  {name}: {header(name, value)}")
        output.line(shown_payload(row))


def _aggregate(row: EventRecord) -> str:
    return f"{row.aggregate_type}/{row.aggregate_id}" if row.aggregate_id else ""


def _when(at: datetime) -> str:
    """As a time, and how far from now."""
    far = (at - datetime.now(UTC)).total_seconds()
    away = f"in {span(far)}" if far > 0 else f"{span(-far)} ago"
    return f"{at.isoformat(sep=' ', timespec='milliseconds')} ({away})"


# ---------------------------------------------------------------- tail

#: The newest rows that are watched. What is older than these has ended, or is found by `list`.
_WATCHED: Final = 500


@click.command(cls=Command)
@takes_outbox(positional=True)
@takes_filters
@click.option("--jsonl", is_flag=True, help="One JSON document on each line.")
@click.option("--interval", default="1s", show_default=True, help="The time between two looks.")
@click.option("--count", type=click.IntRange(1), help="End after so many lines.")
def tail(*, session: Session, where: dict[str, Any], jsonl: bool, interval: str, count: int | None) -> None:
    """Follow rows as they are written, tried again and ended, until Ctrl-C. Watches the newest 500."""
    from time import sleep  # noqa: PLC0415  (nobody else here waits)

    from aftercommit.events.durations import seconds_of  # noqa: PLC0415

    pause, changes, lines = seconds_of(interval, name="--interval"), Changes(), 0
    while True:
        rows = session.ask(lambda outbox: outbox.records.query(limit=_WATCHED, **where))
        for word, row in changes.since_last(rows):
            _tell(session.output, word, row, jsonl=jsonl)
            lines += 1
            if count is not None and lines >= count:
                return
        sleep(pause)


class Changes:
    """What has changed among the newest rows between two looks. The first look only remembers."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], EventRecord] | None = None

    def since_last(self, newest_first: list[EventRecord]) -> list[tuple[str, EventRecord]]:
        """In order of position: what is new, what has another state or another attempt, and what is gone."""
        seen = {(row.event_id, row.handler_id): row for row in reversed(newest_first)}
        known, self._known = self._known, seen
        if known is None:
            return []
        found = []
        for key, row in seen.items():
            before = known.get(key)
            if before is None:
                found.append(("written", row))
            if before is None and row.attempts == 0 and row.status.name == "NEW":
                continue
            if before is None or (before.status, before.attempts) != (row.status, row.attempts):
                found.append((row.status.name.lower(), row))
        oldest = newest_first[-1].position if len(newest_first) >= _WATCHED else 0
        gone = [row for key, row in known.items() if key not in seen and row.position >= oldest]
        found += [("removed", row) for row in gone]
        return found


def _tell(output: Output, word: str, row: EventRecord, *, jsonl: bool) -> None:
    if jsonl:
        output.json_line({"schema": "aftercommit.tail/1", "change": word, **plain(row)})
        return
    now = datetime.now(UTC).isoformat(sep=" ", timespec="milliseconds")
    error = f"  {row.last_error.splitlines()[0]}" if row.last_error and word != "written" else ""
    handler = f" -> {row.handler_id}" if row.handler_id else ""
    output.line(f"{now}  {word:<8} {row.event_id}  {row.event_type}{handler}{error}")
