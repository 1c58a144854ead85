"""Events with a unique key, as a writer sees them: those that cannot have one, and those that are not written."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from aftercommit.errors import UniqueKeyUnsupported
from aftercommit.events.claims import RowKey
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.log import Log
from aftercommit.meter import Meter
from aftercommit.ports import EventStore

log = Log("aftercommit.writer")


def refuse_unique(event: EventEnvelope, store: EventStore) -> None:
    """Where it would be passed over."""
    if not store.capabilities.unique_keys:
        raise UniqueKeyUnsupported(
            f"{event.event_type} has the unique_key {event.unique_key!r}, and {store.where} keeps none",
            fix="leave it out, and let the handler pass over what it has done before",
        )


def suppressed(batch: Sequence[EventEnvelope], refused: Collection[RowKey], meter: Meter) -> list[EventEnvelope]:
    """The events that were written; of the others it is told why."""
    gone = {key.event_id for key in refused}
    meter.count("write_duplicates", len(gone))
    for event in batch:
        if event.event_id in gone:
            log.debug("%r is not written: an event with its unique key %r is not done", event, event.unique_key)
    return [event for event in batch if event.event_id not in gone]
