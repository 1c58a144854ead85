"""The fleet as one instance lives in it: it beats, looks at the others, and shares the partitions with them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from aftercommit.events.fleet import Cluster, ClusterMember, FleetView, Instance
from aftercommit.events.partitions import PARTITION_COUNT
from aftercommit.events.redact import error_text
from aftercommit.ordering.heart import Heart
from aftercommit.ordering.shares import living, plan
from aftercommit.ordering.territory import Territory, Told
from aftercommit.ports import Membership, Runtime
from aftercommit.service import Service

log = logging.getLogger("aftercommit.fleet")

#: How often an instance tries at one look to get what it wants.
_TRIES: Final = 3


class Fleet:
    """Membership of one instance between start and stop. Partitions spread the work and keep nothing safe: that is what
    the leases of rows are for.

    `on_lost` is called before a partition is given, or when it is found to be somebody else's; `on_gained` when it was
    taken; both in order, from any thread, and must not wait. `on_change`: other instances should look.
    """

    def __init__(
        self,
        runtime: Runtime,
        membership: Membership,
        instance: Instance,
        *,
        heartbeat_interval: timedelta,
        stale_timeout: timedelta,
        rebalance_interval: timedelta,
        on_gained: Told = lambda _: None,
        on_lost: Told = lambda _: None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.instance = instance
        self._membership = membership
        self._stale_timeout = stale_timeout
        self._on_change = on_change
        self._territory = Territory(runtime, on_gained=on_gained, on_lost=on_lost)
        self.heart = Heart(
            runtime,
            membership,
            instance,
            self._territory,
            interval=heartbeat_interval,
            stale_timeout=stale_timeout,
            on_change=on_change,
        )
        self.coordinator = Coordinator(
            runtime,
            membership,
            instance,
            self._territory,
            interval=rebalance_interval,
            stale_timeout=stale_timeout,
            on_change=on_change,
        )

    @property
    def services(self) -> tuple[Service, ...]:
        return (self.heart, self.coordinator)

    @property
    def owned(self) -> frozenset[int]:
        """The partitions that may be worked on now; none when the instance could not be heard in time. From any
        thread."""
        return self._territory.owned

    def look(self) -> None:
        """Something has changed in the fleet. From any thread."""
        self.coordinator.look()

    async def start(self) -> None:
        """Sign on, and take what is free at once."""
        await self.heart.join()
        await self.coordinator.rebalance()
        for service in self.services:
            service.start()

    async def stop(self) -> None:
        """Sign off: others may take everything at once. A database that is away lets it expire instead."""
        await self.coordinator.stop()
        await self.heart.stop()
        self._territory.clear()
        try:
            await self._membership.leave(self.instance.id)
        except Exception as error:
            log.warning(
                "instance %s could not sign off, and is given up when it has been silent for %s: %s",
                self.instance.id,
                self._stale_timeout,
                error_text(error),
            )
        else:
            self._on_change()

    async def cluster(self) -> Cluster:
        return await cluster_of(self._membership, me=self.instance.id, stale_timeout=self._stale_timeout)


class Coordinator(Service):
    """Looks at the fleet from time to time, gives up those who fell silent, and works towards a fair share."""

    def __init__(
        self,
        runtime: Runtime,
        membership: Membership,
        instance: Instance,
        territory: Territory,
        *,
        interval: timedelta,
        stale_timeout: timedelta,
        on_change: Callable[[], None],
    ) -> None:
        super().__init__(runtime, "aftercommit-coordinator")
        self._membership = membership
        self._me = instance.id
        self._territory = territory
        self._interval = interval.total_seconds()
        self._stale_timeout = stale_timeout
        self._on_change = on_change
        self._is_woken = False
        self._members: frozenset[str] = frozenset()
        self._since = runtime.clock()

    def look(self) -> None:
        """Look now. From any thread."""
        with self.monitor:
            self._is_woken = True
            self.monitor.notify_all()

    async def step(self) -> None:
        # After an error the pause is over already.
        pause = 0.0 if self.failures_in_a_row else self._interval
        await self.monitor.wait_for(lambda: self.is_stopping or self._is_woken, pause)
        self._is_woken = False
        if not self.is_stopping:
            await self.rebalance()

    async def rebalance(self) -> None:
        """Once; again at once when others were faster: they start together and want the same partitions first."""
        for _ in range(_TRIES):
            if await self._approach():
                return

    async def _approach(self) -> bool:
        """Whether all went as planned. Who cannot be heard itself leaves the fleet alone."""
        view = await self._membership.view()
        if not self._territory.is_heard:
            return True
        await self._bury_the_silent(view)
        wanted = plan(view, me=self._me, stale_after=self._stale_timeout, is_steady=self._is_steady(view))
        if wanted.give:
            await self._give(wanted.give)
        taken = await self._membership.take(self._me, wanted.take, self._stale_timeout) if wanted.take else {}
        self._territory.took(taken)
        return len(taken) == len(wanted.take)

    def _is_steady(self, view: FleetView) -> bool:
        """Whether the members have been the same for an interval, however often others wake us."""
        now, members = self.runtime.clock(), living(view, self._stale_timeout)
        if members != self._members:
            self._members, self._since = members, now
        return now - self._since >= self._interval

    async def _bury_the_silent(self, view: FleetView) -> None:
        limit = self._stale_timeout.total_seconds()
        if all(member.silent_for <= limit for member in view.members):
            return
        if buried := await self._membership.bury(self._stale_timeout, but=self._me):
            log.warning("silent for more than %s and given up: %s", self._stale_timeout, ", ".join(buried))
            self._on_change()

    async def _give(self, partitions: dict[int, int]) -> None:
        self._territory.giving(partitions)
        try:
            await self._membership.give(self._me, partitions)
        except BaseException:
            self._territory.not_given(partitions)
            raise
        log.info("gave %d partitions to others", len(partitions))
        self._on_change()


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


def _partitions_of(id: str, view: FleetView) -> tuple[int, ...]:
    return tuple(each.partition for each in view.partitions if each.owner == id and (each.expires_in or 0) > 0)
