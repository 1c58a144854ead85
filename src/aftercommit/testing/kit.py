"""What tests of stores say again and again: an event, an insert, a claim, an outcome."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

from aftercommit.claims import Claim, Claimed, ClaimRequest, Lease, NewEvent, RowKey, Settlement
from aftercommit.event import EventEnvelope
from aftercommit.outcome import Outcome

LEASE = timedelta(seconds=30)
SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR

_serial = itertools.count(1)


def event(event_type: str = "Happened", **fields: Any) -> EventEnvelope:
    """An event with an id that tells the order it was made in."""
    if not fields.keys() & {"payload_json", "payload_bytes"}:
        fields["payload_json"] = "{}"
    return EventEnvelope(event_type, **{"event_id": f"event-{next(_serial):06}", **fields})


async def insert(store: Any, *events: EventEnvelope, handler_id: str = "", owner: str | None = None) -> None:
    """Write in a transaction of their own: born free, or born leased to `owner`."""
    rows = [NewEvent(each, 7, owner, LEASE if owner else timedelta(0), handler_id) for each in events]
    await store.executor.transact(lambda tx: store.insert(tx, rows))


async def look(store: Any, owner: str = "alice", limit: int = 100, **more: Any) -> Claim:
    """Claim, and see all that the claim saw."""
    request = {"lock_timeout": LEASE, "deadline": 1234.5, **more}
    return await store.claim(ClaimRequest(owner=owner, limit=limit, **request))


async def take(store: Any, owner: str = "alice", limit: int = 100, **more: Any) -> list[Claimed]:
    """Claim, and see the rows."""
    return list((await look(store, owner, limit, **more)).rows)


async def take_one(store: Any, owner: str = "alice", **more: Any) -> Claimed:
    (claimed,) = await take(store, owner, **more)
    return claimed


async def settle(store: Any, lease: Lease, outcome: Outcome) -> bool:
    """Whether the fence accepted it."""
    refused = await store.settle([Settlement(lease, outcome)])
    assert set(refused) <= {lease.key}
    return not refused


def ids(found: Any) -> list[str]:
    """The event ids of envelopes or of claimed rows."""
    return [each.event_id if hasattr(each, "event_id") else each.lease.key.event_id for each in found]


def lease_of(event_id: str, owner: str, epoch: int, handler_id: str = "") -> Lease:
    return Lease(RowKey(event_id, handler_id), owner, epoch, 0.0)
