"""Promise 8 in one process: events of a key in the order of writing, one at a time; other keys go on."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from aftercommit import EventStatus, Fixed
from tests.ordered.kit import NEVER, Handler, number_of, of_key, ordered, write
from tests.support import PATIENCE, Collector, Signal, World

pytestmark = pytest.mark.parametrize("colour", ["sync", "async"])


def test_events_of_a_key_are_handled_in_order_and_without_waiting_for_a_poll(world: World, colour: str) -> None:
    """E1, TC-363"""

    async def scenario() -> None:
        handler = Handler()
        async with ordered(world, handler, colour=colour) as outbox:
            for start in range(0, 30, 3):
                await write(outbox, start, start + 1, start + 2, key=f"key-{start % 2}")
            await handler.seen.reach(30)
        for key in ("key-0", "key-1"):
            numbers = of_key(handler.seen, key)
            assert numbers == sorted(numbers)

    world.run(scenario)


def test_a_long_queue_of_one_key_is_delivered_run_by_run(world: World, colour: str) -> None:
    async def scenario() -> None:
        handler = Handler()
        async with ordered(world, handler, colour=colour, batch_size=7) as outbox:
            await write(outbox, *range(100))
            await handler.seen.reach(100)
        assert of_key(handler.seen, "a") == list(range(100))

    world.run(scenario)


def test_one_at_a_time_per_key_and_several_keys_at_once(world: World, colour: str) -> None:
    async def scenario() -> None:
        running, together, lock = Collector(), Collector(), threading.Lock()
        met = threading.Barrier(2, timeout=PATIENCE)

        def meet(event: Any) -> None:
            with lock:
                assert event.key not in running, "two of a key at once"
                running.append(event.key)
            met.wait()  # two keys are here at the same time, twice
            with lock:
                running.remove(event.key)
            together.add((event.key, number_of(event)))

        handler = meet if not (world.is_async and colour == "async") else None
        if handler is None:
            pytest.skip("an async handler that blocks its loop cannot meet another")
        async with ordered(world, handler, colour="sync") as outbox:
            await write(outbox, 1, 2, key="a")
            await write(outbox, 1, 2, key="b")
            await together.reach(4)
        assert of_key(together, "a") == of_key(together, "b") == [1, 2]

    world.run(scenario)


def test_a_failing_event_holds_back_its_key_and_no_other(world: World, colour: str) -> None:
    """E2, TC-365"""

    async def scenario() -> None:
        handler = Handler()
        handler.fails = {2: 2}
        async with ordered(world, handler, colour=colour) as outbox:
            await write(outbox, 1, 2, 3, 4)
            await write(outbox, 10, 11, key="b")
            await handler.seen.reach(6)
        assert of_key(handler.seen, "a") == [1, 2, 3, 4]
        assert of_key(handler.tries, "a") == [1, 2, 2, 2, 3, 4]

    world.run(scenario)


def test_without_stop_on_first_failure_later_events_pass_a_failed_one(world: World, colour: str) -> None:
    """E2, TC-365"""

    async def scenario() -> None:
        handler = Handler()
        handler.fails = {2: 1}
        async with ordered(world, handler, colour=colour, stop_on_first_failure=False) as outbox:
            await write(outbox, 1, 2, 3)
            await handler.seen.reach(3)
        assert of_key(handler.seen, "a") == [1, 3, 2]

    world.run(scenario)


def test_a_delayed_event_holds_back_its_key(world: World, colour: str) -> None:
    """TC-344, TC-364"""

    async def scenario() -> None:
        handler = Handler()
        async with ordered(world, handler, colour=colour) as outbox:
            await write(outbox, 1, deliver_after="1h")
            await write(outbox, 2)
            await write(outbox, 3, key="b")
            await handler.seen.reach(1)
            assert world.change("UPDATE outbox_event SET available_at = 0 WHERE status = 0 AND scheduled_at > 0") == 1
            await outbox.poll()
            await handler.seen.reach(3)
        assert handler.seen == [("b", 3), ("a", 1), ("a", 2)]

    world.run(scenario)


def test_rows_without_a_key_are_hot_and_of_a_key_the_first_is(world: World, colour: str) -> None:
    """Design 1.1"""

    async def scenario() -> None:
        handler = Handler()
        async with ordered(world, handler, colour=colour) as outbox:
            async with outbox.transaction() as tx:
                await outbox.write("Counted", "1", key="a")
                await outbox.write("Counted", "2", key="a")
                await outbox.write("Counted", "3")
                result = await tx.execute("SELECT locked_by FROM outbox_event ORDER BY position")
                owners = [row[0] for row in result]
            await handler.seen.reach(3)
            assert (await outbox.stats()).counters["hot_enqueued"] == 2
        assert [owner is not None for owner in owners] == [True, False, True]

    world.run(scenario)


def test_a_handler_may_write_the_next_event_of_its_own_key(world: World, colour: str) -> None:
    if world.is_async is not (colour == "async"):
        pytest.skip("write() is called in the outbox's own colour")

    async def scenario() -> None:
        seen = Collector()
        outbox = ordered(world)

        if world.is_async:

            @outbox.handler("Counted")
            async def chain(event: Any) -> None:
                number = number_of(event)
                if number < 5:
                    async with outbox.transaction():
                        await outbox.write("Counted", str(number + 1), key="a")
                seen.add(number)
        else:
            plain = outbox.plain

            @outbox.handler("Counted")
            def chain_sync(event: Any) -> None:
                number = number_of(event)
                if number < 5:
                    with plain.transaction():
                        plain.write("Counted", str(number + 1), key="a")
                seen.add(number)

        async with outbox:
            await write(outbox, 1)
            await seen.reach(5)
        assert seen == [1, 2, 3, 4, 5]

    world.run(scenario)


def test_the_rows_of_an_event_for_several_handlers_share_its_place(world: World, colour: str) -> None:
    """A failed one holds its key for all handlers."""

    async def scenario() -> None:
        seen, fails = Collector(), [1]

        def first(event: Any) -> None:
            if number_of(event) == 1 and fails and fails.pop():
                raise RuntimeError("once")
            seen.add(("first", number_of(event)))

        def second(event: Any) -> None:
            seen.add(("second", number_of(event)))

        outbox = ordered(world)
        for function in (first, second):
            outbox.handler("Counted", id=function.__name__)(function)
        async with outbox:
            await write(outbox, 1, 2)
            await seen.reach(4)
        assert seen == [("first", 1), ("second", 1), ("first", 2), ("second", 2)]

    world.run(scenario)


def test_a_hanging_handler_holds_its_key_and_no_other(world: World, colour: str) -> None:
    async def scenario() -> None:
        seen, goes_on = Collector(), Signal()

        def hang(event: Any) -> None:
            if number_of(event) == 1:
                goes_on.wait_here()
            seen.add((event.key, number_of(event)))

        if world.is_async and colour == "async":
            pytest.skip("an async handler that blocks its loop holds up everything")
        async with ordered(world, hang, colour="sync") as outbox:
            await write(outbox, 1, 2)
            await write(outbox, *range(10, 60), key="b")
            await seen.reach(50)
            assert of_key(seen, "a") == []
            goes_on.set()
            await seen.reach(52)
        assert of_key(seen, "a") == [1, 2]

    world.run(scenario)


def test_drain_and_poll_by_hand_keep_order(world: World, colour: str) -> None:
    async def scenario() -> None:
        handler = Handler()
        handler.fails = {2: 1}
        outbox = ordered(world, handler, colour=colour, retry_policy=Fixed(NEVER))
        await write(outbox, 1, 2, 3)
        await write(outbox, 10, 11, key="b")
        result = await outbox.drain()
        assert (result.delivered, result.retried, result.is_complete) == (3, 1, True)
        assert of_key(handler.tries, "a") == [1, 2]
        assert [row["locked_by"] for row in world.rows()] == [None] * 5, "what was behind it is given back"
        world.change("UPDATE outbox_event SET available_at = 0")
        assert await outbox.poll() == 2
        assert of_key(handler.seen, "a") == [1, 2, 3]

    world.run(scenario)


def test_an_event_that_cannot_be_decoded_blocks_its_key(world: World, colour: str) -> None:
    async def scenario() -> None:
        handler = Handler()
        outbox = ordered(world, handler, colour=colour)
        await write(outbox, 1, 2)
        await write(outbox, 3, key="b")
        world.change("UPDATE outbox_event SET headers = 'broken' WHERE position = 1")
        async with outbox:
            await handler.seen.reach(1)
            await world.until("SELECT count(*) = 1 FROM outbox_event WHERE status = 3")
            await world.until("SELECT count(*) = 0 FROM outbox_event WHERE locked_by IS NOT NULL")
            assert handler.seen == [("b", 3)]
            (blocked,) = (await outbox.stats()).blocked
            assert blocked.key == "a"

    world.run(scenario)


def test_nothing_of_an_ended_outbox_stays_leased(world: World, colour: str) -> None:
    """Promise 15"""

    async def scenario() -> None:
        started, goes_on = Signal(), Signal()

        def slow(event: Any) -> None:
            started.set()
            goes_on.wait_here()

        if world.is_async and colour == "async":
            pytest.skip("an async handler that blocks its loop holds up close(), too")
        outbox = ordered(world, slow, colour="sync", drain_timeout=0.05)
        async with outbox:
            await write(outbox, 1, 2, 3)
            await started.wait()
        leased = world.rows("SELECT position FROM outbox_event WHERE locked_by IS NOT NULL")
        assert [row["position"] for row in leased] == [1], "only what runs"
        assert world.statuses() == [EventStatus.NEW] * 3
        goes_on.set()

    world.run(scenario)
