"""A poller that may slow down is not stuck while it does."""

from __future__ import annotations

from tests.delivery.faulty import faulty_store
from tests.support import World


def test_health_gives_a_poller_that_slows_down_its_time(world: World) -> None:
    async def scenario() -> None:
        store = faulty_store(world)
        outbox = world.outbox(store, poll_interval="5s", max_poll_interval="60s")
        outbox.register("Good", lambda event: None)
        fault = store.hold("claim")
        await outbox.start()
        await fault.entered.wait()
        clock = outbox._engine.runtime.clock
        outbox._engine.runtime.clock = lambda: clock() + 170
        assert outbox.health().is_healthy
        outbox._engine.runtime.clock = lambda: clock() + 182
        assert outbox.health().problems == ("the poller has not come round for 182 s",)
        outbox._engine.runtime.clock = clock
        fault.release.set()

    world.run(scenario)
