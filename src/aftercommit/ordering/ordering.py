"""Order over a fleet: which keys this instance looks at, who is told of the others, and what it gives back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from aftercommit.delivery.leases import Held
from aftercommit.delivery.worker import OutboxDispatcher
from aftercommit.errors import InvalidOption
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.fleet import Instance
from aftercommit.events.order import OrderKey
from aftercommit.events.partitions import ALL_PARTITIONS, order_key_of
from aftercommit.meter import Meter
from aftercommit.ordering.fleet import Fleet
from aftercommit.ordering.keys import LookByKey
from aftercommit.ordering.wakeups import Announcer, Listener
from aftercommit.polling.agenda import Calls
from aftercommit.polling.due import PollerOptions
from aftercommit.polling.options import EngineOptions
from aftercommit.polling.poller import OutboxPoller
from aftercommit.ports import EventStore, Membership, Runtime, Wakeups
from aftercommit.service import Service

#: A process that only writes owns nothing.
_NOTHING: Final[frozenset[int]] = frozenset()


class Ordering:
    """What an engine has more when order is kept. Not started, every partition is its own: order rests on the leases
    of rows, and partitions only spread the work."""

    def __init__(
        self, runtime: Runtime, store: EventStore, meter: Meter, instance: Instance, options: EngineOptions, held: Held
    ) -> None:
        if not store.capabilities.keeps_order:
            raise InvalidOption(
                f"ordered=True needs a store that claims in order, and {store!r} has no heads() and claim_keys()",
                fix="leave ordered out, or use another store",
            )
        self._store = store
        self._options = options
        self._is_started = False
        self._poller: OutboxPoller | None = None
        self._dispatcher: OutboxDispatcher | None = None
        # What falls due after the next round is found by that round.
        horizon = 2 * (options.max_poll_interval or options.poll_interval)
        self.calls = Calls(runtime, horizon=horizon, is_held=held.has, on_call=self._called_in)
        held.on_free = self.calls.free
        self._fleet = self._fleet_of(runtime, store.membership, instance)
        self._announcer, self._listener = self._messengers(runtime, store.wakeups, instance, meter)

    def connect(self, poller: OutboxPoller, dispatcher: OutboxDispatcher) -> None:
        """Who looks, and who lets go."""
        self._poller = poller
        self._dispatcher = dispatcher

    def _called_in(self, seconds: float) -> None:
        if self._poller is not None:
            self._poller.called_in(seconds)

    def _wake(self) -> None:
        if self._poller is not None:
            self._poller.wake()

    def _fleet_of(self, runtime: Runtime, membership: Membership | None, instance: Instance) -> Fleet | None:
        if membership is None or not (self._options.delivers and self._options.poller_enabled):
            return None
        return Fleet(
            runtime,
            membership,
            instance,
            heartbeat_interval=self._options.heartbeat_interval,
            stale_timeout=self._options.stale_timeout,
            rebalance_interval=self._options.rebalance_interval,
            on_gained=lambda _: self._wake(),
            on_lost=self._lost,
            on_change=self._tell_fleet,
        )

    def _messengers(
        self, runtime: Runtime, wakeups: Wakeups | None, instance: Instance, meter: Meter
    ) -> tuple[Announcer | None, Listener | None]:
        if wakeups is None:
            return None, None
        announcer = Announcer(runtime, wakeups, instance.id, meter)
        if self._fleet is None:
            return announcer, None
        listener = Listener(
            runtime,
            wakeups,
            instance.id,
            meter,
            on_keys=self._heard,
            on_everything=self._wake,
            on_fleet=self._fleet.look,
        )
        return announcer, listener

    def by_key(self, runtime: Runtime, options: PollerOptions) -> LookByKey:
        """How the poller looks."""
        return LookByKey(runtime, self._store, self.calls, options, owned=self.owned)

    # ------------------------------------------------------------ whose key it is

    def owned(self) -> Collection[int]:
        if not self._is_started:
            return ALL_PARTITIONS
        if self._fleet is not None:
            return self._fleet.owned
        return ALL_PARTITIONS if self._options.delivers and self._options.poller_enabled else _NOTHING

    def is_mine(self, key: OrderKey) -> bool:
        return key.partition in self.owned()

    def committed(self, events: Sequence[EventEnvelope]) -> None:
        """These are in the table. From any thread, at once."""
        owned = self.owned()
        ready = {order_key_of(event): None for event in events if not event.is_delayed}
        mine = [key for key in ready if key.partition in owned]
        if not self.calls.add(mine):
            self._wake()
        if self._announcer is not None and len(mine) < len(ready):
            self._announcer.tell(key for key in ready if key.partition not in owned)
        for event in events:
            if event.deliver_after is not None and self.is_mine(key := order_key_of(event)):
                self.calls.add([key], after=event.deliver_after.total_seconds())

    def _heard(self, keys: list[OrderKey]) -> None:
        """Another instance has written rows of these keys."""
        owned = self.owned()
        if not self.calls.add([key for key in keys if key.partition in owned]):
            self._wake()

    def due_in(self, seconds: float, key: OrderKey) -> None:
        """The head of a key is due again in a while."""
        self.calls.add([key], after=seconds)

    def unblocked(self) -> None:
        """Dead events were replayed or discarded, of whatever keys."""
        if self._announcer is not None:
            self._announcer.tell_everything()

    def _lost(self, partitions: frozenset[int]) -> None:
        if self._dispatcher is not None:
            self._dispatcher.give_back(lambda key: key.partition in partitions)

    def _tell_fleet(self) -> None:
        if self._announcer is not None:
            self._announcer.tell_fleet()

    # ------------------------------------------------------------ life

    @property
    def services(self) -> list[Service]:
        fleet = self._fleet.services if self._fleet is not None else ()
        return [service for service in (*fleet, self._announcer, self._listener) if service is not None]

    async def start(self) -> None:
        for service in (self._announcer, self._listener):
            if service is not None:
                service.start()
        if self._fleet is not None:
            await self._fleet.start()
        self._is_started = True

    async def stop(self) -> None:
        """Sign off, and let the others know."""
        if self._fleet is not None:
            await self._fleet.stop()
        for service in (self._listener, self._announcer):
            if service is not None:
                await service.stop()
