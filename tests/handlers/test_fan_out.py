"""Several handlers for one event: a row for each, with attempts of its own; or one row, which remembers who is done."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import pytest

from aftercommit import Fixed, NoRetry, RetryAfter, WriterHook, any_event
from aftercommit.events.envelope import EventStatus
from tests.conftest import in_transactions
from tests.handlers.kit import Colouring, Deliberate, OrderPlaced, due_now, rows, write
from tests.support import Collector, Signal, World


@pytest.fixture
def world(every_world: World) -> World:
    """What is said here holds on every store."""
    return every_world


def handle(outbox: Any, colour: Colouring, seen: Collector, *names: str, **options: Any) -> None:
    for name in names:
        outbox.handler("A", id=name, **options)(colour(lambda event, name=name: seen.add(name)))


# ---------------------------------------------------------------- one row for each


def test_each_handler_gets_a_row_of_its_own_in_order(world: World, colour: Colouring) -> None:
    """D2, TC-321, TC-322: what is registered first, then typed, then generic."""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        outbox.handler(any_event, id="generic")(colour(lambda event: seen.add("generic")))
        handle(outbox, colour, seen, "one", "two")
        outbox.register("A", colour(lambda event: seen.add("listener")))
        async with outbox.transaction():
            event_id = await outbox.write("A", {}, key="k")
        assert [name for name, _ in rows(world)] == ["@listener", "one", "two", "generic"]
        assert {(row["event_id"], row["event_key"]) for row in world.rows()} == {(event_id, "k")}
        await outbox.drain()
        assert seen == ["listener", "one", "two", "generic"]
        assert {status for _, status in rows(world)} == {"DONE"}

    world.run(scenario)


def test_the_hot_path_has_a_lease_for_every_row(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(poll_interval="1h")
        handle(outbox, colour, seen, "one", "two", "three")
        async with outbox:
            await write(outbox, "A", "A")
            await seen.reach(6)
            await world.until_settled(6)
            counters = (await outbox.stats()).counters
            assert (counters["hot_enqueued"], counters.get("cold_enqueued", 0)) == (6, 0)
        assert sorted(seen) == ["one", "one", "three", "three", "two", "two"]
        assert {row["lease_epoch"] for row in world.rows()} == {1}

    world.run(scenario)


def test_a_full_hot_lane_takes_some_rows_of_an_event_and_leaves_the_others(world: World) -> None:
    async def scenario() -> None:
        seen, go = Collector(), Signal()
        outbox = world.outbox(poll_interval="1h", hot_queue_capacity=2, worker_count=1)
        handle(outbox, lambda function: lambda event: (go.wait_here(), function(event)), seen, "one", "two", "three")
        async with outbox:
            await write(outbox, "A")
            go.set()
            await seen.reach(3)
            await world.until_settled(3)
            counters = (await outbox.stats()).counters
            assert (counters["hot_enqueued"], counters["hot_dropped"], counters["cold_enqueued"]) == (2, 1, 1)

    world.run(scenario)


@in_transactions
def test_a_rollback_takes_all_rows_and_all_slots(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(poll_interval="1h", hot_queue_capacity=2)
        handle(outbox, colour, seen, "one", "two")
        async with outbox:
            for _ in range(3):
                with pytest.raises(Deliberate):
                    async with outbox.transaction():
                        await outbox.write("A", {})
                        raise Deliberate
            async with outbox.transaction():
                with pytest.raises(Deliberate):
                    async with outbox.transaction():  # a savepoint
                        await outbox.write("A", {})
                        raise Deliberate
            await write(outbox, "A")
            await seen.reach(2)
            await world.until_settled(2)
            assert (await outbox.stats()).counters["hot_enqueued"] == 2
        assert len(world.rows()) == 2

    world.run(scenario)


def test_hooks_see_an_event_once(world: World) -> None:
    class Keeps(WriterHook):
        def __init__(self) -> None:
            self.seen: list[tuple[str, int]] = []

        def after_write(self, events: Any) -> None:
            self.seen.append(("write", len(events)))

        def after_commit(self, events: Any) -> None:
            self.seen.append(("commit", len(events)))

        def after_rollback(self, events: Any) -> None:
            self.seen.append(("rollback", len(events)))

    async def scenario() -> None:
        hook = Keeps()
        outbox = world.outbox(writer_hook=hook)
        handle(outbox, lambda function: function, Collector(), "one", "two")
        async with outbox.transaction():
            assert len(await outbox.write_all([OrderPlaced(1), OrderPlaced(2)])) == 2
            await outbox.write("A", {})
        with pytest.raises(Deliberate):
            async with outbox.transaction():
                await outbox.write("A", {})
                raise Deliberate
        assert hook.seen == [
            *(("write", 2), ("write", 1), ("commit", 2), ("commit", 1)),
            *(("write", 1), ("rollback", 1)),
        ]

    world.run(scenario)


def test_handlers_fail_and_are_retried_apart(world: World, colour: Colouring) -> None:
    """D2: each has its own policy, attempts and end."""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(max_attempts=2, retry_policy=Fixed("1s"))

        def fail(event: Any) -> None:
            seen.add("bad")
            raise Deliberate("no")

        handle(outbox, colour, seen, "good")
        outbox.handler("A", id="bad")(colour(fail))
        outbox.handler("A", id="hopeless", retry=NoRetry())(colour(fail))
        await write(outbox, "A")
        await outbox.drain()
        assert rows(world) == [("good", "DONE"), ("bad", "RETRY"), ("hopeless", "DEAD")]
        due_now(world)
        await outbox.drain()
        assert rows(world) == [("good", "DONE"), ("bad", "DEAD"), ("hopeless", "DEAD")]
        assert [row["attempts"] for row in world.rows()] == [0, 2, 1]
        assert seen == ["good", "bad", "bad", "bad"]
        assert await outbox.dead.replay(world.rows()[1]["event_id"], handler_id="bad")
        assert rows(world)[1] == ("bad", "NEW")
        assert rows(world)[2] == ("hopeless", "DEAD")

    world.run(scenario)


# ---------------------------------------------------------------- ids


def test_a_renamed_handler_gets_its_old_rows_by_alias(world: World) -> None:
    """D6, F72"""

    async def scenario() -> None:
        seen, before, after = Collector(), world.outbox(), world.outbox()
        handle(before, lambda function: function, seen, "old", "other")
        await write(before, "A")
        handle(after, lambda function: function, seen, "new", aliases=["old"])
        handle(after, lambda function: function, seen, "other")
        await after.drain()
        assert seen == ["new", "other"]
        assert rows(world) == [("old", "DONE"), ("other", "DONE")]

    world.run(scenario)


def test_a_row_for_a_handler_that_nobody_has_is_dead_with_the_closest_name(world: World) -> None:
    """TC-382"""

    async def scenario() -> None:
        before, after = world.outbox(), world.outbox(unroutable_grace=0)
        handle(before, lambda function: function, Collector(), "send_recipt", "other")
        handle(after, lambda function: function, Collector(), "send_receipt", "other")
        await write(before, "A")
        await after.drain()
        assert rows(world) == [("send_recipt", "DEAD"), ("other", "DONE")]
        row = world.rows()[0]
        assert "the closest is 'send_receipt'" in row["last_error"]
        assert 'aliases=["send_recipt"]' in row["last_error"]
        assert row["attempts"] == 0

    world.run(scenario)


def test_an_event_that_nobody_takes_is_dead_with_the_closest_type(world: World) -> None:
    expected = {
        ("order.placd", None): r"takes order\.placd \(\w+\); the closest is 'order\.placed'",
        ("OrderPlced", None): r"takes OrderPlced \(\w+\); the closest is 'OrderPlaced'",
        ("Opend", "Account"): r"takes Account/Opend \(\w+\); the closest is 'Account/Opened'",
        ("Payd", None): r"takes Payd \(\w+\); the closest is 'Paid'",
        ("nothing like it", None): r"takes nothing like it \(\w+\)\n",
    }

    async def scenario() -> None:
        outbox = world.outbox(wiring="single_node")
        outbox.handler(OrderPlaced)(print)
        outbox.handler("order.placed", id="named")(print)
        outbox.handler("Opened", aggregate_type="Account", id="of accounts")(print)
        outbox.register("Paid", print)
        for event_type, aggregate_type in expected:
            async with outbox.transaction():
                await outbox.write(event_type, 1, aggregate_type=aggregate_type)
        assert (await outbox.drain()).dead == len(expected)
        for row, said in zip(world.rows(), expected.values(), strict=True):
            assert re.search(said, row["last_error"])

    world.run(scenario)


def test_an_old_process_does_not_kill_the_events_of_a_new_one(world: World) -> None:
    """A rolling deploy, with the options that an outbox has by itself."""

    async def scenario() -> None:
        seen, old, new = Collector(), world.outbox(), world.outbox()
        handle(old, lambda function: function, seen, "known")
        new.handler("B", id="unknown")(lambda _: seen.add("unknown"))
        async with new.transaction():
            await new.write("B", 1)
        assert (await old.drain()).deferred == 1
        due_now(world)
        assert (await new.drain()).delivered == 1
        assert seen == ["unknown"]

    world.run(scenario)


def test_with_a_grace_such_rows_wait_and_are_reported(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """In a fleet another process may have the handler."""

    async def scenario() -> None:
        seen = Collector()
        before = world.outbox()
        after, third = (world.outbox(poll_interval="1h") for _ in range(2))
        handle(before, lambda function: function, seen, "gone", "other")
        handle(after, lambda function: function, seen, "other")
        handle(third, lambda function: function, seen, "gone")
        await write(before, "A", "A")
        with caplog.at_level(logging.WARNING):
            async with after:
                await world.until_settled(2)
                await world.until("SELECT count(*) = 2 FROM outbox_event WHERE status = 2 AND locked_by IS NULL")
                assert (await after.stats()).unroutable == {"gone": 2}
        assert caplog.text.count("rows wait for gone, which this process does not have") == 1
        assert {row["attempts"] for row in world.rows()} == {0}
        due_now(world)
        await third.drain()
        assert seen.count("gone") == 2

    world.run(scenario)


# ---------------------------------------------------------------- one row for several


def test_without_handlers_at_writing_one_row_serves_all_and_remembers(world: World, colour: Colouring) -> None:
    """Those that succeeded do not run again."""

    async def scenario() -> None:
        seen, writer, outbox = Collector(), world.outbox(wiring="writer_only"), world.outbox()
        failures = [Deliberate("first"), Deliberate("second")]

        def fails(event: Any) -> None:
            seen.add("fails")
            if failures:
                raise failures.pop(0)

        handle(outbox, colour, seen, "one")
        outbox.handler("A", id="fails")(colour(fails))
        handle(outbox, colour, seen, "three")
        await write(writer, "A")
        await outbox.drain()
        row = world.rows()[0]
        assert (row["handler_id"], row["status"], row["attempts"]) == ("", EventStatus.RETRY, 1)
        assert json.loads(row["done_handlers"]) == ["one", "three"]
        assert row["last_error"] == "fails: Deliberate: first"
        for _ in range(2):
            due_now(world)
            await outbox.drain()
        assert seen == ["one", "fails", "three", "fails", "fails"]
        assert world.statuses() == [EventStatus.DONE]

    world.run(scenario)


def test_one_that_gives_up_does_not_end_the_others(world: World, colour: Colouring) -> None:
    """The row is dead when all have ended. Its replay runs all of them."""

    async def scenario() -> None:
        seen, writer, outbox = Collector(), world.outbox(wiring="writer_only"), world.outbox()
        is_hopeless, slow = [True], [RetryAfter("1s"), RetryAfter("1s")]

        def hopeless(event: Any) -> None:
            seen.add("hopeless")
            if is_hopeless:
                raise Deliberate("no")

        def later(event: Any) -> Any:
            seen.add("later")
            return slow.pop() if slow else None

        outbox.handler("A", id="hopeless", retry=NoRetry())(colour(hopeless))
        outbox.handler("A", id="later")(colour(later))
        await write(writer, "A")
        for _ in range(3):
            assert world.statuses() != [EventStatus.DEAD]
            await outbox.drain()
            due_now(world)
        row = world.rows()[0]
        assert (row["status"], json.loads(row["done_handlers"])) == (EventStatus.DEAD, ["later"])
        assert "hopeless: gave up at an earlier attempt" in row["last_error"]
        assert seen == ["hopeless", "later", "later", "later"]
        is_hopeless.clear()
        assert await outbox.dead.replay(row["event_id"])
        await outbox.drain()
        assert seen[4:] == ["hopeless", "later"]
        assert world.statuses() == [EventStatus.DONE]

    world.run(scenario)


def test_a_handler_that_is_renamed_meanwhile_is_not_run_again(world: World) -> None:
    async def scenario() -> None:
        seen, writer = Collector(), world.outbox(wiring="writer_only")
        before, after = world.outbox(), world.outbox()

        def fail(event: Any) -> None:
            raise Deliberate

        handle(before, lambda function: function, seen, "old")
        before.handler("A", id="fails")(fail)
        await write(writer, "A")
        await before.drain()
        handle(after, lambda function: function, seen, "new", aliases=["old"])
        handle(after, lambda function: function, seen, "fails")
        due_now(world)
        await after.drain()
        assert seen == ["old", "fails"]
        assert world.statuses() == [EventStatus.DONE]

    world.run(scenario)


def test_a_row_whose_only_handler_here_has_succeeded_is_done(world: World) -> None:
    """The other one was removed meanwhile."""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        handle(outbox, lambda function: function, seen, "one")
        await write(outbox, "A")
        world.change("""UPDATE outbox_event SET done_handlers = '["one"]', attempts = 1, status = 2""")
        await outbox.drain()
        assert (seen, world.statuses()) == ([], [EventStatus.DONE])

    world.run(scenario)


def test_a_hot_event_that_was_claimed_meanwhile_is_not_delivered_twice(world: World) -> None:
    """Promise 5, for each row of an event by itself."""

    async def scenario() -> None:
        seen, begun, release = Collector(), Signal(), Signal()
        # Who begins to listen for the others looks once, at any time: it would claim what the test is to claim.
        outbox = world.outbox(poll_interval="1h", worker_count=2, wakeups=False)

        def slow(event: Any) -> None:
            begun.set()
            release.wait_here()
            seen.add("slow")

        outbox.handler("A", id="slow")(slow)
        handle(outbox, lambda function: function, seen, "quick")
        async with outbox:
            assert await outbox.poll() == 0  # the look of the start is over, and claims nothing in between
            await write(outbox, "A")
            await begun.wait()
            await world.until_settled(1)
            world.change("UPDATE outbox_event SET lease_until = 1 WHERE status = 0")
            assert await outbox.poll() == 1
            release.set()
            await world.until_settled(2)
        assert sorted(seen) == ["quick", "slow"]

    world.run(scenario)
