"""`outbox.cancel()` against a delivery that begins or ends at the same moment: one of the two wins, on every store, and
what is being delivered is never cancelled."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import Collector, Signal, World
from tests.transactions.kit import beside


@pytest.fixture
def world(every_world: World) -> World:
    return every_world


async def written(outbox: Any, **options: Any) -> str:
    async with outbox.transaction():
        event_id: str = await outbox.write("T", "{}", **options)
    return event_id


def outcome(world: World) -> tuple[int, str | None]:
    (row,) = world.rows()
    return row["status"], row["last_error"]


@pytest.mark.parametrize("hot", [True, False], ids=["from memory", "from the table"])
def test_what_is_in_its_handler_is_not_cancelled(world: World, hot: bool) -> None:
    """By the process that delivers it, or by any other one."""

    async def scenario() -> None:
        outbox = world.outbox(hot_path=hot, worker_count=1, delete_completed=False)
        other = world.outbox(delete_completed=False)
        entered, may_end = Signal(), Signal()

        @outbox.handler("T")
        def handle(event: Any) -> None:
            entered.set()
            may_end.wait_here()

        async with outbox:
            event_id = await written(outbox)
            await entered.wait()
            try:
                assert await outbox.cancel(event_id) is False
                assert await other.cancel(event_id) is False
            finally:
                may_end.set()
            await world.until_settled(1)
            assert await other.cancel(event_id) is False, "nor when it is done"
        assert outcome(world) == (1, None)

    world.run(scenario)


def test_a_claim_that_waits_in_memory_is_not_cancelled_and_one_that_was_cancelled_is_not_claimed(world: World) -> None:
    async def scenario() -> None:
        outbox, seen = world.outbox(hot_path=False, delete_completed=False), Collector()
        outbox.register("T", seen.add)
        cancelled = await written(outbox)
        assert await outbox.cancel(cancelled) is True
        assert await outbox.poll() == 0, "there is nothing to claim"
        assert seen == []
        assert outcome(world) == (1, "cancelled")

    world.run(scenario)


def test_a_delivery_whose_lease_ran_out_changes_nothing_of_a_cancelled_event(world: World) -> None:
    """It may still run, as after any lease that is over: its outcome is refused, and counted."""

    async def scenario() -> None:
        outbox = world.outbox(worker_count=1, delete_completed=False, lock_timeout="1h")
        other = world.outbox(delete_completed=False)
        entered, may_end = Signal(), Signal()

        @outbox.handler("T")
        def handle(event: Any) -> None:
            entered.set()
            may_end.wait_here()
            raise ValueError("too late")

        async with outbox:
            event_id = await written(outbox)
            await entered.wait()
            try:
                answers = []
                while True not in answers and len(answers) < 3:  # its keeper, which just began, renews it once
                    world.change("UPDATE outbox_event SET lease_until = 0")
                    answers.append(await other.cancel(event_id))
                assert True in answers
            finally:
                may_end.set()
            await outbox.drain(timeout=20)
            assert (await outbox.stats()).counters["lease_lost"] == 1
        assert outcome(world) == (1, "cancelled")

    world.run(scenario)


def test_of_cancels_and_claims_at_once_each_event_has_one_winner(world: World) -> None:
    """Everything is either delivered or cancelled, never both, and nothing is left."""
    count = 40

    async def scenario() -> None:
        outbox = world.outbox(hot_path=False, worker_count=4, delete_completed=False)
        other = world.outbox(delete_completed=False)
        seen, cancelled = Collector(), Collector()
        outbox.register("T", lambda event: seen.add(event.event_id))
        async with outbox.transaction():
            given = [await outbox.write("T", "{}") for _ in range(count)]

        async def cancel(some: list[str]) -> None:
            for event_id in some:
                if await other.cancel(event_id):
                    cancelled.add(event_id)

        joins = [beside(world, lambda part=part: cancel(given[::-1][part::2])) for part in range(2)]
        await outbox.start()
        for join in joins:
            await join()
        await world.until_settled(count)
        assert sorted([*seen, *cancelled]) == sorted(given)
        assert {row["event_id"] for row in world.rows() if row["last_error"] == "cancelled"} == set(cancelled)

    world.run(scenario)


def test_the_loser_of_two_cancels_hears_so(world: World) -> None:
    async def scenario() -> None:
        outbox, answers = world.outbox(delete_completed=False), Collector()
        event_id = await written(outbox, deliver_after="1h")

        async def cancel() -> None:
            answers.add(await outbox.cancel(event_id))

        for join in [beside(world, cancel) for _ in range(3)]:
            await join()
        assert sorted(answers) == [False, False, True]

    world.run(scenario)


def test_pages_of_what_waits_are_whole_while_some_of_it_is_cancelled(world: World) -> None:
    """Each event is on one page, those that share a due time among them; what ended in between is on none."""

    async def scenario() -> None:
        outbox = world.outbox(delete_completed=False)
        async with outbox.transaction():
            given = [await outbox.write("T", "{}", deliver_after="1h") for _ in range(7)]
        world.change("UPDATE outbox_event SET available_at = 4000000000000000")
        pages, last = [], None
        while page := await outbox.pending.query(limit=2, after=last):
            pages.append([record.event_id for record in page])
            last = page[-1]
            if len(pages) == 1:
                assert await outbox.cancel(given[0]), "of a page that was read"
                assert await outbox.cancel(given[3]), "of one that was not"
        assert [event_id for page in pages for event_id in page] == [*given[:3], *given[4:]]
        assert await outbox.pending.count() == 5

    world.run(scenario)
