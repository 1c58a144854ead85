"""What tests of stores say again and again: an event, an insert, a claim, an outcome."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from aftercommit.events.claims import Claim, Claimed, ClaimRequest, Lease, NewEvent, RowKey, Settlement
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.outcome import Outcome
from aftercommit.ports import Colour, EventStore
from aftercommit.runtime.threads import ThreadRuntime

LEASE = timedelta(seconds=30)
SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR

#: An instant that no clock says.
NOON = datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=UTC)

#: Far longer than anything takes, in seconds.
_PATIENCE = 60

_serial = itertools.count(1)


def event(event_type: str = "Happened", **fields: Any) -> EventEnvelope:
    """An event with an id that tells the order it was made in."""
    if not fields.keys() & {"payload_json", "payload_bytes"}:
        fields["payload_json"] = "{}"
    return EventEnvelope(event_type, **{"event_id": f"event-{next(_serial):06}", **fields})


async def write_rows(store: EventStore, rows: Sequence[NewEvent]) -> None:
    """Insert in a transaction of the store's own, and commit it."""
    opened = await store.begin()
    try:
        await store.insert(opened, rows)
        await opened.commit()
    finally:
        await opened.end()


async def insert(store: EventStore, *events: EventEnvelope, handler_id: str = "", owner: str | None = None) -> None:
    """Write in a transaction of their own: born free, or born leased to `owner`."""
    rows = [NewEvent(each, 7, owner, LEASE if owner else timedelta(0), handler_id) for each in events]
    await write_rows(store, rows)


async def look(store: EventStore, owner: str = "alice", limit: int = 100, **more: Any) -> Claim:
    """Claim, and see all that the claim saw."""
    request = {"lock_timeout": LEASE, "deadline": 1234.5, **more}
    claim: Claim = await store.claim(ClaimRequest(owner=owner, limit=limit, **request))
    return claim


async def take(store: EventStore, owner: str = "alice", limit: int = 100, **more: Any) -> list[Any]:
    """Claim, and see the rows."""
    return list((await look(store, owner, limit, **more)).rows)


async def take_one(store: EventStore, owner: str = "alice", **more: Any) -> Claimed:
    (claimed,) = await take(store, owner, **more)
    assert isinstance(claimed, Claimed)
    return claimed


async def settle(store: EventStore, lease: Lease, outcome: Outcome) -> bool:
    """Whether the fence accepted it."""
    refused = await store.settle([Settlement(lease, outcome)])
    assert set(refused) <= {lease.key}
    return not refused


async def settle_in(store: EventStore, lease: Lease, *done_handlers: str) -> bool:
    """The same in a transaction, which is committed."""
    opened = await store.begin()
    try:
        stands = await store.settle_in(opened, lease, done_handlers)
        await opened.commit()
    finally:
        await opened.end()
    return stands


def ids(found: Any) -> list[str]:
    """The event ids of envelopes or of claimed rows."""
    return [each.event_id if hasattr(each, "event_id") else each.lease.key.event_id for each in found]


def lease_of(event_id: str, owner: str, epoch: int, handler_id: str = "") -> Lease:
    return Lease(RowKey(event_id, handler_id), owner, epoch, 0.0)


def micros(value: datetime) -> int:
    """As the rows of the suite have their times."""
    return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


async def together(colour: Colour, *works: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run them beside each other, in threads or as tasks, and raise what the first of them raised."""
    runtime = ThreadRuntime() if colour is Colour.BLOCKING else _asyncio_runtime()
    errors: list[BaseException] = []

    def kept(work: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], Coroutine[Any, Any, None]]:
        async def main() -> None:
            try:
                await work()
            except BaseException as error:
                errors.append(error)

        return main

    tasks = [runtime.spawn(f"together-{number}", kept(work)) for number, work in enumerate(works)]
    for task in tasks:
        assert await task.join(_PATIENCE), "it never ended"
    await runtime.close()
    if errors:
        raise errors[0]


def _asyncio_runtime() -> Any:
    from aftercommit.runtime.aio import AsyncioRuntime  # noqa: PLC0415  (blocking stores are tested without asyncio)

    return AsyncioRuntime(thread_count=1)
