"""Where workers park: bounded, fair, and without a timed wait on either lane."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aftercommit.delivery.lanes import Lanes
from aftercommit.delivery.leases import Held, Holding
from aftercommit.runtime.threads import ThreadRuntime, run
from tests.delivery.faulty import claimed, lanes_of, with_runtime
from tests.support import PATIENCE, Collector, Signal, World


def holding(runtime: Any, **fields: Any) -> Holding:
    row = claimed(runtime, **fields)
    return Held(runtime).admit([row])[0]


def put_hot(lanes: Lanes[Holding], item: Holding) -> bool:
    return lanes.reserve(1) == 1 and lanes.fill(item)


def put_cold(lanes: Lanes[Holding], item: Holding) -> bool:
    return lanes.offer([item])


@pytest.mark.parametrize("lane", ["hot", "cold"])
def test_a_parked_worker_is_woken_by_either_lane(world: World, lane: str) -> None:
    async def scenario(runtime: Any) -> None:
        lanes, taken, parked = lanes_of(runtime), Collector(), Signal()
        _signal_looks(lanes, parked)

        async def worker() -> None:
            taken.add(await lanes.take())

        task = runtime.spawn("worker", worker)
        await parked.wait()
        item = holding(runtime)
        assert put_hot(lanes, item) if lane == "hot" else lanes.offer([item])
        await taken.reach(1)
        assert taken == [item]
        assert await task.join(PATIENCE)

    with_runtime(world, scenario)


def _signal_looks(lanes: Lanes[Holding], parked: Signal) -> None:
    look = lanes._next

    def watched() -> tuple[Holding | None, ...]:
        parked.set()
        return look()

    lanes._next = watched  # type: ignore[method-assign]


def test_a_taker_never_waits_with_a_timeout(world: World) -> None:
    """The latency is that of a hand-off: whoever waits sleeps until it is woken, on both lanes."""

    async def scenario(runtime: Any) -> None:
        lanes, timeouts = lanes_of(runtime), []
        wait_for = lanes._monitor.wait_for

        async def watched(predicate: Any, timeout: float | None = None) -> Any:
            timeouts.append(timeout)
            return await wait_for(predicate, timeout)

        lanes._monitor.wait_for = watched  # type: ignore[method-assign]
        taken = Collector()

        async def worker() -> None:
            while (item := await lanes.take()) is not None:
                lanes.finished(item)
                taken.add(item)

        tasks = [runtime.spawn(f"worker-{number}", worker) for number in range(2)]
        for number in range(6):
            put_hot(lanes, holding(runtime)) if number % 2 else lanes.offer([holding(runtime)])
            await taken.reach(number + 1)
        lanes.close()
        for task in tasks:
            assert await task.join(PATIENCE)
        assert len(timeouts) == 8
        assert set(timeouts) == {None}

    with_runtime(world, scenario)


def test_two_hot_to_one_cold_and_the_rest_in_order(world: World) -> None:
    """TC-142, TC-143, C2"""

    async def scenario(runtime: Any) -> None:
        lanes = lanes_of(runtime)
        names = {}
        for number in range(5):
            for lane, put in (("h", put_hot), ("c", put_cold)):
                item = holding(runtime)
                names[item] = f"{lane}{number}"
                assert put(lanes, item)
        order = [names[await lanes.take()] for _ in range(10)]
        assert order == ["h0", "h1", "c0", "h2", "h3", "c1", "h4", "c2", "c3", "c4"]

    with_runtime(world, scenario)


def test_the_hot_lane_is_bounded_by_what_waits_and_what_is_reserved(world: World) -> None:
    """TC-122, TC-123"""

    async def scenario(runtime: Any) -> None:
        lanes = lanes_of(runtime, hot=3)
        assert lanes.reserve(2) == 2
        assert put_hot(lanes, holding(runtime))
        assert lanes.reserve(1) == 0
        assert lanes.hot_depth == 1
        lanes.cancel(1)
        assert lanes.reserve(5) == 1

    with_runtime(world, scenario)


def test_the_cold_lane_is_bounded(world: World) -> None:
    """TC-125"""

    async def scenario(runtime: Any) -> None:
        lanes = lanes_of(runtime, cold=2)
        assert [lanes.offer([holding(runtime, is_suspect=bool(n))]) for n in range(3)] == [True, True, False]
        assert (lanes.cold_depth, lanes.cold_room) == (2, 0)
        await lanes.take()
        assert lanes.cold_room == 1

    with_runtime(world, scenario)


def test_a_closed_channel_takes_nothing_and_gives_what_it_has(world: World) -> None:
    """TC-124"""

    async def scenario(runtime: Any) -> None:
        lanes = lanes_of(runtime)
        hot, cold = holding(runtime), holding(runtime)
        assert lanes.reserve(2) == 2
        assert lanes.fill(hot)
        assert lanes.offer([cold])
        lanes.close()
        lanes.close()
        assert not lanes.fill(holding(runtime)), "the slot was reserved before, and is given back"
        assert not lanes.offer([holding(runtime)])
        assert (lanes.reserve(1), lanes.cold_room) == (0, 0)
        assert [await lanes.take(), await lanes.take(), await lanes.take()] == [hot, cold, None]

    with_runtime(world, scenario)


def test_closing_wakes_every_parked_worker(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        lanes, ended = lanes_of(runtime), Collector()

        async def worker() -> None:
            ended.add(await lanes.take())

        tasks = [runtime.spawn(f"worker-{number}", worker) for number in range(3)]
        lanes.close()
        await ended.reach(3)
        assert ended == [None] * 3
        for task in tasks:
            assert await task.join(PATIENCE)

    with_runtime(world, scenario)


def test_quiet_is_when_nothing_waits_and_nothing_runs(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        lanes = lanes_of(runtime)
        assert await lanes.quiet(0), "from the start"
        lanes.offer([holding(runtime)])
        assert not await lanes.quiet(0.001), "it waits"
        item = await lanes.take()
        assert not await lanes.quiet(0.001), "it runs"
        lanes.finished(item)
        assert await lanes.quiet(0)

    with_runtime(world, scenario)


def test_whoever_waits_for_quiet_hears_of_it(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        lanes, watching = lanes_of(runtime), Signal()
        lanes.offer([holding(runtime)])
        item = await lanes.take()
        answers = Collector()

        async def watch() -> None:
            watching.set()
            answers.add(await lanes.quiet(None))

        task = runtime.spawn("watcher", watch)
        await watching.wait()
        lanes.finished(item)
        await answers.reach(1)
        assert answers == [True]
        assert await task.join(PATIENCE)

    with_runtime(world, scenario)


def test_whoever_waits_for_quiet_hears_of_it_when_the_lanes_are_cleared(world: World) -> None:
    """A drain() beside a close() that gives everything back must not wait for ever."""

    async def scenario(runtime: Any) -> None:
        lanes, answers, watching = lanes_of(runtime), Collector(), Signal()
        lanes.offer([holding(runtime)])
        quiet = lanes._watchers.wait_for

        async def watched(predicate: Any, timeout: float | None = None) -> Any:
            def asked() -> Any:
                watching.set()
                return predicate()

            return await quiet(asked, timeout)

        lanes._watchers.wait_for = watched  # type: ignore[method-assign]

        async def watch() -> None:
            answers.add(await lanes.quiet(None))

        task = runtime.spawn("watcher", watch)
        await watching.wait()
        assert len(lanes.clear()) == 1
        await answers.reach(1)
        assert answers == [True]
        assert await task.join(PATIENCE)

    with_runtime(world, scenario)


def test_room_is_announced_once_when_there_is_enough(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        calls = Collector()
        lanes = lanes_of(runtime, cold=4, on_room=lambda: calls.add(None))
        for _ in range(4):
            lanes.offer([holding(runtime)])
        lanes.want_room(2)
        await lanes.take()
        assert calls == []
        await lanes.take()
        assert calls == [None]
        await lanes.take()
        assert calls == [None]

    with_runtime(world, scenario)


def test_room_that_came_before_it_was_wanted_is_announced_at_once(world: World) -> None:
    """The workers may have emptied the lane between the look that found it full and this wish: nobody would take any
    more, and the poller would sleep for its whole interval."""

    async def scenario(runtime: Any) -> None:
        calls = Collector()
        lanes = lanes_of(runtime, cold=4, on_room=lambda: calls.add(None))
        lanes.want_room(2)
        assert calls == [None]
        lanes.offer([holding(runtime)])
        await lanes.take()
        assert calls == [None], "and not again"
        lanes.close()
        lanes.want_room(2)
        assert calls == [None], "a closed lanes has no room"

    with_runtime(world, scenario)


def test_one_suspect_runs_at_a_time_and_others_go_on(world: World) -> None:
    """Promise 4a"""

    async def scenario(runtime: Any) -> None:
        lanes = lanes_of(runtime)
        suspects = [holding(runtime, is_suspect=True, abandoned=1) for _ in range(2)]
        innocent = holding(runtime)
        for item in (*suspects, innocent):
            lanes.offer([item])
        first = await lanes.take()
        assert first is suspects[0]
        assert await lanes.take() is innocent
        lanes.close()
        assert await lanes.take() is None, "the second suspect waits for the first, and this worker may go"
        lanes.finished(first)
        assert await lanes.take() is suspects[1]

    with_runtime(world, scenario)


@pytest.mark.parametrize("lives", [False, True], ids=["ends", "lives"])
def test_a_suspect_that_ends_or_lives_for_long_wakes_a_worker_for_the_next(world: World, lives: bool) -> None:
    async def scenario(runtime: Any) -> None:
        lanes, taken = lanes_of(runtime), Collector()
        first, second = (holding(runtime, is_suspect=True, abandoned=1) for _ in range(2))
        lanes.offer([first])
        lanes.offer([second])
        assert await lanes.take() is first
        parked = Signal()
        _signal_looks(lanes, parked)

        async def worker() -> None:
            taken.add(await lanes.take())

        task = runtime.spawn("worker", worker)
        await parked.wait()
        if lives:
            first.began_at = 0.0
            lanes.let_pass(0.0)
        else:
            lanes.finished(first)
        await taken.reach(1)
        assert taken == [second]
        assert await task.join(PATIENCE)

    with_runtime(world, scenario)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.sampled_from(["reserve", "fill", "cancel", "offer", "take", "finish"]), max_size=60),
    hot=st.integers(1, 3),
    cold=st.integers(1, 3),
)
def test_the_lanes_never_hold_more_than_their_capacity_and_lose_nothing(steps: list[str], hot: int, cold: int) -> None:
    """Promise 9, as an invariant over any order of steps."""
    runtime = ThreadRuntime()
    lanes = lanes_of(runtime, hot=hot, cold=cold)
    reserved, waiting, running = 0, set[Holding](), list[Holding]()
    for step in steps:
        item = holding(runtime)
        if step == "reserve":
            reserved += lanes.reserve(2)
        elif step == "fill" and reserved:
            reserved -= 1
            assert lanes.fill(item)
            waiting.add(item)
        elif step == "cancel" and reserved:
            reserved -= 1
            lanes.cancel(1)
        elif step == "offer" and lanes.offer([item]):
            waiting.add(item)
        elif step == "take" and waiting:
            taken = run(lanes.take())
            assert taken is not None
            waiting.remove(taken)
            running.append(taken)
        elif step == "finish" and running:
            lanes.finished(running.pop())
        assert lanes.hot_depth + reserved <= hot
        assert lanes.cold_depth <= cold
        assert lanes.hot_depth + lanes.cold_depth == len(waiting)
        assert lanes.is_quiet == (not waiting and not running)
    assert set(lanes.clear()) == waiting
