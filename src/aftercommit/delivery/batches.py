"""What workers do with events whose handlers take many at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from aftercommit.delivery.batch import Batch, claimed_of
from aftercommit.delivery.chain import Delivery
from aftercommit.delivery.lanes import Lanes
from aftercommit.delivery.leases import Holding
from aftercommit.delivery.settler import Settler
from aftercommit.delivery.starts import Starts
from aftercommit.delivery.together import Together
from aftercommit.events.claims import Claimed
from aftercommit.events.log import Log
from aftercommit.events.order import KeyRule, OrderKey
from aftercommit.events.redact import error_text
from aftercommit.handlers.routing import Route, Router
from aftercommit.meter import Meter
from aftercommit.ports import Runtime

log = Log("aftercommit.dispatcher")


class Batches:
    """Gathers what goes together, and has it delivered."""

    def __init__(
        self,
        runtime: Runtime,
        lanes: Lanes[Holding],
        delivery: Delivery,
        settler: Settler,
        starts: Starts,
        meter: Meter,
        rule: KeyRule,
    ) -> None:
        self._runtime, self._lanes, self._delivery, self._settler = runtime, lanes, delivery, settler
        self._starts, self._meter, self._rule = starts, meter, rule
        self._together = Together(runtime, delivery)

    def mark(self, holdings: Iterable[Holding]) -> None:
        """Before they wait: those that may go together know with whom."""
        if self._delivery.router.roster.has_batches:
            for holding in holdings:
                holding.route = batch_route(self._delivery.router, claimed_of(holding))

    async def work(self, first: Holding, route: Route) -> None:
        """With one that a worker has taken out of the lanes."""
        gathering = self._lanes.gather(first, route.batch or 1, waits=route.linger > 0)
        if gathering is None:
            return
        holdings: Sequence[Holding] = ()
        stopped: Collection[OrderKey] = ()
        try:
            try:
                if route.linger > 0 and gathering.room > 0:
                    await gathering.filled(route.linger)
            finally:
                holdings = self._lanes.gathered(gathering)
                stopped = {holding.order_key for holding in holdings if holding.order_key is not None}
            stopped = await self.deliver(holdings, route)
        except Exception as error:
            # Nothing of a user's gets here; a fault of ours must cost neither the worker nor the rows.
            log.error("a batch of %d for %s broke off: %s", len(holdings), route.id, error_text(error), error=error)
            self._settler.release(holding for holding in holdings if not holding.is_reported)
        finally:
            # What runs on although its worker is cancelled keeps its lease.
            self._settler.release(each for each in holdings if not (each.is_reported or each.is_running))
            if leaving := self._lanes.finished_all(holdings, stopped):
                self._settler.release(leaving)

    async def deliver(self, holdings: Sequence[Holding], route: Route) -> Collection[OrderKey]:
        """From the last look at their leases to their outcomes in the settler's hands; the keys of which nothing may
        follow."""
        batch = Batch(self._runtime, self._delivery, self._settler, self._starts, self._rule, route)
        if self._meter.exports:
            for holding in holdings:
                self._meter.record("dispatch_latency_ms", (batch.began - holding.since) * 1000)
        await self._together.deliver(batch, holdings)
        return batch.stopped


def batch_route(router: Router, claimed: Claimed) -> Route | None:
    """The only receiver of an event, if that takes events in batches. What may be to blame for something goes alone:
    what has failed before, and what may have ended a process."""
    if claimed.attempts or claimed.is_suspect or claimed.abandoned or claimed.done_handlers:
        return None
    try:
        routes = router.routes_of_row(claimed.event, claimed.lease.key.handler_id)
    except (Exception, SystemExit):  # said when it is delivered
        return None
    return routes[0] if len(routes) == 1 and routes[0].batch is not None else None
