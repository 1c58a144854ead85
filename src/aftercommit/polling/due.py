"""How the poller looks into the table: what all ways of looking have in common, and the one by time."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from aftercommit.config import OutboxConfig
from aftercommit.events.claims import Claim, ClaimRequest, deadline_of
from aftercommit.ports import EventStore, Runtime

#: Seconds after which a claim looks at all due rows again, also at those that were passed over as held by others.
FLOOR_AGE: Final = 2.0


class Found(NamedTuple):
    """What one look claimed, whether there was nothing else to claim, and whether it asked for all that it might."""

    claim: Claim
    is_all: bool
    is_full: bool = False


class Look(Protocol):
    """A way to find rows that can be claimed."""

    def look_everywhere(self) -> None:
        """The next looks go over the whole table. From any thread."""

    async def claim(self, limit: int) -> Found:
        """Lease up to `limit` rows for this process."""


class LookByTime:
    """What fell due first comes first. A floor keeps each claim from walking over what the one before it took."""

    def __init__(self, runtime: Runtime, store: EventStore, config: OutboxConfig, *, owner: str) -> None:
        self._runtime = runtime
        self._store = store
        self._owner = owner
        self._lock_timeout = config.lock_timeout
        self._skip_recent = config.skip_recent
        self._floor: object = None
        self._floor_since = 0.0

    def look_everywhere(self) -> None:
        """Every look does, but for the floor, which does not stand for long."""

    async def claim(self, limit: int) -> Found:
        now = self._runtime.clock()
        has_floor = self._floor is not None and now - self._floor_since <= FLOOR_AGE
        if not has_floor:
            self._floor, self._floor_since = None, now
        claim = await self._store.claim(
            ClaimRequest(
                owner=self._owner,
                limit=limit,
                lock_timeout=self._lock_timeout,
                deadline=deadline_of(now, self._lock_timeout),
                skip_recent=self._skip_recent,
                floor=self._floor,
            )
        )
        self._floor = claim.floor
        is_full = len(claim.rows) >= limit
        return Found(claim, is_all=not has_floor and not is_full, is_full=is_full)
