"""Async functions in a task of the runtime's own: they run there step by step, and harm nobody but themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from typing import Any

import pytest

from aftercommit.events.outcome import Ok, Raised, Result
from aftercommit.runtime.aio import AsyncioRuntime
from tests.support import PATIENCE

here: ContextVar[str] = ContextVar("here", default="outside")


class Workers:
    """Some tasks of a runtime, each of which makes the calls that it is told to, one after the other."""

    def __init__(self, runtime: AsyncioRuntime, count: int = 2) -> None:
        self.runtime = runtime
        self.orders: list[asyncio.Queue[Any]] = [asyncio.Queue() for _ in range(count)]
        self.tasks = [runtime.spawn(f"worker-{number}", self._main(number)) for number in range(count)]

    def _main(self, number: int) -> Callable[[], Coroutine[Any, Any, None]]:
        async def main() -> None:
            while (order := await self.orders[number].get()) is not None:
                function, answer = order
                answer.set_result(await self.runtime.call(function, context=copy_context()))

        return main

    def ask(self, function: Callable[[], Any], number: int = 0) -> asyncio.Future[Result]:
        answer = asyncio.get_running_loop().create_future()
        self.orders[number].put_nowait((function, answer))
        return answer

    async def call(self, function: Callable[[], Any], number: int = 0) -> Result:
        return await asyncio.wait_for(self.ask(function, number), PATIENCE)

    async def end(self) -> None:
        for orders, task in zip(self.orders, self.tasks, strict=True):
            orders.put_nowait(None)
            assert await task.join(PATIENCE)


def play(scenario: Callable[[Workers], Coroutine[Any, Any, None]], count: int = 2) -> None:
    async def main() -> None:
        workers = Workers(AsyncioRuntime(1), count)
        await scenario(workers)
        await workers.end()

    asyncio.run(main())


async def nothing() -> str:
    return "done"


async def cancels_itself() -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return "done"


async def cancels_itself_and_waits() -> None:
    await cancels_itself()
    await asyncio.sleep(3600)


async def swallows_its_own_cancellation() -> str:
    try:
        await cancels_itself_and_waits()
    except asyncio.CancelledError:
        return "went on"
    raise AssertionError("it was not cancelled")


async def times_out() -> None:
    async with asyncio.timeout(0.001):
        await asyncio.sleep(3600)


async def leaves_a_request_behind() -> str:
    """As libraries did that know nothing of `uncancel`."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_soon(task.cancel)
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        return "timed out"
    raise AssertionError("it was not cancelled")


def test_a_function_runs_in_the_task_that_calls_it_from_its_first_step_to_its_last() -> None:
    """What a timeout or a task group remembers in the first step is the task that is to be cancelled later."""

    async def scenario(workers: Workers) -> None:
        async def who() -> list[Any]:
            first = asyncio.current_task()
            await asyncio.sleep(0)
            return [first, asyncio.current_task()]

        result = await workers.call(who)
        assert isinstance(result, Ok)
        first, last = result.value
        assert first is last
        assert first.get_name() == "worker-0"

    play(scenario)


def test_each_call_has_a_context_of_its_own_in_every_step() -> None:
    async def scenario(workers: Workers) -> None:
        async def changes() -> tuple[str, str]:
            before = here.get()
            here.set("inside")
            await asyncio.sleep(0)
            return before, here.get()

        assert await workers.call(changes) == Ok(("outside", "inside"))
        assert await workers.call(changes) == Ok(("outside", "inside"))
        assert here.get() == "outside"

    play(scenario)


@pytest.mark.parametrize(
    ("function", "ends"),
    [
        (cancels_itself, Ok("done")),
        (cancels_itself_and_waits, asyncio.CancelledError),
        (swallows_its_own_cancellation, Ok("went on")),
        (leaves_a_request_behind, Ok("timed out")),
        (times_out, TimeoutError),
    ],
)
def test_a_function_that_cancels_its_task_ends_itself_and_not_the_task(function: Any, ends: Any) -> None:
    """Promise 11."""

    async def scenario(workers: Workers) -> None:
        for _ in range(3):
            result = await workers.call(function)
            if isinstance(ends, Ok):
                assert result == ends
            else:
                assert isinstance(result, Raised)
                assert isinstance(result.error, ends)
                assert not result.interrupted
        assert await workers.call(nothing) == Ok("done")

    play(scenario)


def test_an_interrupt_ends_the_function_and_not_its_task() -> None:
    async def scenario(workers: Workers) -> None:
        answers = [workers.ask(_waits, number) for number in (0, 1)]
        while len(workers.runtime._running) < 2:
            await asyncio.sleep(0)
        workers.runtime.interrupt()
        for answer in answers:
            result = await asyncio.wait_for(answer, PATIENCE)
            assert isinstance(result, Raised)
            assert result.interrupted
        assert await workers.call(nothing, 0) == Ok("done")
        assert await workers.call(nothing, 1) == Ok("done")

    play(scenario)


async def _waits() -> None:
    await asyncio.sleep(3600)


@pytest.mark.parametrize("swallows", [False, True])
def test_a_loop_that_ends_ends_the_tasks_whatever_their_functions_do(swallows: bool) -> None:
    """asyncio.run cancels every task and waits for it: one that goes on would hold the program for ever."""
    ended: list[str] = []

    async def stubborn() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.append("cancelled")
            if not swallows:
                raise

    async def main() -> None:
        workers = Workers(AsyncioRuntime(1))
        workers.ask(stubborn)
        while not workers.runtime._running:
            await asyncio.sleep(0)

    asyncio.run(main())
    assert ended == ["cancelled"]


def test_functions_that_wait_for_nothing_let_others_run() -> None:
    """Else a drain of a full lane would stop the whole program for as long."""

    async def scenario(workers: Workers) -> None:
        runtime, turns, calls = workers.runtime, 0, 50

        async def busy() -> int:
            until = runtime.clock() + 0.002
            while runtime.clock() < until:
                pass
            return turns

        async def somebody_else() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async def many() -> list[int]:
            seen = []
            for _ in range(calls):
                result = await runtime.call(busy, context=copy_context())
                assert isinstance(result, Ok)
                seen.append(result.value)
            return seen

        other = asyncio.create_task(somebody_else())
        done: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()

        async def main() -> None:
            done.set_result(await many())

        task = runtime.spawn("drains", main)
        seen = await asyncio.wait_for(done, PATIENCE)
        other.cancel()
        assert await task.join(PATIENCE)
        assert len(set(seen)) == calls, "somebody else has run between every two calls"

    play(scenario)
