"""The fleet as one instance lives in it: it beats, looks at the others, and shares the partitions with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from aftercommit.config import OutboxConfig
from aftercommit.delivery.agenda import EVERYWHERE, Agenda
from aftercommit.delivery.ownership import Change, Ownership
from aftercommit.delivery.wakeups import Announcer
from aftercommit.delivery.worker import OutboxDispatcher
from aftercommit.events.claims import PARTITION_COUNT, deadline_of
from aftercommit.events.log import Log
from aftercommit.events.order import Cluster, ClusterMember, ClusterStats, FleetView, Holder, Instance
from aftercommit.events.redact import error_text
from aftercommit.meter import Meter
from aftercommit.ports import Membership, Runtime
from aftercommit.service import ENDS_WITHIN, Countdown, Repeating, Service

log = Log("aftercommit.fleet")

#: How often an instance tries at one look to get what it wants.
_TRIES: Final = 3


class Fleet:
    """Membership of one instance between start and stop. Partitions spread the work and keep nothing safe: that is what
    the leases of rows are for."""

    def __init__(
        self,
        runtime: Runtime,
        membership: Membership,
        instance: Instance,
        ownership: Ownership,
        dispatcher: OutboxDispatcher,
        agenda: Agenda,
        announcer: Announcer | None,
        meter: Meter,
        config: OutboxConfig,
    ) -> None:
        """What is lost leaves the `dispatcher`, what is gained goes on the `agenda`; the `announcer` tells others."""
        self.instance = instance
        self.runtime = runtime
        self.membership = membership
        self.ownership = ownership
        self.stale_timeout = config.stale_timeout
        self._dispatcher = dispatcher
        self._agenda = agenda
        self._announcer = announcer
        self.meter = meter
        self.heart = Heart(self, config.heartbeat_interval)
        self.coordinator = Coordinator(self, config.rebalance_interval)

    @property
    def services(self) -> tuple[Service, ...]:
        return (self.heart, self.coordinator)

    async def start(self) -> None:
        """Sign on, and take what is free at once."""
        # To the end of what is under way, although it is cancelled: a thread may be at it, and what it does behind the
        # signing off would stand until it expires.
        await self.runtime.shielded(self.join(), limit=ENDS_WITHIN)
        self.heart.start()  # from here on it is the one that signs off
        await self.runtime.shielded(self.coordinator.work(), limit=ENDS_WITHIN)
        self.ownership.share()
        self.coordinator.start()

    async def stop(self, time: Countdown | None = None) -> None:
        """Nothing is taken any more; then sign off."""
        time = time or Countdown(self.runtime)
        await self.coordinator.stop(time.left())
        if not self.heart.was_started:
            await self.sign_off()
        elif not await self.heart.stop(time.left()):
            log.warning("instance %s could not sign off in time: the database does not answer", self.instance.id)

    async def sign_off(self) -> None:
        """Others may take everything at once. A database that is away lets it expire instead."""
        self.follow(self.ownership.clear())
        try:
            await self.membership.leave(self.instance.id)
        except Exception as error:
            log.warning(
                "instance %s could not sign off, and is given up when it has been silent for %s: %s",
                self.instance.id,
                self.stale_timeout,
                error_text(error),
            )
        else:
            self.tell()

    async def join(self) -> None:
        await self.membership.join(self.instance)
        await self.heart.work()
        self.tell()

    def tell(self) -> None:
        """Let the other instances look."""
        if self._announcer is not None:
            self._announcer.tell_fleet()

    def follow(self, change: Change) -> None:
        """What waits of a lost partition is free for its next owner at once; what a gained one has is looked for."""
        if lost := change.lost:
            self._dispatcher.give_back(lambda key: key.partition in lost)
        if change.gained:
            self._agenda.add(EVERYWHERE)


class Heart(Repeating):
    """Lets the fleet hear that this instance is alive, and learns in return what it still owns. It beats on a task of
    its own, whatever handlers do. Past its deadline the instance owns nothing in its own eyes, a fifth of the time
    before others may take over. With its last step it signs off: whoever closes must not wait for a database itself."""

    def __init__(self, fleet: Fleet, interval: timedelta) -> None:
        super().__init__(fleet.runtime, "aftercommit-heart", interval)
        self._fleet = fleet

    async def _run(self) -> None:
        await super()._run()
        await self._fleet.sign_off()

    async def work(self) -> None:
        """One beat. An instance that was given up meanwhile signs on again, and keeps what nobody has taken."""
        fleet = self._fleet
        before, deadline = fleet.ownership.epochs(), deadline_of(self.runtime.clock(), fleet.stale_timeout)
        owned = await fleet.membership.beat(fleet.instance.id, fleet.stale_timeout)
        if owned is not None:
            fleet.follow(fleet.ownership.found(owned, before=before, deadline=deadline))
        elif not self.is_stopping:
            log.warning("instance %s was no member of the fleet any more, and joins again", fleet.instance.id)
            await fleet.join()


class Coordinator(Repeating):
    """Looks at the fleet from time to time, gives up those who fell silent, and works towards a fair share."""

    def __init__(self, fleet: Fleet, interval: timedelta) -> None:
        super().__init__(fleet.runtime, "aftercommit-coordinator", interval)
        self._fleet = fleet
        self._members: frozenset[str] = frozenset()
        self._since = fleet.runtime.clock()

    async def work(self) -> None:
        """Once; again at once when others were faster: they start together and want the same partitions first."""
        for _ in range(_TRIES):
            if await self._approach():
                return

    async def _approach(self) -> bool:
        """Whether all went as planned. An instance whose own heartbeats do not get through leaves the others alone: it
        would take their silence for its own."""
        fleet, me = self._fleet, self._fleet.instance.id
        view = await fleet.membership.view()
        if not fleet.ownership.is_heard:
            return True
        wanted = plan(view, me=me, stale_after=fleet.stale_timeout, is_steady=self._is_steady(view))
        if wanted.give:
            await self._give(wanted.give)
        taken = await fleet.membership.take(me, wanted.take, fleet.stale_timeout) if wanted.take else {}
        fleet.follow(fleet.ownership.took(taken))
        await self._bury_the_silent(view)  # last: one that stands still may have its own row locked
        return len(taken) == len(wanted.take)

    def _is_steady(self, view: FleetView) -> bool:
        """Whether the members have been the same for an interval, however often others call."""
        now, members = self.runtime.clock(), living(view, self._fleet.stale_timeout)
        if members != self._members:
            self._members, self._since = members, now
        return now - self._since >= self.interval

    async def _bury_the_silent(self, view: FleetView) -> None:
        fleet = self._fleet
        limit = fleet.stale_timeout.total_seconds()
        if all(member.silent_for <= limit for member in view.members):
            return
        if buried := await fleet.membership.bury(fleet.stale_timeout, but=fleet.instance.id):
            log.warning("silent for more than %s and given up: %s", fleet.stale_timeout, ", ".join(buried))
            fleet.meter.count("instances_lost", len(buried))
            fleet.tell()

    async def _give(self, partitions: dict[int, int]) -> None:
        fleet = self._fleet
        fleet.follow(fleet.ownership.giving(partitions))
        try:
            await fleet.membership.give(fleet.instance.id, partitions)
        except BaseException:
            fleet.ownership.not_given(partitions)
            raise
        log.info("gave %d partitions to others", len(partitions))
        fleet.tell()


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


async def cluster_of(membership: Membership, *, me: str | None, stale_timeout: timedelta) -> Cluster:
    """The fleet as the database knows it; who asks need be no member."""
    view, lags = await membership.view(), await membership.lags()
    members = tuple(
        ClusterMember(
            id=member.id,
            host=member.host,
            pid=member.pid,
            started_at=member.started_at,
            silent_for=timedelta(seconds=member.silent_for),
            is_stale=member.silent_for > stale_timeout.total_seconds(),
            is_me=member.id == me,
            partitions=_partitions_of(member.id, view),
        )
        for member in view.members
    )
    owned = {number for member in members for number in member.partitions}
    return Cluster(members, tuple(number for number in range(PARTITION_COUNT) if number not in owned), lags)


def cluster_stats_of(view: FleetView, *, stale_timeout: timedelta) -> ClusterStats:
    """How the partitions are spread over the living instances."""
    alive = living(view, stale_timeout)
    return ClusterStats(PARTITION_COUNT, {id: len(_partitions_of(id, view)) for id in alive})


def _partitions_of(id: str, view: FleetView) -> tuple[int, ...]:
    return tuple(each.partition for each in view.partitions if each.owner == id and (each.expires_in or 0) > 0)
