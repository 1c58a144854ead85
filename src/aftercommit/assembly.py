"""The rooms between the lanes and the table, built from the bottom up: what the façade and the components share."""

from __future__ import annotations

from datetime import timedelta
from typing import cast
from uuid import uuid4

from aftercommit.config import OutboxConfig
from aftercommit.delivery.agenda import Agenda
from aftercommit.delivery.chain import Delivery
from aftercommit.delivery.idle import LanesOfIdle
from aftercommit.delivery.lanes import Lanes
from aftercommit.delivery.leases import Held, Holding, Keeper
from aftercommit.delivery.ownership import Ownership
from aftercommit.delivery.pauses import KnownPauses
from aftercommit.delivery.settler import Settler
from aftercommit.delivery.worker import OutboxDispatcher
from aftercommit.handlers.routing import Router
from aftercommit.meter import Meter
from aftercommit.polling.trigger import LONGEST
from aftercommit.ports import EventStore, Runtime
from aftercommit.spans import Spans, TracedSettles


class Assembly:
    """Takes events from the lanes to their outcomes in the table, and keeps their leases meanwhile. Each has an owner
    id of its own: what an earlier one held is not this one's."""

    def __init__(self, runtime: Runtime, store: EventStore, router: Router, config: OutboxConfig) -> None:
        self.runtime = runtime
        self.owner = unique_owner(config.owner_id)
        self.router = router
        self._store = store
        self._config = config
        self.meter = meter = Meter(runtime, config.metrics, name_of(store, config))
        self.held = held = Held(runtime)
        # What falls due after the next round is found by that round.
        longest = (config.max_poll_interval or config.poll_interval) if config.poll_trigger is None else LONGEST
        self.agenda = agenda = Agenda(runtime, held, interval=config.poll_interval, horizon=2 * longest)
        kind, cold_capacity = Lanes[Holding], config.cold_queue_capacity
        if not config.lease_ahead:
            kind, cold_capacity = LanesOfIdle[Holding], config.worker_count
        self.lanes = lanes = kind(
            runtime,
            agenda,
            hot_capacity=config.hot_queue_capacity,
            cold_capacity=cold_capacity,
            alone_from=min(1, config.max_abandoned - 1),
        )
        settled_in, self.spans = store, None if config.tracing is None else Spans(config.tracing, meter)
        if self.spans is not None:
            settled_in = cast("EventStore", TracedSettles(store, self.spans))  # a settler asks it for nothing else
        self.settler = settler = Settler(runtime, settled_in, held, agenda, lanes, meter, config)
        self.ownership = Ownership(runtime)
        self.delivery = Delivery(runtime, router, meter, config)
        self.delivery.pauses = KnownPauses(runtime, store.pauses, agenda)
        self.dispatcher = OutboxDispatcher(
            runtime, store, lanes, self.delivery, settler, held, self.ownership, meter, config
        )
        self.keeper = Keeper(runtime, store, held, lanes, lock_timeout=config.lock_timeout)

    def start_delivering(self) -> None:
        self.keeper.start()
        self.settler.start()
        self.dispatcher.start()

    async def stop_delivering(self, drain_timeout: timedelta) -> None:
        """Finish what waits within the time, give back the rest, and get it all written. The keeper goes on, so that no
        lease runs out meanwhile."""
        await self.dispatcher.close(drain_timeout)
        await self.settler.finish(drain_timeout.total_seconds())


def name_of(store: EventStore, config: OutboxConfig) -> str:
    """The table among those that one exporter may watch: where it is, and its name if that is not the usual one."""
    table = config.table if config.schema is None else f"{config.schema}.{config.table}"
    where = store.where.strip("'")
    return where if table == OutboxConfig().table else f"{where}, {table}"


def unique_owner(name: str | None) -> str:
    """Never another start's, whatever name was chosen: it is a part of the fence."""
    return str(uuid4()) if name is None else f"{name}/{uuid4()}"
