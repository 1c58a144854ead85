"""Writer, dispatcher and poller wired by hand keep the promises of the whole outbox."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aftercommit import (
    AfterCommitHook,
    ColourMismatch,
    EventEnvelope,
    EventInterceptor,
    Fixed,
    InvalidOption,
    MetricsExporter,
    NoRetry,
    NotAwaited,
    NotInTransaction,
    OutboxPollerHandler,
    QueuedEvent,
    Source,
)
from aftercommit import components as by_hand
from tests.components.kit import Parts, plain
from tests.support import Collector, Signal, World

Scenario = Callable[[Parts], Awaitable[None]]


def play(world: World, scenario: Scenario) -> None:
    async def whole() -> None:
        parts = Parts(world)
        try:
            await scenario(parts)
        finally:
            await parts.close()

    world.run(whole)


class Counting(MetricsExporter):
    def __init__(self) -> None:
        self.hot = self.dropped = self.delayed = self.cold = 0

    def increment_hot_enqueued(self) -> None:
        self.hot += 1

    def increment_hot_dropped(self) -> None:
        self.dropped += 1

    def increment_hot_skipped_delayed(self) -> None:
        self.delayed += 1

    def increment_cold_enqueued(self) -> None:
        self.cold += 1


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, world: World) -> Iterator[World]:
    """Either colour, over SQLite and over PostgreSQL."""
    if request.param == "sqlite":
        yield world
        return
    made = World(world.name, world.folder, "postgres", request.getfixturevalue("postgres_url"))
    made.somebody.clear()
    yield made
    made.somebody.close()


# ---------------------------------------------------------------- writing and the hot lane


def test_a_committed_event_is_delivered_hot_and_done(place: World) -> None:
    """000 §18.2, TC-156"""

    async def scenario(parts: Parts) -> None:
        seen, sources, counted = Collector(), Collector(), Counting()
        parts.registry.register("UserCreated", seen.add)
        look = EventInterceptor.before(lambda event, queued: sources.add(queued.source))
        dispatcher = parts.dispatcher(metrics=counted, interceptors=[look])
        writer = parts.writer(parts.hook(dispatcher))
        async with await parts.manager.begin() as tx:
            event_id = await writer.write("UserCreated", '{"id": 123}')
            rest = await writer.write_all([EventEnvelope("UserCreated", payload_json="{}") for _ in range(2)])
            assert not seen
            await tx.commit()
        await place.until_settled(3)
        assert {event.event_id for event in seen} == {event_id, *rest}
        assert list(sources) == [Source.HOT] * 3
        assert (counted.hot, counted.dropped) == (3, 0)

    play(place, scenario)


def test_a_row_is_born_leased_to_the_dispatcher(world: World) -> None:
    """Nobody else can take what this process is about to deliver."""

    async def scenario(parts: Parts) -> None:
        entered, leave = Signal(), Signal()

        def slow(event: EventEnvelope) -> None:
            entered.set()
            leave.wait_here()

        parts.registry.register("UserCreated", slow)
        dispatcher = parts.dispatcher()
        await parts.write(parts.writer(parts.hook(dispatcher)), "UserCreated")
        await entered.wait()
        (row,) = world.rows()
        assert (row["locked_by"], row["lease_epoch"]) == (plain(dispatcher).line().owner, 1)
        other = Parts(world)
        assert await other.poller(Mine()).poll() == 0
        await other.close()
        leave.set()
        await world.until_settled(1)

    play(world, scenario)


def test_a_rollback_leaves_nothing(place: World) -> None:
    """000 §18.1"""

    async def scenario(parts: Parts) -> None:
        seen = Collector()
        parts.registry.register("UserCreated", seen.add)
        dispatcher = parts.dispatcher(hot_queue_capacity=1)
        writer = parts.writer(parts.hook(dispatcher))
        for _ in range(3):  # each gives its slot back
            async with await parts.manager.begin() as tx:
                await writer.write("UserCreated", "{}")
                await tx.rollback()
        assert place.rows() == []
        await parts.write(writer, "UserCreated")
        await seen.reach(1)

    play(place, scenario)


def test_without_a_transaction_nothing_is_written(world: World) -> None:
    """TC-059"""

    async def scenario(parts: Parts) -> None:
        assert not parts.context.is_transaction_active()
        with pytest.raises(NotInTransaction):
            parts.context.current_connection()
        with pytest.raises(NotInTransaction):
            await parts.writer().write("UserCreated", "{}")
        async with parts.manager.transaction():
            assert parts.context.is_transaction_active()

    play(world, scenario)


def test_without_a_hook_rows_are_left_to_others(world: World) -> None:
    """001 §10.6: for a poller elsewhere, or change data capture."""

    async def scenario(parts: Parts) -> None:
        for hook in (None, AfterCommitHook.NOOP):
            await parts.write(parts.writer(hook), "UserCreated")
        assert [(row["status"], row["locked_by"]) for row in world.rows()] == [(0, None)] * 2

    play(world, scenario)


def test_what_a_hook_raises_does_not_reach_the_writer(world: World) -> None:
    """001 §7.1"""

    async def scenario(parts: Parts) -> None:
        def fail(event: EventEnvelope) -> None:
            raise ValueError("no")

        await parts.write(parts.writer(fail), "UserCreated")
        assert world.statuses() == [0]

    play(world, scenario)


def test_an_event_whose_hook_fails_keeps_no_other_from_its_hook(world: World) -> None:
    async def scenario(parts: Parts) -> None:
        seen = Collector()

        def fail_first(event: EventEnvelope) -> None:
            seen.add(event.event_type)
            if len(seen) == 1:
                raise ValueError("no")

        writer = parts.writer(fail_first)
        async with parts.manager.transaction():
            await writer.write_all([EventEnvelope(name, payload_json="{}") for name in ("One", "Two")])
        assert list(seen) == ["One", "Two"]

    play(world, scenario)


def test_a_full_hot_lane_is_counted_and_the_poller_takes_the_rest(place: World) -> None:
    """000 §18.3, TC-157"""

    async def scenario(parts: Parts) -> None:
        entered, leave, counted = Signal(), Signal(), Counting()

        def slow(event: EventEnvelope) -> None:
            entered.set()
            leave.wait_here()

        parts.registry.register("UserCreated", slow)
        dispatcher = parts.dispatcher(worker_count=1, hot_queue_capacity=1, metrics=counted)
        writer = parts.writer(parts.hook(dispatcher))
        await parts.write(writer, "UserCreated")
        await entered.wait()
        await parts.write(writer, *["UserCreated"] * 3)
        assert (counted.hot, counted.dropped) == (2, 2)
        leave.set()
        await place.until_settled(2)
        assert sorted(place.statuses()) == [0, 0, 1, 1], "nobody looks into the table yet"
        await parts.poller(dispatcher).start()
        await place.until_settled(4)
        assert counted.cold == 2

    play(place, scenario)


def test_delayed_events_are_no_matter_of_the_hot_lane(world: World) -> None:
    """TC-158"""

    async def scenario(parts: Parts) -> None:
        seen, counted = Collector(), Counting()
        parts.registry.register("UserCreated", seen.add)
        dispatcher = parts.dispatcher(metrics=counted)
        writer = parts.writer(parts.hook(dispatcher))
        async with parts.manager.transaction():
            await writer.write(EventEnvelope("UserCreated", payload_json="{}", deliver_after="1h"))
            await writer.write("UserCreated", "{}")
        await world.until_settled(1)
        assert (counted.hot, counted.delayed, counted.dropped) == (1, 1, 0)

    play(world, scenario)


def test_a_context_of_ones_own_needs_the_four_methods_of_the_documents(world: World) -> None:
    async def scenario(parts: Parts) -> None:
        seen = Collector()
        parts.registry.register("UserCreated", seen.add)
        dispatcher = parts.dispatcher()

        class Mine:
            """Over a transaction that somebody else steers."""

            def __init__(self, around: Any) -> None:
                self.is_transaction_active = around.is_transaction_active
                self.current_connection = around.current_connection
                self.after_commit, self.after_rollback = around.after_commit, around.after_rollback

        kind: Any = by_hand.AsyncOutboxWriter if world.is_async else by_hand.OutboxWriter
        async with parts.manager.transaction() as tx:
            writer = kind(Mine(plain(tx)), parts.store, parts.hook(dispatcher))
            written = writer.write("UserCreated", "{}")
            event_id = await written if world.is_async else written
        await world.until_settled(1)
        assert [event.event_id for event in seen] == [event_id]

    play(world, scenario)


def test_what_a_context_of_ones_own_has_rolled_back_to_a_savepoint_is_not_delivered(world: World) -> None:
    async def scenario(parts: Parts) -> None:
        seen, commits, rollbacks = Collector(), list[Callable[[], None]](), list[Callable[[], None]]()
        parts.registry.register("UserCreated", seen.add)
        dispatcher = parts.dispatcher(hot_queue_capacity=2)

        class Mine:
            def __init__(self, around: Any) -> None:
                self.is_transaction_active = around.is_transaction_active
                self.current_connection = around.current_connection
                self.after_commit, self.after_rollback = commits.append, rollbacks.append

        kind: Any = by_hand.AsyncOutboxWriter if world.is_async else by_hand.OutboxWriter
        async with parts.manager.transaction() as tx:
            writer = kind(Mine(plain(tx)), parts.store, parts.hook(dispatcher))

            async def write() -> str:
                written = writer.write("UserCreated", "{}")
                return str(await written if world.is_async else written)

            kept = await write()
            async with await parts.manager.begin() as savepoint:
                await write()
                await savepoint.rollback()
            rollbacks[-1]()
        for callback in commits:
            callback()
        await world.until_settled(1)
        assert [event.event_id for event in seen] == [kept]
        await parts.write(parts.writer(parts.hook(dispatcher)), "UserCreated", "UserCreated")
        await world.until_settled(3)  # the slot of the one that is gone is free

    play(world, scenario)


def test_a_forgotten_await_is_noticed(tmp_path: Path) -> None:
    world = World("asyncio", tmp_path)

    async def scenario(parts: Parts) -> None:
        with pytest.raises(NotAwaited):
            async with parts.manager.transaction():
                parts.writer().write("UserCreated", "{}")
        assert world.rows() == []

    play(world, scenario)


# ---------------------------------------------------------------- retries, dead letters, closing


def test_failures_are_retried_and_die(place: World) -> None:
    """000 §18.4"""

    async def scenario(parts: Parts) -> None:
        seen = Collector()

        def fail(event: EventEnvelope) -> None:
            seen.add(event)
            raise ValueError("down")

        parts.registry.register("UserCreated", fail)
        dispatcher = parts.dispatcher(max_attempts=2, retry_policy=Fixed("1ms"))
        await parts.poller(dispatcher).start()
        await parts.write(parts.writer(parts.hook(dispatcher)), "UserCreated")
        await place.until_settled(1, status=3)
        (row,) = place.rows()
        assert (row["attempts"], len(seen)) == (2, 2)
        assert "down" in row["last_error"]

    play(place, scenario)


def test_an_event_without_a_listener_is_dead_at_once(world: World) -> None:
    """000 §12.4"""

    async def scenario(parts: Parts) -> None:
        parts.registry.register("Other", lambda event: None)
        dispatcher = parts.dispatcher()
        await parts.poller(dispatcher).start()
        await parts.write(parts.writer(parts.hook(dispatcher)), "UserCreated")
        await world.until_settled(1, status=3)

    play(world, scenario)


def test_after_close_nothing_is_taken_and_nothing_is_left_behind(place: World) -> None:
    """TC-124, TC-134, promise 15"""

    async def scenario(parts: Parts) -> None:
        seen = Collector()
        parts.registry.register("UserCreated", seen.add)
        dispatcher = parts.dispatcher(worker_count=1)
        poller = parts.poller(dispatcher)
        await poller.start()
        writer = parts.writer(parts.hook(dispatcher))
        await parts.write(writer, *["UserCreated"] * 10)
        await dispatcher.close()
        await dispatcher.close()
        assert place.statuses() == [1] * 10
        event = QueuedEvent(EventEnvelope("UserCreated", payload_json="{}"))
        assert not dispatcher.enqueue_hot(event)
        assert not dispatcher.enqueue_cold(event)
        assert not dispatcher.has_cold_queue_capacity()
        await parts.write(writer, "UserCreated")
        assert place.rows()[-1]["locked_by"] is None, "written all the same, and free"
        with pytest.raises(InvalidOption, match="closed"):
            await poller.start()

    play(place, scenario)


def test_after_a_crash_another_poller_takes_over(place: World) -> None:
    """What was born leased to a process that is gone is found when its lease is over."""

    async def scenario(parts: Parts) -> None:
        seen = Collector()
        parts.registry.register("UserCreated", seen.add)
        dead = Parts(place)
        dead.registry.register("UserCreated", lambda event: None)
        dispatcher = dead.dispatcher()
        writer = dead.writer(dead.hook(dispatcher))
        async with dead.manager.transaction():
            await writer.write("UserCreated", "{}")
            plain(dispatcher).line().hot_path.fill = lambda claimed: None  # it ends between commit and delivery
        assert place.rows()[0]["locked_by"] is not None
        taking_over = parts.dispatcher()
        poller = parts.poller(taking_over, owner_id="poller-2")
        assert await poller.poll() == 0
        place.change("UPDATE outbox_event SET lease_until = 0")
        assert await poller.poll() == 1
        await place.until_settled(1)
        assert len(seen) == 1
        await dead.close()

    play(place, scenario)


# ---------------------------------------------------------------- enqueueing by hand


@pytest.mark.parametrize("lane", ["enqueue_hot", "enqueue_cold"])
def test_an_event_that_nobody_has_leased_is_claimed_by_the_poller_before_it_runs(world: World, lane: str) -> None:
    """TC-122; a hook of one's own that enqueues."""

    async def scenario(parts: Parts) -> None:
        seen, answers = Collector(), Collector()
        parts.registry.register("UserCreated", seen.add)
        dispatcher = parts.dispatcher()
        writer = parts.writer(lambda event: answers.add(getattr(dispatcher, lane)(QueuedEvent(event))))
        await parts.write(writer, "UserCreated")
        assert list(answers) == [False], "without a poller it waits in the table"
        await parts.poller(dispatcher).start()
        await world.until_settled(1)
        await parts.write(writer, "UserCreated")
        await world.until_settled(2)
        assert (list(answers), len(seen)) == ([False, True], 2)

    play(world, scenario)


def test_a_commit_hook_of_ones_own_class_does_what_the_class_says(world: World) -> None:
    async def scenario(parts: Parts) -> None:
        seen = Collector()
        parts.registry.register("Wanted", seen.add)
        parts.registry.register("Other", seen.add)

        class Choosing(by_hand.DispatcherCommitHook):
            def on_commit(self, event: EventEnvelope) -> None:
                if event.event_type == "Wanted":
                    super().on_commit(event)

        counted = Counting()
        dispatcher = parts.dispatcher(metrics=counted)
        await parts.write(parts.writer(Choosing(plain(dispatcher))), "Wanted", "Other")
        assert (counted.hot, counted.dropped) == (0, 1), "nobody has leased it, and no poller runs"
        assert world.statuses() == [0, 0]

    play(world, scenario)


# ---------------------------------------------------------------- pollers with a handler of one's own


class Mine(OutboxPollerHandler):
    def __init__(self, *, takes: int = 1000) -> None:
        self.seen = Collector()
        self.takes = takes

    def handle(self, event: EventEnvelope, attempts: int) -> bool:
        if len(self.seen) >= self.takes:
            return False
        self.seen.add((event.event_type, attempts))
        return True


def test_a_handler_of_ones_own_takes_events_and_marks_them(place: World) -> None:
    async def scenario(parts: Parts) -> None:
        mine = Mine()
        poller = parts.poller(mine, owner_id="poller-1")
        ids = await parts.write(parts.writer(), "One", "Two", "Three", "Four")
        assert await poller.poll() == 4
        assert [name for name, _ in mine.seen] == ["One", "Two", "Three", "Four"]
        owners = {row["locked_by"] for row in place.rows()}
        assert len(owners) == 1
        assert owners.pop().startswith("poller-1/")
        assert poller.mark_done(ids[0])
        assert poller.mark_retry(ids[1], 0, ValueError("down"))
        assert poller.mark_dead(ids[2], "no use")
        assert not poller.mark_done(ids[0]), "its lease is given back"
        assert await poller.poll() == 0, "what is marked is written by the next cycle at the latest"
        rows = [(row["status"], row["attempts"], row["last_error"]) for row in place.rows()]
        assert rows == [(1, 0, None), (2, 1, "ValueError: down"), (3, 1, "no use"), (0, 0, None)]
        kept = [await parts.store.records.failures(each, None) for each in ids]
        told = [[(each.attempt, each.error_class, each.message) for each in failures] for failures in kept]
        assert told == [[], [(1, "ValueError", "down")], [(1, "", "no use")], []]
        assert await poller.poll() == 1
        assert mine.seen[-1] == ("Two", 1)

    play(place, scenario)


def test_what_is_never_marked_comes_again_when_its_lease_is_over(world: World) -> None:
    async def scenario(parts: Parts) -> None:
        mine = Mine()
        poller = parts.poller(mine)
        await parts.write(parts.writer(), "One")
        assert await poller.poll() == 1
        assert await poller.poll() == 0
        world.change("UPDATE outbox_event SET lease_until = 0")
        assert await poller.poll() == 1

    play(world, scenario)


def test_false_ends_the_cycle_and_the_rest_is_free_at_once(world: World) -> None:
    """001 §10.5, TC-170"""

    async def scenario(parts: Parts) -> None:
        mine = Mine(takes=1)
        poller = parts.poller(mine)
        await parts.write(parts.writer(), "One", "Two", "Three")
        await poller.poll()
        assert [name for name, _ in mine.seen] == ["One"]
        assert [row["locked_by"] is None for row in world.rows()] == [False, True, True]

    play(world, scenario)


def test_a_handler_without_capacity_is_not_asked(world: World) -> None:
    """TC-173"""

    async def scenario(parts: Parts) -> None:
        class Full(Mine):
            def has_capacity(self) -> bool:
                return False

        full = Full()
        poller = parts.poller(full)
        await parts.write(parts.writer(), "One")
        assert await poller.poll() == 0
        assert world.rows()[0]["lease_epoch"] == 0
        assert not full.seen

    play(world, scenario)


def test_a_handler_that_raises_gives_the_event_back(world: World) -> None:
    async def scenario(parts: Parts) -> None:
        def fail(event: EventEnvelope, attempts: int) -> bool:
            raise ValueError("no")

        poller = parts.poller(fail)
        await parts.write(parts.writer(), "One")
        with pytest.raises(ValueError, match="no"):
            await poller.poll()
        await poller.close()
        assert [(row["locked_by"], row["status"], row["attempts"]) for row in world.rows()] == [(None, 0, 0)]

    play(world, scenario)


def test_a_handler_of_ones_own_may_feed_a_dispatcher(place: World) -> None:
    """TC-161: the dispatcher goes on under the lease that the poller has."""

    async def scenario(parts: Parts) -> None:
        seen, sources = Collector(), Collector()

        def fail_once(event: EventEnvelope) -> None:
            seen.add(event)
            if len(seen) == 1:
                raise ValueError("once")

        parts.registry.register("UserCreated", fail_once)
        look = EventInterceptor.before(lambda event, queued: sources.add((queued.source, queued.attempts)))
        dispatcher = parts.dispatcher(interceptors=[look], retry_policy=Fixed("1h"))
        told = Collector()

        def pass_on(event: EventEnvelope, attempts: int) -> bool:
            told.add(attempts)
            return bool(dispatcher.enqueue_cold(QueuedEvent(event, Source.COLD, attempts)))

        poller = parts.poller(pass_on)
        await parts.write(parts.writer(), "UserCreated")
        assert await poller.poll() == 1
        await place.until_settled(1, status=2)
        place.change("UPDATE outbox_event SET available_at = 0")
        assert await poller.poll() == 1
        await place.until_settled(1)
        assert list(told) == [0, 1]
        assert list(sources) == [(Source.COLD, 0), (Source.COLD, 1)]

    play(place, scenario)


def test_an_undecodable_row_is_dead_and_never_handed_over(world: World) -> None:
    """001 §10.3"""

    async def scenario(parts: Parts) -> None:
        mine = Mine()
        poller = parts.poller(mine)
        await parts.write(parts.writer(), "One")
        world.change("UPDATE outbox_event SET headers = 'broken'")
        await poller.poll()
        assert world.statuses() == [3]
        assert not mine.seen

    play(world, scenario)


def test_recent_rows_are_left_alone(world: World) -> None:
    """TC-169"""

    async def scenario(parts: Parts) -> None:
        mine = Mine()
        await parts.write(parts.writer(), "One")
        assert await parts.poller(mine, skip_recent="1h").poll() == 0

    play(world, scenario)


# ---------------------------------------------------------------- what makes no sense


def test_parts_of_different_stores_and_colours_are_refused(world: World, tmp_path: Path) -> None:
    async def scenario(parts: Parts) -> None:
        other = Parts(World(world.name, tmp_path))
        dispatcher = other.dispatcher()
        with pytest.raises(InvalidOption, match="another store"):
            parts.writer(parts.hook(dispatcher))
        with pytest.raises(InvalidOption, match="another store"):
            parts.poller(dispatcher)
        wrong: Any = by_hand.OutboxWriter if world.is_async else by_hand.AsyncOutboxWriter
        with pytest.raises(ColourMismatch):
            wrong(parts.context, parts.store)
        await other.close()

    play(world, scenario)


def test_options_of_other_parts_are_refused(world: World) -> None:
    async def scenario(parts: Parts) -> None:
        with pytest.raises(InvalidOption, match="poll_interval"):
            parts.dispatcher(poll_interval="5s")
        with pytest.raises(InvalidOption, match="worker_count"):
            parts.poller(Mine(), worker_count=4)
        with pytest.raises(InvalidOption, match="owner_id"):
            parts.poller(Mine(), owner_id="")
        with pytest.raises(InvalidOption, match="takes no events"):
            parts.poller(7)
        with pytest.raises(InvalidOption, match="hook is 7"):
            parts.writer(7)

    play(world, scenario)


def test_a_dispatcher_has_one_poller(world: World) -> None:
    async def scenario(parts: Parts) -> None:
        parts.registry.register("UserCreated", lambda event: None)
        dispatcher = parts.dispatcher(retry_policy=NoRetry())
        first, second = parts.poller(dispatcher), parts.poller(dispatcher)
        await first.start()
        with pytest.raises(InvalidOption, match="already"):
            await second.start()
        await first.close()
        await second.start()
        await parts.write(parts.writer(), "UserCreated")
        assert await second.poll() == 1
        await world.until_settled(1)

    play(world, scenario)


def test_a_provider_of_connections_tells_which_store_it_is(world: World) -> None:
    async def scenario(_: Parts) -> None:
        provider = by_hand.DataSourceConnectionProvider(
            lambda: sqlite3.connect(world.path, check_same_thread=False, isolation_level=None)
        )
        assert isinstance(provider, by_hand.ConnectionProvider)
        store = (by_hand.detect_async_store if world.is_async else by_hand.detect_store)(provider)
        assert str(world.path) in store.where

    play(world, scenario)
