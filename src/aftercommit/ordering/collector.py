"""The table as a whole, looked at for exporters of metrics by one process of all that share it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from aftercommit.config import OutboxConfig
from aftercommit.delivery.outcomes import rule_of
from aftercommit.events.claims import ALL_PARTITIONS
from aftercommit.events.log import Log
from aftercommit.events.measures import BLOCKED_AT_MOST, DONE_AT_MOST, SUMMED_AT_MOST, TableState
from aftercommit.events.order import ClusterStats, PartitionStats
from aftercommit.events.redact import error_text
from aftercommit.meter import Meter
from aftercommit.ordering.fleet import cluster_stats_of
from aftercommit.ports import EventStore, Membership, Runtime
from aftercommit.service import Repeating

log = Log("aftercommit.collector")

#: As often as most servers ask for metrics: more often would be work that nobody sees.
INTERVAL: Final = timedelta(seconds=15)

#: How many turns a process may miss before another takes over from it.
_MISSED: Final = 3

#: The name of the duty in the table of facts.
_DUTY: Final = "collector"


class Collector(Repeating):
    """Runs in every process that exports metrics; one of them has the duty to look, and the others only say that they
    live. Nothing rests on it but figures."""

    def __init__(
        self,
        runtime: Runtime,
        store: EventStore,
        meter: Meter,
        config: OutboxConfig,
        *,
        owner: str,
        interval: timedelta = INTERVAL,
    ) -> None:
        super().__init__(runtime, "aftercommit-collector", interval)
        self._store = store
        self._meter = meter
        self._config = config
        self._patience = _MISSED * self.interval
        membership = store.membership
        # Where a store knows no fleet, each process looks for itself.
        self._duty = None if membership is None else Duty(membership, _DUTY, owner, runtime.clock, self._patience)
        self._told_at: float | None = None

    async def work(self) -> None:
        try:
            if self._duty is None or await self._duty.is_mine():
                self._tell(await self._look())
            else:
                self._tell(None)
        except Exception:
            if self._told_at is not None and self.runtime.clock() - self._told_at >= self._patience:
                self._tell(None)  # nobody knows what is true now, and another may have the duty
            raise
        self._meter.tell("heartbeat")

    def _tell(self, table: TableState | None) -> None:
        if table is not None or self._told_at is not None:
            self._meter.tell("collected", table)
        self._told_at = None if table is None else self.runtime.clock()

    async def _look(self) -> TableState:
        records = self._store.records
        pending = await records.pending()
        pauses = self._store.pauses
        blocks = self._config.ordered and rule_of(self._config).blocks
        return TableState(
            backlog=await records.backlog(),
            done=await records.count_done(DONE_AT_MOST),
            summary=await records.summary(SUMMED_AT_MOST),
            partitions=PartitionStats({number: pending.get(number, 0) for number in ALL_PARTITIONS}),
            blocked_keys=len(await records.blocked(BLOCKED_AT_MOST)) if blocks else 0,
            cluster=await self._cluster(),
            paused=() if pauses is None else tuple(await pauses.all()),
        )

    async def _cluster(self) -> ClusterStats | None:
        membership = self._store.membership
        if membership is None or not self._config.ordered:
            return None
        return cluster_stats_of(await membership.view(), stale_timeout=self._config.stale_timeout)

    async def _run(self) -> None:
        await super()._run()
        self._tell(None)
        self._meter.tell("closed")
        if self._duty is not None:  # here, because whoever closes must not wait for the store itself
            await self._duty.give_up()


class Duty:
    """A task that one process of a fleet has at a time. No clock is compared with another: who has the duty writes a
    new word at each turn, and who has seen the same word for too long on its own clock takes over."""

    def __init__(
        self, membership: Membership, name: str, owner: str, clock: Callable[[], float], patience: float
    ) -> None:
        self._membership = membership
        self._name = name
        self._owner = owner
        self._clock = clock
        self._patience = patience
        self._turn = 0
        self._has_it = False
        #: What stood there when it was last looked at, and since when it has.
        self._seen, self._since = "", clock()

    async def is_mine(self) -> bool:
        """Keep it, take it, or leave it to another. Ask once in a turn."""
        self._turn += 1
        is_silent = self._clock() - self._since >= self._patience
        over = self._seen if self._has_it or is_silent else ""
        found = await self._membership.hold(self._name, f"{self._owner} {self._turn}", over=over)
        if found != self._seen:
            self._seen, self._since = found, self._clock()
        # Also by the word of a turn whose answer was lost.
        self._has_it = found.startswith(f"{self._owner} ")
        return self._has_it

    async def give_up(self) -> None:
        """Another may have it at once. A store that is away lets them wait instead."""
        if not self._has_it:
            return
        self._has_it = False
        try:
            await self._membership.hold(self._name, "", over=self._seen)
        except Exception as error:
            log.debug("the duty %s could not be given up: %s", self._name, error_text(error))
