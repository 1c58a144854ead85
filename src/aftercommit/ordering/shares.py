"""Who of a fleet should own how many partitions, and what one instance does about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from aftercommit.events.claims import PARTITION_COUNT
from aftercommit.events.order import FleetView, Holder


class Plan(NamedTuple):
    """Partitions to take and to give, with the epochs under which they were seen."""

    take: dict[int, int]
    give: dict[int, int]


def plan(view: FleetView, *, me: str, stale_after: timedelta, is_steady: bool) -> Plan:
    """What is free is taken at once, up to a fair share, the lowest numbers first.

    Only a steady fleet, whose members are the same for a while, is worth a move: what is more than a fair share is
    given, the highest numbers first. And what nobody came for in all that time is taken whatever the share.
    """
    alive = living(view, stale_after)
    if me not in alive:
        return Plan({}, {})
    mine = {holder.partition: holder.epoch for holder in view.partitions if holder.owner == me}
    free = [holder for holder in view.partitions if is_free(holder, me)]
    shortage = target_of(me, _shares(view, alive)) - len(mine)
    if not is_steady:
        return Plan(_first(free, shortage), {})
    orphans = [holder for holder in free if _is_orphaned(holder, stale_after)]
    if orphans:
        return Plan(_first(free, shortage) | _first(orphans, len(orphans)), {})
    return Plan(_first(free, shortage), _last(mine, -shortage))


def living(view: FleetView, stale_after: timedelta) -> frozenset[str]:
    """Members that were heard of in time and are there to stay."""
    limit = stale_after.total_seconds()
    return frozenset(each.id for each in view.members if each.silent_for <= limit and not each.is_leaving)


def is_free(holder: Holder, me: str) -> bool:
    """Nobody owns it, or another's time is over. What is mine stays mine until somebody takes it."""
    if holder.owner is None:
        return True
    return holder.owner != me and holder.expires_in is not None and holder.expires_in <= 0


def target_of(me: str, shares: Mapping[str, int]) -> int:
    """The fair share of one member, given what each of them owns now; 0 for who is none.

    When it does not come out even, one more goes to those who own the most already, so that nothing moves for it.
    """
    if me not in shares:
        return 0
    fair, rest = divmod(PARTITION_COUNT, len(shares))
    ranking = sorted(shares, key=lambda id: (-shares[id], id))
    return fair + (ranking.index(me) < rest)


def _shares(view: FleetView, alive: frozenset[str]) -> dict[str, int]:
    owned = Counter(holder.owner for holder in view.partitions)
    return {id: owned[id] for id in alive}


def _first(free: Sequence[Holder], count: int) -> dict[int, int]:
    return {holder.partition: holder.epoch for holder in free[: max(0, count)]}


def _last(mine: Mapping[int, int], count: int) -> dict[int, int]:
    return {number: mine[number] for number in sorted(mine, reverse=True)[: max(0, count)]}


def _is_orphaned(holder: Holder, stale_after: timedelta) -> bool:
    """Those who should have it are alive and do not come."""
    return holder.expires_in is None or holder.expires_in < -stale_after.total_seconds()
