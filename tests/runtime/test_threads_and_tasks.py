"""What the runtimes start beside the caller, and what is left when they are closed."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest

from aftercommit.events.outcome import Ok
from aftercommit.runtime.process import boottime
from tests.delivery.faulty import (
    count_from_here,  # noqa: F401  (used by every test here)
    new_runtime,
    ours,
    with_runtime,
)
from tests.support import PATIENCE, Collector, Signal, World


def test_a_task_is_joined_when_it_ended(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        release, ran = Signal(), Signal()

        async def main() -> None:
            await release.wait()
            ran.set()

        task = runtime.spawn("something", main)
        assert not await task.join(0)
        release.set()
        assert await task.join(PATIENCE)
        assert ran.is_set
        assert await task.join(0), "again"

    with_runtime(world, scenario)


def test_a_task_that_joins_itself_does_not_wait_for_ever(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        answers, started = Collector(), Signal()
        task: list[Any] = []

        async def main() -> None:
            await started.wait()
            answers.add(await task[0].join(None))

        task.append(runtime.spawn("narcissus", main))
        started.set()
        await answers.reach(1)
        assert answers == [False]
        assert await task[0].join(PATIENCE)

    with_runtime(world, scenario)


def test_the_clock_never_goes_back(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        times = [runtime.clock() for _ in range(1000)]
        assert times == sorted(times)
        assert abs(runtime.clock() - boottime()) < PATIENCE

    with_runtime(world, scenario)


def test_close_ends_every_thread_and_may_be_repeated(world: World) -> None:
    async def scenario() -> None:
        runtime = new_runtime(world)

        async def on_a_loop() -> None:
            asyncio.get_running_loop()

        assert await runtime.call(lambda: None, context=copy_context()) == Ok(None)
        assert await runtime.call(on_a_loop, context=copy_context()) == Ok(None)
        assert ours()
        await runtime.close()
        assert ours() == set()
        await runtime.close()

    world.run(scenario)


def test_a_runtime_that_called_nothing_has_no_threads(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        assert ours() == set()

    with_runtime(world, scenario)


def test_a_stuck_sync_function_is_left_behind(world: World) -> None:
    async def scenario() -> None:
        runtime, entered, release = new_runtime(world), Signal(), Signal()

        def stuck() -> None:
            entered.set()
            release.wait_here()

        async def calling() -> None:
            await runtime.call(stuck, context=copy_context())

        task = runtime.spawn("caller", calling)
        await entered.wait()
        started = runtime.clock()
        await runtime.close()
        assert runtime.clock() - started < PATIENCE / 4
        assert not await task.join(0)
        release.set()
        assert await task.join(PATIENCE)

    world.run(scenario)


@pytest.mark.parametrize("count", [1, 3])
def test_sync_functions_under_asyncio_have_so_many_threads_and_no_more(tmp_path: Path, count: int) -> None:
    async def scenario(runtime: Any) -> None:
        entered, release = Collector(), Signal()

        def blocks() -> None:
            entered.add(threading.current_thread().name)
            release.wait_here()

        calls = [asyncio.ensure_future(runtime.call(blocks, context=copy_context())) for _ in range(count + 2)]
        await entered.reach(count)
        assert len(ours()) == count
        release.set()
        assert await asyncio.gather(*calls) == [Ok(None)] * (count + 2)
        assert len(set(entered)) == count

    with_runtime(World("asyncio", tmp_path), scenario, threads=count)


def test_an_idle_thread_is_used_again(tmp_path: Path) -> None:
    async def scenario(runtime: Any) -> None:
        for _ in range(10):
            await runtime.call(lambda: None, context=copy_context())
        assert ours() == {"aftercommit-handler-0"}

    with_runtime(World("asyncio", tmp_path), scenario)


def test_a_caller_that_was_cancelled_leaves_no_thread_counted_as_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its function still runs: the next one gets a thread of its own, and close() does not wait for the first."""

    async def scenario() -> None:
        runtime, entered, release = new_runtime(World("asyncio", tmp_path)), Signal(), Signal()
        joined: list[threading.Thread] = []

        def stuck() -> None:
            entered.set()
            release.wait_here()

        abandoned = asyncio.ensure_future(runtime.call(stuck, context=copy_context()))
        await entered.wait()
        abandoned.cancel()
        await asyncio.wait({abandoned})
        assert await asyncio.wait_for(runtime.call(lambda: 1, context=copy_context()), PATIENCE) == Ok(1)
        join = threading.Thread.join
        monkeypatch.setattr(
            threading.Thread, "join", lambda thread, *limit: joined.append(thread) or join(thread, *limit)
        )
        await runtime.close()
        assert joined == [], "it would wait a second for a thread that is not idle"
        release.set()

    World("asyncio", tmp_path).run(scenario)


def test_threads_of_a_forgotten_runtime_end(tmp_path: Path) -> None:
    """An outbox that is used on one loop after another forgets the runtimes of loops that are gone."""
    threads: list[threading.Thread] = []

    async def scenario() -> None:
        runtime = new_runtime(World("asyncio", tmp_path))
        await runtime.call(lambda: threads.append(threading.current_thread()), context=copy_context())

    World("asyncio", tmp_path).run(scenario)
    gc.collect()
    threads[0].join(PATIENCE)
    assert not threads[0].is_alive()


def test_closing_the_loop_thread_ends_what_handlers_left_on_it(tmp_path: Path) -> None:
    """Tasks are cancelled and async generators closed, on the loop that they live on."""

    async def scenario() -> None:
        runtime, cancelled, closed = new_runtime(World("threads", tmp_path)), Signal(), Signal()
        kept: list[Any] = []

        async def forgotten(started: asyncio.Event) -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        async def numbers() -> Any:
            try:
                yield 1
                yield 2
            finally:
                closed.set()

        async def untidy() -> None:
            started = asyncio.Event()
            kept.append(asyncio.get_running_loop().create_task(forgotten(started)))
            kept.append(numbers())
            await anext(kept[-1])
            await started.wait()

        assert await runtime.call(untidy, context=copy_context()) == Ok(None)
        await runtime.close()
        assert cancelled.is_set
        assert closed.is_set
        assert ours() == set()

    World("threads", tmp_path).run(scenario)


def test_a_program_of_threads_and_sync_handlers_never_loads_asyncio() -> None:
    program = """
import sys, threading
from aftercommit import Outbox
ended = threading.Event()
outbox = Outbox("sqlite://").register("Happened", lambda event: ended.set())
with outbox:
    with outbox.transaction():
        outbox.write("Happened", {})
    assert ended.wait(20)
print("asyncio" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split() == ["False"]
