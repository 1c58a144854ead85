"""A row that this process claims again while an earlier outcome of its own is still being answered."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from aftercommit import EventStatus
from aftercommit.events.outcome import DONE, RELEASE, Dead, Defer, Outcome, Retry
from aftercommit.stores.sqlite.target import sqlite_from_url
from aftercommit.testing.kit import lease_of, settle
from tests.delivery.faulty import colour_of
from tests.delivery.test_settler import facts, hold
from tests.support import Collector, Signal, World

NOW = timedelta(0)


async def claim_again(world: World, engine: Any) -> None:
    world.change("UPDATE outbox_event SET available_at = 0")
    await engine.poller.claim(1)  # finds nothing behind the floor of the first claim, and takes it away
    (run,) = engine.poller.deliverable((await engine.poller.claim(1)).claim)
    assert engine.held.admit(run) == [], "it is in memory still"


@pytest.mark.parametrize("outcome", [RELEASE, Retry(NOW, "no"), Defer(NOW)])
def test_a_row_claimed_between_the_write_and_its_answer_is_given_back(world: World, outcome: Outcome) -> None:
    """The outcome is written, and the row is claimed anew before the answer comes. Whoever then lets go of the row in
    memory must not keep the new lease: nobody would deliver under it, and nobody else could."""

    async def scenario() -> None:
        engine, store, (holding,) = await hold(world, 1)
        inner = store.inner.settle

        async def settle_and_claim(settlements: Any) -> Any:
            store.inner.settle = inner
            refused = await inner(settlements)
            await claim_again(world, engine)
            return refused

        store.inner.settle = settle_and_claim
        engine.settler.add(holding, outcome)
        await engine.settler.flush()
        assert len(engine.held) == 0
        assert facts(world, "locked_by") == [(None,)]
        assert facts(world, "attempts") == [(1 if isinstance(outcome, Retry) else 0,)]
        assert "lease_lost" not in engine.meter.counts()

    world.run(scenario)


@pytest.mark.parametrize(
    ("outcome", "status", "attempts"),
    [(Retry(NOW, "no"), EventStatus.RETRY, 1), (Defer(NOW), EventStatus.RETRY, 0), (RELEASE, EventStatus.NEW, 0)],
)
def test_an_outcome_that_may_have_been_written_is_not_written_again_under_a_new_lease(
    world: World, outcome: Outcome, status: EventStatus, attempts: int
) -> None:
    """The answer is lost, the row falls due, and this process claims it: one failure counts once."""

    async def scenario() -> None:
        engine, store, (holding,) = await hold(world, 1)
        fault = store.fail("settle", late=True)
        engine.settler.add(holding, outcome)
        with pytest.raises(type(fault.error)):
            await engine.settler.flush()
        await claim_again(world, engine)
        await engine.settler.flush()
        assert fault.fired == 1
        assert facts(world, "status", "attempts", "locked_by") == [(status, attempts, None)]
        assert len(engine.held) == 0

    world.run(scenario)


def test_a_replayed_event_does_not_die_of_its_earlier_death(world: World) -> None:
    async def scenario() -> None:
        engine, store, (holding,) = await hold(world, 1)
        fault = store.fail("settle", late=True)
        engine.settler.add(holding, Dead("the end"))
        with pytest.raises(type(fault.error)):
            await engine.settler.flush()
        assert world.statuses() == [EventStatus.DEAD]
        world.change("UPDATE outbox_event SET status = 0, attempts = 0, lease_epoch = lease_epoch + 1, done_at = NULL")
        await claim_again(world, engine)
        await engine.settler.flush()
        assert facts(world, "status", "attempts", "locked_by") == [(EventStatus.NEW, 0, None)]

    world.run(scenario)


def test_what_was_done_stays_done_under_whichever_lease(world: World) -> None:
    """Its lease ran out before the mark, and this process has taken itself over: the delivery has happened."""

    async def scenario() -> None:
        engine, store, (holding,) = await hold(world, 1)
        fault = store.fail("settle")
        engine.settler.add(holding, DONE)
        with pytest.raises(type(fault.error)):
            await engine.settler.flush()
        world.change("UPDATE outbox_event SET lease_until = 0")
        await claim_again(world, engine)
        await engine.settler.flush()
        assert facts(world, "status", "locked_by") == [(EventStatus.DONE, None)]

    world.run(scenario)


def test_a_run_that_began_before_a_replay_does_not_settle_it(world: World) -> None:
    """Another process took the event over and it died there; then it was replayed, and claimed by the process whose
    first run of it had not ended. That run ends, and the event is delivered once more."""

    async def scenario() -> None:
        calls, go_on = Collector(), Signal()

        def listener(event: Any) -> None:
            calls.add(event.event_id)
            if len(calls) == 1:
                go_on.wait_here()

        outbox = world.outbox(poll_interval="1h")
        outbox.register("Happened", listener)
        other = sqlite_from_url(world.url, colour_of(world))
        async with outbox:
            async with outbox.transaction():
                event_id = await outbox.write("Happened", {})
            await calls.reach(1)
            # At one go: between the end of the lease and a claim of another's its own poller might look.
            world.change("UPDATE outbox_event SET locked_by = 'another', lease_epoch = lease_epoch + 1")
            assert await settle(other, lease_of(event_id, "another", 2), Dead("no"))
            assert await outbox.dead.replay(event_id)
            await world.until("SELECT count(*) = 1 FROM outbox_event WHERE lease_epoch = 4 AND locked_by IS NOT NULL")
            assert calls == [event_id], "what it has in memory still runs"
            go_on.set()
            await calls.reach(2)
            await world.until_settled(1)
            assert facts(world, "status", "locked_by") == [(EventStatus.DONE, None)]
        await other.close()

    world.run(scenario)


@pytest.mark.parametrize("outcome", [DONE, Retry(NOW, "no"), Dead("the end")], ids=["done", "retry", "dead"])
def test_what_was_reported_before_a_replay_does_not_settle_it(world: World, outcome: Outcome) -> None:
    async def scenario() -> None:
        engine, store, (holding,) = await hold(world, 1)
        fault = store.fail("settle")
        engine.settler.add(holding, outcome)
        with pytest.raises(type(fault.error)):
            await engine.settler.flush()
        world.change("UPDATE outbox_event SET locked_by = NULL, lease_until = NULL, lease_epoch = lease_epoch + 2")
        await claim_again(world, engine)
        await engine.settler.flush()
        assert facts(world, "status", "attempts", "locked_by") == [(EventStatus.NEW, 0, None)]
        assert len(engine.held) == 0

    world.run(scenario)


def test_what_waits_while_another_has_the_row_is_begun_with_what_it_has_become(world: World) -> None:
    """It was taken over from another that never reported: this process must not run it as if nothing had happened."""

    async def scenario() -> None:
        engine, _, (holding,) = await hold(world, 1)
        world.change("UPDATE outbox_event SET locked_by = 'gone', lease_until = 0, lease_epoch = lease_epoch + 1")
        await claim_again(world, engine)
        assert not await engine.dispatcher.deliver(holding)
        await engine.settler.flush()
        assert (await engine.poller.claim(1)).claim.rows == ()
        (again,) = (await engine.poller.claim(1)).claim.rows
        assert again.is_suspect

    world.run(scenario)


def test_a_lease_that_was_overtaken_is_left_to_run_out(world: World) -> None:
    """Its old run may never end, and another process can deliver the event."""

    async def scenario() -> None:
        engine, _, (holding,) = await hold(world, 1)
        world.change("UPDATE outbox_event SET locked_by = NULL, lease_until = NULL, lease_epoch = lease_epoch + 2")
        assert engine.held.expiring(float("inf")) == [holding.lease]
        await claim_again(world, engine)
        assert engine.held.expiring(float("inf")) == []

    world.run(scenario)
