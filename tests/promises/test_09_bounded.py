"""Promise 9: queues have a capacity. A slow receiver costs memory for those and no more; the database is the buffer."""

from __future__ import annotations

from aftercommit import EventEnvelope
from tests.support import Collector, Signal, World


def test_promise_09_bounded_a_slow_receiver_leaves_everything_else_in_the_table(every_world: World) -> None:
    world = every_world

    async def scenario() -> None:
        entered, release, seen = Signal(), Signal(), Collector()

        def slow(event: EventEnvelope) -> None:
            entered.set()
            release.wait_here()
            seen.add(event.event_id)

        outbox = world.outbox(
            worker_count=1, hot_queue_capacity=3, cold_queue_capacity=4, batch_size=50, poll_interval="1h"
        )
        outbox.register("A", slow)
        async with outbox.transaction():  # not started: all of it is born free
            await outbox.write_all([EventEnvelope.of_json("A", "{}") for _ in range(20)])
        async with outbox:
            await entered.wait()
            for _ in range(10):
                async with outbox.transaction():
                    await outbox.write("A", {})
            for _ in range(3):  # each would take fifty
                await outbox.poll()
            stats = await outbox.stats()
            assert (stats.hot_depth, stats.cold_depth) <= (3, 4)
            assert stats.held <= 1 + 3 + 4
            assert world.rows("SELECT count(*) FROM outbox_event WHERE locked_by IS NULL")[0][0] >= 30 - 8
            release.set()
            await seen.reach(30)
            await world.until_settled(30)
        assert len(set(seen)) == 30

    world.run(scenario)
