"""Promise 10: a full hot lane never raises in the caller. It is a WARNING once in a while, and counted."""

from __future__ import annotations

import logging

import pytest

from aftercommit import EventEnvelope
from tests.support import Signal, World


def test_promise_10_silent_backpressure_writers_do_not_notice_a_full_lane(
    every_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = every_world

    async def scenario() -> None:
        entered, release = Signal(), Signal()

        def slow(event: EventEnvelope) -> None:
            entered.set()
            release.wait_here()

        outbox = world.outbox(worker_count=1, hot_queue_capacity=1, poller_enabled=False)
        outbox.register("A", slow)
        async with outbox:
            for number in range(6):
                async with outbox.transaction():
                    assert await outbox.write("A", {"number": number})
                if number == 0:
                    await entered.wait()
            counters = (await outbox.stats()).counters
            assert (counters["hot_enqueued"], counters["hot_dropped"]) == (2, 4)
            free = world.rows("SELECT count(*) FROM outbox_event WHERE locked_by IS NULL AND status = 0")
            assert free[0][0] == 4, "what was dropped is anybody's"
            release.set()

    with caplog.at_level(logging.INFO, "aftercommit"):
        world.run(scenario)
    said = [record.levelname for record in caplog.records if "hot lane is full" in record.getMessage()]
    assert said == ["WARNING"]
