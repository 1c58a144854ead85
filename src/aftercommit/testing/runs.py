"""What tests of ordered claims say again and again: events of a key, the run of a key, the heads of keys."""

from __future__ import annotations

from typing import Any

from aftercommit.events.claims import NewEvent
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.order import Heads, HeadsRequest, HeadState, KeyClaimRequest, KeyRule, OrderKey
from aftercommit.ports import EventStore
from aftercommit.testing.kit import LEASE, event, ids, write_rows

#: Where the events of these tests are, unless they say otherwise.
PARTITION = 7

#: What holds a key back by default; and what else there is.
STRICT = KeyRule()
CONTINUES = KeyRule(blocks=False)
PASSES = KeyRule(stops=False)
PASSES_ALL = KeyRule(stops=False, blocks=False)


async def lay(store: EventStore, *events: EventEnvelope, partition: int = PARTITION, handler_id: str = "") -> None:
    """Write in a transaction of their own, born free."""
    rows = [NewEvent(each, partition, handler_id=handler_id) for each in events]
    await write_rows(store, rows)


async def line(store: EventStore, key: str, count: int, *, partition: int = PARTITION) -> list[EventEnvelope]:
    """So many events of a key."""
    events = [event(key=key) for _ in range(count)]
    await lay(store, *events, partition=partition)
    return events


async def claim_keys(store: EventStore, *keys: str, partition: int = PARTITION, **more: Any) -> Any:
    """The claim of these keys' runs; of the key "a" when none is named."""
    request = {"owner": "alice", "run": 100, "lock_timeout": LEASE, "deadline": 1234.5, **more}
    return await store.claim_keys(KeyClaimRequest(keys=[OrderKey(partition, key) for key in keys or ("a",)], **request))


async def run_of(store: EventStore, *keys: str, **more: Any) -> list[str]:
    """The ids of what a claim of these keys leased."""
    return ids((await claim_keys(store, *keys, **more)).rows)


async def look_over(store: EventStore, *partitions: int, limit: int = 100, **more: Any) -> Heads:
    heads: Heads = await store.heads(HeadsRequest(partitions=partitions or (PARTITION,), limit=limit, **more))
    return heads


async def states(store: EventStore, *partitions: int, **more: Any) -> dict[str, HeadState]:
    """What a look at the heads sees, by key, in the order of the walk."""
    found = await look_over(store, *partitions, **more)
    return {head.key.key: head.state for head in found.heads}
