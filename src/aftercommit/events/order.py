"""The values of ordered delivery: what is kept in order, how its next row is looked for and claimed, and the fleet of
instances that share the partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple

import msgspec


class OrderKey(NamedTuple):
    """What is kept in order: a key in its partition. An event without a key is alone under its own id."""

    partition: int
    key: str


class KeyRule(msgspec.Struct, frozen=True):
    """What holds back the later events of a key."""

    #: A row that is not due yet, a retry or a delayed one. Else it is passed over, and order is given up for it.
    stops: bool = True
    #: A dead row.
    blocks: bool = True


#: Order as it is kept by default.
STRICT: Final = KeyRule()


class Order(NamedTuple):
    """What all processes agree on about the order of a table's events. As it is where a table does not say it."""

    ordered: bool = False
    on_dead: str = "block"

    def __str__(self) -> str:
        return f"ordered={self.ordered}, on_dead={self.on_dead!r}"


#: As it is by default.
UNORDERED: Final = Order()


class HeadState(Enum):
    """Why the first unfinished row of a key can be claimed, or not."""

    READY = "ready"
    #: Not due yet.
    LATER = "later"
    #: Somebody holds a lease on it.
    LEASED = "leased"
    #: Behind a dead row.
    BLOCKED = "blocked"


class Head(msgspec.Struct, frozen=True):
    """The first unfinished row of a key, as a look at the table saw it."""

    key: OrderKey
    state: HeadState
    #: Seconds until it is due, or until its lease is over.
    wait: float = 0.0


class HeadsRequest(msgspec.Struct, frozen=True):
    """Where to look for heads: over these partitions in this order, behind where the last look stopped."""

    partitions: Sequence[int]
    limit: int
    rule: KeyRule = KeyRule()
    after: OrderKey | None = None


class Heads(msgspec.Struct, frozen=True):
    """The heads that a look passed by, whatever their state, each by one probe."""

    heads: Sequence[Head]
    #: Go on behind this key. None: all partitions have been walked to their end.
    after: OrderKey | None = None


class KeyClaimRequest(msgspec.Struct, frozen=True):
    """Whose next rows to lease: of each key its run, the unbroken prefix that is due and free, up to `run` rows."""

    owner: str
    keys: Sequence[OrderKey]
    run: int
    lock_timeout: timedelta
    deadline: float
    rule: KeyRule = KeyRule()


class BlockedKey(msgspec.Struct, frozen=True):
    """A key that stands still until its first dead event is replayed or discarded."""

    key: str
    event_id: str
    handler_id: str
    event_type: str
    #: Why the event died.
    error: str


class Instance(msgspec.Struct, frozen=True):
    """One process that delivers, as it signs on. The id is new for every start."""

    id: str
    host: str
    pid: int


class Member(msgspec.Struct, frozen=True):
    """An instance as the fleet sees it, on the database's clock."""

    id: str
    host: str
    pid: int
    started_at: datetime
    #: Seconds since its last heartbeat.
    silent_for: float
    #: It is leaving, and takes no partition any more.
    is_leaving: bool = False


class Holder(msgspec.Struct, frozen=True):
    """One partition: who owns it, under which epoch, and for how many seconds yet.

    Below zero: it has been free for so many, because its time was over or it was given. None: nobody ever owned it.
    """

    partition: int
    owner: str | None
    epoch: int
    expires_in: float | None


class FleetView(msgspec.Struct, frozen=True):
    """All members that have a row, and all partitions in order of their numbers."""

    members: Sequence[Member]
    partitions: Sequence[Holder]


class ClusterMember(msgspec.Struct, frozen=True):
    """An instance of the fleet: where it runs, how long it has been silent, and the partitions that it owns."""

    id: str
    host: str
    pid: int
    started_at: datetime
    silent_for: timedelta
    is_stale: bool
    is_me: bool
    partitions: tuple[int, ...]


class PartitionStats(msgspec.Struct, frozen=True):
    """How many unfinished events wait in each of some partitions; one where nothing waits has 0."""

    pending: Mapping[int, int]

    @property
    def total(self) -> int:
        return sum(self.pending.values())

    @property
    def maximum(self) -> int:
        return max(self.pending.values(), default=0)

    @property
    def average(self) -> float:
        return self.total / len(self.pending) if self.pending else 0.0


class ClusterStats(msgspec.Struct, frozen=True):
    """How the partitions are spread over the living instances of the fleet."""

    total_partitions: int
    #: How many partitions each living instance owns, by its id.
    assigned: Mapping[str, int]

    @property
    def total_instances(self) -> int:
        return len(self.assigned)

    @property
    def unassigned_partitions(self) -> int:
        return self.total_partitions - sum(self.assigned.values())

    @property
    def average_partitions_per_instance(self) -> float:
        return self.total_partitions / len(self.assigned) if self.assigned else 0.0


class Cluster(msgspec.Struct, frozen=True):
    """The fleet as the database knows it, and what waits in each partition."""

    members: tuple[ClusterMember, ...]
    #: Partitions without an owner, or whose owner's time is over.
    unowned: tuple[int, ...]
    #: The age of the oldest unfinished event of each partition that has one.
    lags: dict[int, timedelta]
