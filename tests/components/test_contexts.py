"""Transaction contexts and managers, and the life of a poller, as the specification's own tests have them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from aftercommit import EventEnvelope, InvalidOption, NotInTransaction
from aftercommit import components as by_hand
from tests.components.kit import Parts, plain
from tests.components.test_by_hand import Mine, play
from tests.support import Collector, Signal, World


def test_a_context_has_the_connection_of_its_manager_and_nothing_after_the_end(world: World) -> None:
    """TC-060, TC-064, TC-071, TC-072, TC-073"""

    async def scenario(parts: Parts) -> None:
        context = parts.context
        for end in ("commit", "rollback", None):
            async with await parts.manager.begin() as tx:
                assert context.is_transaction_active()
                assert context.current_connection() is plain(tx).connection
                if end is not None:
                    await getattr(tx, end)()
                    await getattr(tx, end)()
            assert not context.is_transaction_active()
            with pytest.raises(NotInTransaction):
                context.current_connection()

    play(world, scenario)


def test_only_the_callbacks_of_what_happened_are_called(world: World) -> None:
    """TC-061, TC-062, TC-063"""

    async def scenario(parts: Parts) -> None:
        for end, told in (("commit", [1, 10]), ("rollback", [-1])):
            called = Collector()
            async with await parts.manager.begin() as tx:
                parts.context.after_commit(lambda: called.add(1))  # noqa: B023
                parts.context.after_commit(lambda: called.add(10))  # noqa: B023
                parts.context.after_rollback(lambda: called.add(-1))  # noqa: B023
                assert not called
                await getattr(tx, end)()
            assert list(called) == told

    play(world, scenario)


def test_a_transaction_is_nobody_elses(world: World) -> None:
    """TC-065"""

    async def scenario(parts: Parts) -> None:
        seen = Collector()

        def look() -> None:
            seen.add(parts.context.is_transaction_active())

        async def look_in_a_task() -> None:
            look()

        async with parts.manager.transaction():
            assert parts.context.is_transaction_active()
            if world.is_async:
                await asyncio.create_task(look_in_a_task())
            else:
                other = threading.Thread(target=look)
                other.start()
                other.join()
            await seen.reach(1)
        assert list(seen) == [False]

    play(world, scenario)


def test_what_is_missing_is_refused(world: World) -> None:
    """TC-075, TC-160"""

    async def scenario(parts: Parts) -> None:
        nothing: Any = None
        writer: Any = by_hand.AsyncOutboxWriter if world.is_async else by_hand.OutboxWriter
        manager: Any = by_hand.AsyncTransactionManager if world.is_async else by_hand.TransactionManager
        dispatcher: Any = by_hand.AsyncOutboxDispatcher if world.is_async else by_hand.OutboxDispatcher
        for make in (
            lambda: writer(nothing, parts.store),
            lambda: writer(parts.context, nothing),
            lambda: writer(parts.context, world.url),
            lambda: manager(nothing, parts.context),
            lambda: manager(parts.store, nothing),
            lambda: dispatcher(parts.store, nothing),
            lambda: by_hand.DispatcherCommitHook(nothing),
        ):
            with pytest.raises(InvalidOption):
                make()

    play(world, scenario)


def test_a_poller_starts_once_and_ends_once(world: World) -> None:
    """TC-177; unlike there, it may start again after close()."""

    async def scenario(parts: Parts) -> None:
        mine = Mine()
        poller = parts.poller(mine)
        await poller.close()
        await poller.start()
        await poller.start()
        await poller.close()
        await poller.close()
        await parts.write(parts.writer(), "One")
        await poller.start()
        await mine.seen.reach(1)

    play(world, scenario)


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"poll_interval": 0}, {"skip_recent": -1}])
def test_options_that_make_no_sense_are_refused(world: World, wrong: dict[str, Any]) -> None:
    """TC-179"""

    async def scenario(parts: Parts) -> None:
        with pytest.raises(InvalidOption):
            parts.poller(Mine(), **wrong)

    play(world, scenario)


def test_no_more_is_claimed_than_the_cold_lane_holds(world: World) -> None:
    """TC-172"""

    async def scenario(parts: Parts) -> None:
        entered, leave = Signal(), Signal()

        def slow(event: EventEnvelope) -> None:
            entered.set()
            leave.wait_here()

        parts.registry.register("UserCreated", slow)
        dispatcher = parts.dispatcher(worker_count=1, cold_queue_capacity=2)
        poller = parts.poller(dispatcher)
        await parts.write(parts.writer(), *["UserCreated"] * 5)
        await poller.poll()
        await entered.wait()
        await poller.poll()
        held = [row["locked_by"] is not None for row in world.rows()]
        assert sum(held) <= 3, "one that runs, and two that wait"
        assert held[-1] is False
        leave.set()
        await poller.start()
        await world.until_settled(5)

    play(world, scenario)
