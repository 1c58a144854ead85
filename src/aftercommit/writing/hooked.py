"""The phases of a writer's hook, as they are called; and what the meter is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from inspect import isawaitable, iscoroutine

from aftercommit.errors import InvalidOption
from aftercommit.events.claims import NewEvent
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.log import Log
from aftercommit.events.redact import error_text
from aftercommit.hooks import WriterHook
from aftercommit.meter import Meter

log = Log("aftercommit.writer")


def guarded(hook: WriterHook, phase: str, events: Sequence[EventEnvelope], *more: object) -> None:
    """Run a phase of the hook that must not reach the caller."""
    if not events:
        return
    work: Callable[..., object] | None = getattr(hook, phase, None)  # one that derives from nothing has what it needs
    if work is None:
        return
    try:
        # A list of its own: what a hook does to it is not done to the batch.
        refuse_async(phase, work(list(events), *more))
    except Exception as error:
        log.error("%s of the writer hook failed and is ignored: %s", phase, error_text(error), error=error)


def refuse_async(phase: str, returned: object) -> None:
    if isawaitable(returned):
        if iscoroutine(returned):
            returned.close()
        raise InvalidOption(
            f"{phase} of the writer hook is async, so nothing of it has run", fix="write it as plain def"
        )


def events_of(rows: Sequence[NewEvent]) -> list[EventEnvelope]:
    """The events of rows, each once."""
    return list({row.event.event_id: row.event for row in rows}.values())


def tell_written(meter: Meter, rows: Sequence[NewEvent]) -> None:
    """Events by their types, each once, however many handlers have a row of it."""
    for event_type, count in Counter(event.event_type for event in events_of(rows)).items():
        meter.tell("written", event_type, count)
