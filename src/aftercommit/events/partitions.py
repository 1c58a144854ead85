"""Which partition an ordering key belongs to. Fixed for ever: rows carry the number."""

from __future__ import annotations

from typing import Final

import mmh3

from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.order import OrderKey

PARTITION_COUNT: Final = 256

#: What a lone instance owns.
ALL_PARTITIONS: Final = frozenset(range(PARTITION_COUNT))

#: Kept in the schema table; a process with another hash must not share the table.
HASH_NAME: Final = "murmur3_x86_32"


def partition_of(key: str) -> int:
    """murmur3 of the key's UTF-8, seed 0, without its sign bit, modulo 256."""
    return (mmh3.hash(key.encode(), 0, signed=False) & 0x7FFFFFFF) % PARTITION_COUNT


def order_key_of(event: EventEnvelope) -> OrderKey:
    """What an event is kept in order with; without a key, with nothing but itself."""
    key = event.event_id if event.key is None else event.key
    return OrderKey(partition_of(key), key)
