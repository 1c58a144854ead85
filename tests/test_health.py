"""What health() tells without asking anybody: started, live, ready, and what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from aftercommit import StoreUnavailable
from aftercommit.service import LONGEST_PAUSE
from tests.support import Signal, World


def test_an_outbox_is_started_when_start_has_finished(world: World) -> None:
    async def scenario() -> None:
        outbox, opening = world.outbox(), []

        async def open_store() -> None:
            opening.append(outbox.health())

        assert (outbox.health().is_started, outbox.health().is_live, outbox.health().is_ready) == (False, True, False)
        await outbox.create_schema()
        outbox._store.open, before = open_store, outbox._store.open
        async with outbox:
            health = outbox.health()
            assert (health.is_started, health.is_live, health.is_ready, health.is_healthy) == (True,) * 4
        outbox._store.open = before
        assert not opening[0].is_started
        assert opening[0].is_live
        assert not opening[0].is_ready
        assert opening[0].problems == ("start() has not finished yet",)
        assert not outbox.health().is_started

    world.run(scenario)


def test_loops_that_fail_are_live_and_only_those_that_deliver_make_it_not_ready(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox(purge_retention="1d")
        async with outbox:
            engine = outbox._engine
            engine.purge.failures_in_a_row = 3
            health = outbox.health()
            assert health.problems == ("aftercommit-purge has failed 3 times in a row",)
            assert (health.is_healthy, health.is_live, health.is_ready) == (False, True, True)
            engine.keeper.failures_in_a_row = 7
            health = outbox.health()
            assert (health.is_healthy, health.is_live, health.is_ready) == (False, True, False)

    world.run(scenario)


@pytest.mark.parametrize("who", ["worker", "keeper"])
def test_a_loop_that_is_over_makes_it_not_live(world: World, who: str) -> None:
    """Nothing that it does by itself brings it back; a restart does."""

    async def scenario() -> None:
        outbox = world.outbox()
        async with outbox:
            engine = outbox._engine

            class Over:
                has_ended = True

            if who == "worker":
                engine.dispatcher.workers[0], real = Over(), engine.dispatcher.workers[0]
                assert outbox.health().problems == ("1 of 4 workers have ended",)
            else:
                engine.keeper._task, real = Over(), engine.keeper._task
                assert outbox.health().problems == ("aftercommit-keeper has ended",)
            assert not outbox.health().is_live
            assert not outbox.health().is_ready
            if who == "worker":
                engine.dispatcher.workers[0] = real
            else:
                engine.keeper._task = real

    world.run(scenario)


def test_a_poller_that_is_stuck_in_the_programs_own_code_is_not_live_and_one_in_the_store_is(world: World) -> None:
    async def scenario() -> None:
        outbox, asked, release = world.outbox(poll_interval="10ms"), Signal(), Signal()
        outbox.register("T", lambda _: None)
        async with outbox:
            poller, look = outbox._engine.poller, outbox._engine.poller._look
            claim = look.claim

            async def hang(limit: int) -> Any:
                asked.set()
                await release.wait()
                return await claim(limit)

            look.claim = hang
            await asked.wait()
            poller.turned_at = poller.progressed_at = float("-inf")
            health = outbox.health()
            assert (health.is_live, health.is_ready) == (True, False)
            poller.is_asking, poller.turned_at = False, outbox._engine.runtime.clock() - LONGEST_PAUSE
            assert outbox.health().is_live, "it may be in the pause behind a failure"
            poller.turned_at = float("-inf")  # and in an exporter or a trigger of the user's it may be for ever
            assert not outbox.health().is_live
            release.set()

    world.run(scenario)


def test_check_health_asks_the_store_and_health_does_not(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox(poll_interval="1h")
        assert not (await outbox.check_health()).is_ready, "not started, and nobody is asked"
        async with outbox:
            assert (await outbox.check_health()).is_ready

            async def away(limit: int | None) -> int:
                raise StoreUnavailable("gone", fix="bring it back")

            outbox._store.records.count_done = away
            outbox._engine.checkup._ping._answered_at = float("-inf")
            assert outbox.health().is_ready
            health = await outbox.check_health(timeout="5s")
            assert (health.is_live, health.is_ready, health.is_healthy) == (True, False, False)
            assert "the store cannot be asked: StoreUnavailable" in health.problems[0]

    world.run(scenario)
