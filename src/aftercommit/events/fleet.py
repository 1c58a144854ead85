"""The values of a fleet: its instances, who of them owns which partition, and what people see of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec


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


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """An instance of the fleet: where it runs, how long it has been silent, and the partitions that it owns."""

    id: str
    host: str
    pid: int
    started_at: datetime
    silent_for: timedelta
    is_stale: bool
    is_me: bool
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The fleet as the database knows it, and what waits in each partition."""

    members: tuple[ClusterMember, ...]
    #: Partitions without an owner, or whose owner's time is over.
    unowned: tuple[int, ...]
    #: The age of the oldest unfinished event of each partition that has one.
    lags: dict[int, timedelta]
