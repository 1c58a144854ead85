"""Instances of a fleet over a real store, each with a membership that fails on demand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from aftercommit.events.fleet import Instance
from aftercommit.ordering.fleet import Fleet
from aftercommit.stores.detect import open_store
from tests.delivery.faulty import FaultyStore, colour_of, new_runtime
from tests.support import Collector, World

ALL = frozenset(range(256))

#: Long enough that it never comes round in a test.
NEVER = timedelta(hours=1)

SOON = timedelta(milliseconds=20)


class FaultyMembership(FaultyStore):
    """Passes every call on, unless a fault was ordered for it."""

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **keywords: Any) -> Any:
            return await self._through(name, *arguments, **keywords)

        return call


class Node:
    """An instance: its fleet, its membership, and everything that it was told, in order."""

    def __init__(self, kit: FleetKit, id: str, **options: Any) -> None:
        self.id = id
        self.runtime = new_runtime(kit.world)
        self.membership = FaultyMembership(kit.store.membership)
        self.told = Collector()
        intervals = {"heartbeat_interval": NEVER, "rebalance_interval": NEVER, "stale_timeout": timedelta(seconds=30)}
        self.fleet = Fleet(
            self.runtime,
            self.membership,
            Instance(id, "here", 1),
            **{**intervals, **options},
            on_gained=lambda numbers: self.told.add(("gained", numbers)),
            on_lost=lambda numbers: self.told.add(("lost", numbers, len(self.membership.calls["give"]))),
            on_change=lambda: self.told.add(("change",)),
        )

    @property
    def owned(self) -> frozenset[int]:
        return self.fleet.owned

    def gained(self) -> list[frozenset[int]]:
        return [each[1] for each in self.told if each[0] == "gained"]

    def lost(self) -> list[frozenset[int]]:
        return [each[1] for each in self.told if each[0] == "lost"]

    def changes(self) -> int:
        return self.told.count(("change",))

    async def look_again(self) -> None:
        """Look twice, as if an interval lay between."""
        coordinator = self.fleet.coordinator
        await coordinator.rebalance()
        coordinator._since -= NEVER.total_seconds()
        await coordinator.rebalance()

    def later(self, seconds: float) -> None:
        """The runtime's clock goes on by that much at once."""
        clock = type(self.runtime).clock
        self.runtime.clock = lambda: clock(self.runtime) + seconds

    async def die(self) -> None:
        """No sign-off: only the loops end."""
        for service in self.fleet.services:
            await service.stop()


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
