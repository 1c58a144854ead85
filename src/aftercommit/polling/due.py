"""How the poller looks into the table: what all its ways of looking have in common, and the one by time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple, Protocol

from aftercommit.events.claims import Claim, ClaimRequest, deadline_of
from aftercommit.events.order import STRICT, KeyRule, OrderKey
from aftercommit.ports import EventStore, Runtime

#: Seconds after which a claim looks at all due rows again, also at those that were passed over as held by others.
FLOOR_AGE: Final = 2.0


@dataclass(frozen=True, slots=True)
class PollerOptions:
    """How to look."""

    owner: str
    interval: timedelta = timedelta(seconds=5)
    #: The pause grows up to this while little is found; None: it never does.
    max_interval: timedelta | None = None
    batch_size: int = 50
    skip_recent: timedelta = timedelta(0)
    lock_timeout: timedelta = timedelta(seconds=30)
    max_abandoned: int = 5
    #: What holds back the later events of a key, where order is kept.
    rule: KeyRule = STRICT


class Found(NamedTuple):
    """What one look claimed, and whether there was nothing else to claim."""

    claim: Claim
    is_all: bool


class Look(Protocol):
    """A way to find rows that can be claimed."""

    def look_everywhere(self) -> None:
        """The next looks go over the whole table. From any thread."""

    def expect(self, keys: Collection[OrderKey], after: float) -> None:
        """Rows of these keys were written, and may be committed in so many seconds. From any thread."""

    async def claim(self, limit: int) -> Found:
        """Lease up to `limit` rows for this process."""
        ...

    def next_in(self) -> float | None:
        """Seconds until it knows of something to look at; None: of nothing."""
        ...


class LookByTime:
    """What fell due first comes first. A floor keeps each claim from walking over what the one before it took."""

    def __init__(self, runtime: Runtime, store: EventStore, options: PollerOptions) -> None:
        self._runtime = runtime
        self._store = store
        self._options = options
        self._floor: object = None
        self._floor_since = 0.0

    def look_everywhere(self) -> None:
        """Every look does, but for the floor, which does not stand for long."""

    def expect(self, keys: Collection[OrderKey], after: float) -> None:
        """It knows no keys."""

    async def claim(self, limit: int) -> Found:
        now = self._runtime.clock()
        has_floor = self._floor is not None and now - self._floor_since <= FLOOR_AGE
        if not has_floor:
            self._floor, self._floor_since = None, now
        claim = await self._store.claim(
            ClaimRequest(
                owner=self._options.owner,
                limit=limit,
                lock_timeout=self._options.lock_timeout,
                deadline=deadline_of(now, self._options.lock_timeout),
                skip_recent=self._options.skip_recent,
                floor=self._floor,
            )
        )
        self._floor = claim.floor
        return Found(claim, is_all=not has_floor and len(claim.rows) < limit)

    def next_in(self) -> float | None:
        """The claims themselves say when the next row falls due."""
        return None
