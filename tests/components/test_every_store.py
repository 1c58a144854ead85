"""The parts work over every store and driver, as the whole outbox does."""

from __future__ import annotations

from typing import Any

from aftercommit import EventEnvelope, EventInterceptor, Fixed, Source
from tests.components.kit import Parts
from tests.support import Collector, World


def test_hot_cold_retried_and_dead(any_server_world: World) -> None:
    world = any_server_world

    async def scenario() -> None:
        options: dict[str, Any] = {"table": world.table, "delete_completed": False} if world.database == "redis" else {}
        parts = Parts(world, **options)
        sources = Collector()

        def fail(event: EventEnvelope) -> None:
            raise ValueError("down")

        parts.registry.register("Fine", lambda event: None)
        parts.registry.register("Failing", fail)
        look = EventInterceptor.before(lambda event, queued: sources.add((event.event_type, queued.source)))
        dispatcher = parts.dispatcher(max_attempts=2, retry_policy=Fixed("1ms"), interceptors=[look])
        try:
            await parts.write(parts.writer(parts.hook(dispatcher)), "Fine", "Failing")
            await world.until_settled(1)
            await world.until_settled(1, status=2)
            poller = parts.poller(dispatcher)
            await poller.start()
            await world.until_settled(1, status=3)
            await parts.write(parts.writer(), "Fine")  # of which the poller hears nothing
            await poller.poll()
            await world.until_settled(2)
        finally:
            await parts.close()
        assert sorted(sources, key=str) == [
            *[("Failing", Source.COLD), ("Failing", Source.HOT)],
            *[("Fine", Source.COLD), ("Fine", Source.HOT)],
        ]

    world.run(scenario)
