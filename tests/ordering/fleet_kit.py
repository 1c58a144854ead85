"""Instances of a fleet over a real store, each with a membership that fails on demand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from aftercommit.delivery.agenda import Place
from aftercommit.delivery.ownership import Change, Ownership
from aftercommit.events.order import Instance, OrderKey
from aftercommit.ordering.fleet import Fleet
from aftercommit.stores.detect import open_store
from tests.delivery.faulty import FaultyStore, colour_of, meter_of, new_runtime, plain_config
from tests.support import Collector, World

ALL = frozenset(range(256))

#: Long enough that it never comes round in a test.
NEVER = timedelta(hours=1)

#: As seldom as heartbeats may come where half a minute is silence.
RARELY = timedelta(seconds=15)

SOON = timedelta(milliseconds=20)


class FaultyMembership(FaultyStore):
    """Passes every call on, unless a fault was ordered for it."""

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **keywords: Any) -> Any:
            return await self._through(name, *arguments, **keywords)

        return call


class Rooms:
    """Stands for a dispatcher, an agenda and an announcer."""

    def __init__(self, told: Collector) -> None:
        self._told = told

    def give_back(self, leaves: Callable[[OrderKey], bool]) -> None: ...

    def add(self, place: Place) -> bool:
        return True

    def tell_fleet(self) -> None:
        self._told.add(("change",))


class Watched(Fleet):
    """Tells what follows from each change, and that it does."""

    def __init__(self, *arguments: Any, told: Callable[[Change], None]) -> None:
        super().__init__(*arguments)
        self._told = told

    def follow(self, change: Change) -> None:
        self._told(change)
        super().follow(change)


class Node:
    """An instance: its fleet, its membership, and everything that it was told, in order."""

    def __init__(self, kit: FleetKit, id: str, **options: Any) -> None:
        self.id = id
        self.runtime = new_runtime(kit.world)
        self.membership = FaultyMembership(kit.store.membership)
        self.told = Collector()
        intervals = {"heartbeat_interval": RARELY, "rebalance_interval": NEVER, "stale_timeout": 2 * RARELY}
        self.ownership = Ownership(self.runtime)
        self.ownership.share()
        rooms: Any = Rooms(self.told)
        config = plain_config(ordered=True, **{**intervals, **options})
        instance = Instance(id, "here", 1)
        self.meter = meter_of(self.runtime)
        about = self.ownership, rooms, rooms, rooms, self.meter, config
        self.fleet = Watched(self.runtime, self.membership, instance, *about, told=self.tell)

    def tell(self, change: Change) -> None:
        if change.lost:
            self.told.add(("lost", change.lost, len(self.membership.calls["give"])))
        if change.gained:
            self.told.add(("gained", change.gained))

    @property
    def owned(self) -> frozenset[int]:
        return self.ownership.owned

    def gained(self) -> list[frozenset[int]]:
        return [each[1] for each in self.told if each[0] == "gained"]

    def lost(self) -> list[frozenset[int]]:
        return [each[1] for each in self.told if each[0] == "lost"]

    def changes(self) -> int:
        return self.told.count(("change",))

    async def look_again(self) -> None:
        """Look twice, as if an interval lay between."""
        coordinator = self.fleet.coordinator
        await coordinator.work()
        coordinator._since -= NEVER.total_seconds()
        await coordinator.work()

    def later(self, seconds: float) -> None:
        """The runtime's clock goes on by that much at once."""
        clock = self.runtime.clock
        self.runtime.clock = lambda: clock() + seconds

    def at(self, moment: float) -> None:
        """The runtime's clock stands still there: however slow this machine is, no time passes."""
        self.runtime.clock = lambda: moment

    async def die(self) -> None:
        """No sign-off: only the loops end."""
        self.fleet.sign_off = nothing  # type: ignore[method-assign]
        for service in self.fleet.services:
            await service.stop()


async def nothing() -> None: ...


class FleetKit:
    """Nodes over the world's database; those that were started are stopped when the scenario ends."""

    def __init__(self, world: World, store: Any) -> None:
        self.world = world
        self.store = store
        self.nodes: list[Node] = []

    def node(self, id: str, **options: Any) -> Node:
        self.nodes.append(Node(self, id, **options))
        return self.nodes[-1]

    async def started(self, id: str, **options: Any) -> Node:
        node = self.node(id, **options)
        await node.fleet.start()
        return node

    async def close(self) -> None:
        for node in self.nodes:
            node.membership.heal()
            await node.fleet.stop()
            await node.runtime.close()
        await self.store.close()


def in_a_fleet(world: World, scenario: Callable[[FleetKit], Any]) -> None:
    """Run a scenario that gets a kit."""

    async def whole() -> None:
        store = open_store(world.url, colour_of(world), create_schema=True)
        await store.open()
        kit = FleetKit(world, store)
        try:
            await scenario(kit)
        finally:
            await kit.close()

    world.run(whole)


def owners(world: World) -> dict[str, int]:
    """How many partitions each has, as the database says."""
    rows = world.rows("SELECT owner, count(*) FROM outbox_partition WHERE owner IS NOT NULL GROUP BY owner")
    return {row[0]: row[1] for row in rows}
