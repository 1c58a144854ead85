"""The values around a row: its key and lease, what is written, claimed, settled, and what people see of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import mmh3
import msgspec

from aftercommit.errors import InvalidOption
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.order import OrderKey
from aftercommit.events.outcome import Outcome
from aftercommit.events.queued import Source

#: Fixed for ever: rows carry the number of their partition.
PARTITION_COUNT: Final = 256
PARTITION_BITS: Final = PARTITION_COUNT - 1

#: Of a text, whose bits PARTITION_BITS are the number of its partition.
hash_of: Final = mmh3.hash

#: What a lone instance owns.
ALL_PARTITIONS: Final = frozenset(range(PARTITION_COUNT))

#: Kept in the schema table; a process with another hash must not share the table.
HASH_NAME: Final = "murmur3_x86_32"

#: The part of a lease that its holder may use. The rest covers what the two clocks and the network may differ by.
USABLE: Final = 0.8


# What each event has one of is left out of garbage collection (gc=False): it refers to values alone, never in a circle.


class RowKey(NamedTuple):
    """What names one row: an event, and the handler that the row is for ('' when it serves all)."""

    event_id: str
    handler_id: str


class Lease(msgspec.Struct, frozen=True, gc=False):
    """A hold on one row. The fence is (row, owner, epoch); `deadline` is the holder's own, earlier limit."""

    key: RowKey
    owner: str
    epoch: int
    #: On the runtime's clock. Nothing is offered, taken or started after it.
    deadline: float


def deadline_of(now: float, lock_timeout: timedelta) -> float:
    """The holder's own limit for a lease that is asked for now."""
    return now + lock_timeout.total_seconds() * USABLE


def asked_at(lease: Lease, lock_timeout: timedelta) -> float:
    """When a lease was asked for that was never renewed, on its holder's clock: right before the INSERT or claim."""
    return lease.deadline - lock_timeout.total_seconds() * USABLE


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """An event with the lease under which it may be delivered."""

    event: EventEnvelope
    lease: Lease
    position: int
    #: The table's; None for what comes from memory, right after its commit.
    created_at: datetime | None
    attempts: int = 0
    #: Deliveries that began as a suspect and never reported.
    abandoned: int = 0
    #: Handlers of this row that have succeeded before, when one row serves several.
    done_handlers: tuple[str, ...] = ()
    #: Taken over from a holder that never reported: it may be what killed that holder.
    is_suspect: bool = False
    #: How old the row was on the database's clock when it was claimed.
    age: timedelta = timedelta(0)
    #: What it is in order with; None where nothing is kept in order.
    order_key: OrderKey | None = None
    #: For a transactional handler of a row that serves several: all that have succeeded once it has; empty: that is all
    #: there are, and the row is done.
    done_then: tuple[str, ...] = ()

    @property
    def source(self) -> Source:
        """What comes from memory has no time of the table's."""
        return Source.HOT if self.created_at is None else Source.COLD


class Undecodable(msgspec.Struct, frozen=True):
    """A claimed row that cannot be turned back into an event."""

    lease: Lease
    error: Exception
    order_key: OrderKey | None = None


class NewEvent(msgspec.Struct, frozen=True, gc=False):
    """An event on its way into the table. Born leased when it has an owner, else born free."""

    event: EventEnvelope
    partition: int
    owner: str | None = None
    lock_timeout: timedelta = timedelta(0)
    handler_id: str = ""


class Inserted(NamedTuple):
    """What became of new rows."""

    #: The rows that are free, where the store has found out by itself whether they may be leased; None: each is as it
    #: was asked for.
    free: Collection[RowKey] | None
    #: The rows that were not written: their unique key is that of another event that is not done.
    refused: Collection[RowKey]


class ClaimRequest(msgspec.Struct, frozen=True):
    """What the poller asks for. `floor` is what an earlier claim returned: look only behind it."""

    owner: str
    limit: int
    lock_timeout: timedelta
    deadline: float
    skip_recent: timedelta = timedelta(0)
    floor: object = None


def refuse_nobody(owner: str) -> None:
    if not owner:
        raise InvalidOption("a claim has no owner, so it would lease rows to nobody", fix="pass the owner's id")


class Claim(msgspec.Struct, frozen=True):
    """What a claim took, in order of position, and what it saw on the way."""

    rows: Sequence[Claimed | Undecodable]
    #: Pass it to the next claim to go on from here. None: nothing was left behind this claim.
    floor: object = None
    #: Seconds until the next row falls due; None when none is known.
    next_due: float | None = None


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """One outcome to be written under one lease."""

    lease: Lease
    outcome: Outcome


def partition_of(key: str) -> int:
    """murmur3 of the key's UTF-8, seed 0, without its sign bit, modulo 256: its last eight bits."""
    return hash_of(key) & PARTITION_BITS


class PartitionHasher:
    """Which of the 256 partitions a key belongs to, for ever and in every process. Other programs get the same number
    from murmur3_x86_32 of the key's UTF-8, seed 0, without its sign bit, modulo 256.

    >>> PartitionHasher.get_partition_for_aggregate("order-123")
    189
    """

    TOTAL_PARTITIONS: Final = PARTITION_COUNT

    @staticmethod
    def get_partition_for_aggregate(key: str) -> int:
        """Of an ordering key, as the event has it: the explicit one, else `aggregate_type/aggregate_id`."""
        if not isinstance(key, str):
            raise InvalidOption(f"the key is a {type(key).__name__}", fix="pass it as the event has it, a str")
        return partition_of(key)


def order_key_of(event: EventEnvelope) -> OrderKey:
    """What an event is kept in order with; without a key, with nothing but itself."""
    key = event.event_id if event.key is None else event.key
    return OrderKey(partition_of(key), key)


class Backlog(msgspec.Struct, frozen=True):
    """Unfinished rows in the table, by status, and the age of the oldest one that is due."""

    new: int
    retry: int
    dead: int
    leased: int
    oldest_due: timedelta
    #: What a row takes of the memory of a store that is kept in memory, on average.
    bytes_each: int | None = None


class QueryResult(msgspec.Struct, frozen=True):
    """What a statement gave: all its rows, how many it changed, and the last row id where the driver tells it."""

    rows: list[Any]
    rowcount: int
    lastrowid: int | None = None

    def fetchone(self) -> Any:
        return self.rows[0] if self.rows else None

    def fetchall(self) -> list[Any]:
        return self.rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)
