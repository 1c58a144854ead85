"""Rows on the command line: the words that choose them, and how they are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec.structs import asdict

from aftercommit.cli.output import Output, Verbatim
from aftercommit.cli.session import Session
from aftercommit.errors import InvalidOption
from aftercommit.events.redact import redact

if TYPE_CHECKING:
    from aftercommit.events.records import EventRecord

#: The same words in every command, and the filter that each stands for.
_WORDS: Final = {
    "type": ("event_type", "Of this event type."),
    "handler": ("handler_id", "For this handler."),
    "key": ("key", "Of this key."),
    "tenant": ("tenant_id", "Of this tenant."),
    "aggregate-type": ("aggregate_type", "Of this aggregate type."),
    "aggregate-id": ("aggregate_id", "Of this aggregate."),
    "error": ("error", "Whose last error is of this class, or has this text in it."),
    "older-than": ("older_than", "Written longer ago than this: 90s, 15m, 2h, 7d."),
}

#: What `list` and `dead list` show; an error is cut to what fits on a line.
COLUMNS: Final = ("id", "status", "type", "handler", "key", "attempts", "age", "error")
_LONGEST_ERROR: Final = 60

_PAGE: Final = 100


def takes_filters(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that choose rows; the function gets them as `where`, keywords of a query."""

    @wraps(function)
    def called(**given: Any) -> Any:
        chosen = {filter_: given.pop(word.replace("-", "_")) for word, (filter_, _) in _WORDS.items()}
        return function(where={name: value for name, value in chosen.items() if value is not None}, **given)

    decorated: Callable[..., Any] = called
    for word, (_, meaning) in reversed(_WORDS.items()):
        decorated = click.option(f"--{word}", help=meaning)(decorated)
    return decorated


def described(where: dict[str, Any]) -> str:
    """The filter for a question: `event_type OrderPlaced, error Timeout`."""
    return ", ".join(f"{name} {value}" for name, value in where.items()) or "all of them"


def pages(session: Session, query: Callable[..., Any], limit: int | None) -> Iterator[EventRecord]:
    """Row by row, page after page, up to a limit. `query(outbox, limit=…, after=…)`."""
    after: EventRecord | None = None
    left = limit
    while left is None or left > 0:
        size = _PAGE if left is None else min(_PAGE, left)
        page = _page(session, query, size, after)
        yield from page
        if len(page) < size:
            return
        after, left = page[-1], None if left is None else left - len(page)


def _page(session: Session, query: Callable[..., Any], size: int, after: EventRecord | None) -> list[EventRecord]:
    rows: list[EventRecord] = session.ask(lambda outbox: query(outbox, limit=size, after=after))
    return rows


def changed(session: Session, change: Callable[[Any, EventRecord], Any], row: EventRecord) -> bool:
    """Whether a change of one row was made."""
    return bool(session.ask(lambda outbox: change(outbox, row)))


def found(session: Session, event_id: str) -> list[EventRecord]:
    """Every row of one event, by its id or the beginning of it."""
    try:
        rows: list[EventRecord] = session.ask(lambda outbox: outbox.records.find(event_id))
    except InvalidOption as error:  # several ids begin like that
        raise click.UsageError(f"{error.message}; {error.fix}") from error
    return rows


def show_table(output: Output, rows: Iterable[EventRecord]) -> None:
    now = datetime.now(UTC)
    output.table(COLUMNS, [_cells(row, now) for row in rows])


def _cells(row: EventRecord, now: datetime) -> list[object]:
    error = redact(row.last_error).splitlines()[0] if row.last_error else ""
    short = error if len(error) <= _LONGEST_ERROR else f"{error[: _LONGEST_ERROR - 1]}…"
    status = row.status.name.lower()
    return [row.event_id, status, row.event_type, row.handler_id, row.key, row.attempts, now - row.created_at, short]


def plain(row: EventRecord, *, payload: bool = False) -> dict[str, object]:
    """A row as JSON. Its payload only when it was asked for, for it is the user's own data; of headers that are called
    like secrets the names alone."""
    data: dict[str, object] = {**asdict(row), "status": row.status.name.lower()}
    data["headers"] = {name: header(name, value) for name, value in row.headers.items()}
    data["payload"] = shown_payload(row) if payload else None
    if not payload:
        del data["payload"]
    return data


def header(name: str, value: str) -> str:
    """A header's value; masked when its name says that it is a secret."""
    return redact(f"{name}: {value}").removeprefix(f"{name}: ")


def shown_payload(row: EventRecord) -> Verbatim:
    return Verbatim(row.payload if isinstance(row.payload, str) else row.payload.hex())
