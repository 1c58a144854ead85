"""call(): users' functions of every shape and colour are run to their end, and nothing but a Result comes back."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar, copy_context
from typing import Any

import pytest

from aftercommit.events.ids import EventId, EventIds
from aftercommit.events.outcome import Ok, Raised
from aftercommit.runtime import portal
from tests.delivery.faulty import (
    count_from_here,  # noqa: F401  (used by every test here)
    ours,
    with_runtime,
)
from tests.support import PATIENCE, Signal, World

mark: ContextVar[str] = ContextVar("mark", default="none")


# ---------------------------------------------------------------- shapes


def plain(event: object) -> object:
    return ("ran", event)


async def async_plain(event: object) -> object:
    await _suspend()
    return ("ran", event)


async def _suspend() -> None:
    """Give the loop a turn: proves that there is one."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_soon(future.set_result, None)
    await future


class Awaited:
    """An awaitable that is no coroutine."""

    def __init__(self, event: object) -> None:
        self.event = event

    def __await__(self) -> Generator[Any, None, object]:
        return async_plain(self.event).__await__()


class Methods:
    def bound(self, event: object) -> object:
        return plain(event)

    async def async_bound(self, event: object) -> object:
        return await async_plain(event)

    @staticmethod
    def static(event: object) -> object:
        return plain(event)

    @staticmethod
    async def async_static(event: object) -> object:
        return await async_plain(event)

    @classmethod
    def of_class(cls, event: object) -> object:
        return plain(event)

    @classmethod
    async def async_of_class(cls, event: object) -> object:
        return await async_plain(event)


class Caller:
    def __call__(self, event: object) -> object:
        return plain(event)


class AsyncCaller:
    async def __call__(self, event: object) -> object:
        return await async_plain(event)


class UnhashableCaller(Caller):
    __hash__ = None  # type: ignore[assignment]


class UnhashableAsyncCaller(AsyncCaller):
    __hash__ = None  # type: ignore[assignment]


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Any:
        return function(*arguments)

    return wrapper


def decorated_async(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(function)
    async def wrapper(*arguments: Any) -> Any:
        return await function(*arguments)

    return wrapper


async def forgot_to_await(event: object) -> object:
    return async_plain(event)


async def returns_a_task(event: object) -> object:
    return asyncio.get_running_loop().create_task(async_plain(event))


def returns_an_awaitable(event: object) -> Awaited:
    return Awaited(event)


def two_arguments(first: object, event: object) -> object:
    return plain(event)


SHAPES: dict[str, Callable[..., Any]] = {
    "def": plain,
    "async def": async_plain,
    "partial of def": functools.partial(two_arguments, "first"),
    "partial of async def": functools.partial(async_plain),
    "partial of an async object": functools.partial(AsyncCaller()),
    "object": Caller(),
    "object with async __call__": AsyncCaller(),
    "unhashable object": UnhashableCaller(),
    "unhashable object with async __call__": UnhashableAsyncCaller(),
    "lambda": lambda event: ("ran", event),
    "lambda that returns a coroutine": lambda event: async_plain(event),  # noqa: PLW0108
    "function that returns an awaitable": returns_an_awaitable,
    "bound method": Methods().bound,
    "async bound method": Methods().async_bound,
    "static method": Methods.static,
    "async static method": Methods.async_static,
    "class method": Methods.of_class,
    "async class method": Methods.async_of_class,
    "decorated def": decorated(plain),
    "async def behind a sync decorator": decorated(async_plain),
    "decorated async def": decorated_async(async_plain),
    "async def that forgot its await": forgot_to_await,
    "async def that returns a task": returns_a_task,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_callable_runs_to_its_end(world: World, shape: str) -> None:
    """F59: what looks sync and returns an awaitable is awaited, never taken for a success that has not run."""

    async def scenario(runtime: Any) -> None:
        result = await runtime.call(SHAPES[shape], "event", context=copy_context())
        assert result == Ok(("ran", "event"))

    with_runtime(world, scenario)


@pytest.mark.parametrize("returned", [EventId("7"), EventIds([EventId("7")])], ids=["one", "many"])
def test_a_function_may_return_the_ids_of_what_it_wrote(world: World, returned: Any, colour: Any) -> None:
    """They can be awaited, and that comes to an end."""

    async def scenario(runtime: Any) -> None:
        result = await runtime.call(colour(lambda event: returned), "event", context=copy_context())
        assert result == Ok(returned)

    with_runtime(world, scenario)


def test_several_arguments_and_builtins(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        assert await runtime.call(max, 3, 7, context=copy_context()) == Ok(7)
        assert await runtime.call(lambda: None, context=copy_context()) == Ok(None)

    with_runtime(world, scenario)


# ---------------------------------------------------------------- errors


ERRORS: tuple[type[BaseException], ...] = (
    ValueError,
    StopIteration,
    StopAsyncIteration,
    GeneratorExit,
    SystemExit,
    KeyboardInterrupt,
    asyncio.CancelledError,
    asyncio.TimeoutError,
    BaseException,
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_any_error_comes_back_raised_and_everything_lives_on(
    world: World, colour: Callable[..., Any], error: type[BaseException]
) -> None:
    """F57, TC-480. StopIteration raised through a future would never return; SystemExit would end the loop thread."""
    problem = error("deliberate")

    def broken() -> None:
        raise problem

    async def scenario(runtime: Any) -> None:
        result = await _beside(runtime, colour(broken))
        if error in (StopIteration, StopAsyncIteration) and result != Raised(problem):
            # Python itself turns these into a RuntimeError where they leave a coroutine.
            assert isinstance(result, Raised)
            assert isinstance(result.error, RuntimeError)
            assert result.error.__cause__ is problem
        else:
            assert result == Raised(problem)
        for function in (plain, async_plain):
            assert await runtime.call(function, 1, context=copy_context()) == Ok(("ran", 1))

    with_runtime(world, scenario)


async def _beside(runtime: Any, function: Callable[..., Any]) -> Any:
    """Call it where workers do: in a task of the runtime."""
    results: list[Any] = []

    async def main() -> None:
        results.append(await runtime.call(function, context=copy_context()))

    assert await runtime.spawn("worker", main).join(PATIENCE)
    return results[0]


def test_ctrl_c_in_the_main_thread_is_for_the_program(tmp_path: Any) -> None:
    """drain() and poll() run handlers in the caller's thread, which has to stay a thread that can be stopped."""

    def stopped() -> None:
        raise KeyboardInterrupt

    async def scenario(runtime: Any) -> None:
        with pytest.raises(KeyboardInterrupt):
            await runtime.call(stopped, context=copy_context())

    with_runtime(World("threads", tmp_path), scenario)


def test_an_async_function_that_cancels_itself_is_not_interrupted(world: World) -> None:
    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await _suspend()

    async def scenario(runtime: Any) -> None:
        result = await runtime.call(cancels_itself, context=copy_context())
        assert isinstance(result, Raised)
        assert isinstance(result.error, asyncio.CancelledError)
        assert not result.interrupted

    with_runtime(world, scenario)


def test_the_loop_thread_survives_a_task_that_exits(tmp_path: Any) -> None:
    """A task that a handler started is not wrapped: its SystemExit goes through the loop itself."""

    async def leaves() -> None:
        sys.exit(3)

    async def starts_one_that_exits() -> None:
        await asyncio.gather(leaves())

    async def scenario(runtime: Any) -> None:
        result = await runtime.call(starts_one_that_exits, context=copy_context())
        assert isinstance(result, Raised)
        assert isinstance(result.error, SystemExit)
        assert await runtime.call(async_plain, 1, context=copy_context()) == Ok(("ran", 1))

    with_runtime(World("threads", tmp_path), scenario)


# ---------------------------------------------------------------- places


def test_functions_run_where_they_cannot_harm(world: World) -> None:
    """Sync ones never on the event loop, async ones always on one; never in the loop's default executor."""

    def where() -> str:
        return threading.current_thread().name

    async def async_where() -> str:
        asyncio.get_running_loop()
        return threading.current_thread().name

    async def scenario(runtime: Any) -> None:
        here = threading.current_thread().name
        sync_place = (await runtime.call(where, context=copy_context())).value
        async_place = (await runtime.call(async_where, context=copy_context())).value
        if world.is_async:
            assert (sync_place, async_place) == ("aftercommit-handler-0", here)
        else:
            assert (sync_place, async_place) == (here, "aftercommit-loop")

    with_runtime(world, scenario)


def test_async_functions_under_asyncio_need_no_thread(tmp_path: Any) -> None:
    async def scenario(runtime: Any) -> None:
        for function in (async_plain, AsyncCaller(), functools.partial(async_plain), UnhashableAsyncCaller()):
            await runtime.call(function, 1, context=copy_context())
        assert ours() == set()

    with_runtime(World("asyncio", tmp_path), scenario)


def test_async_functions_run_beside_each_other_on_one_loop(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        loops: set[int] = set()
        met = [asyncio.Event(), asyncio.Event()]
        ended = [Signal(), Signal()]

        async def meets(mine: int) -> None:
            loops.add(id(asyncio.get_running_loop()))
            met[mine].set()
            await asyncio.wait_for(met[1 - mine].wait(), PATIENCE)
            ended[mine].set()

        async def calling(mine: int) -> None:
            await runtime.call(meets, mine, context=copy_context())

        tasks = [runtime.spawn("first", lambda: calling(0)), runtime.spawn("second", lambda: calling(1))]
        for signal in ended:
            await signal.wait()
        for task in tasks:
            assert await task.join(PATIENCE)
        assert len(loops) == 1

    with_runtime(world, scenario)


# ---------------------------------------------------------------- context


def test_a_call_sees_its_context_and_changes_no_other(world: World, colour: Callable[..., Any]) -> None:
    def change() -> str:
        before = mark.get()
        mark.set(f"{before} changed")
        return before

    async def scenario(runtime: Any) -> None:
        token = mark.set("caller")
        try:
            context = copy_context()
            assert await runtime.call(colour(change), context=context) == Ok("caller")
            assert mark.get() == "caller", "the caller's own context is untouched"
            assert await runtime.call(colour(change), context=context) == Ok("caller changed"), "one context, two calls"
            assert await runtime.call(colour(change), context=copy_context()) == Ok("caller"), "a fresh one"
        finally:
            mark.reset(token)

    with_runtime(world, scenario)


def test_both_colours_share_a_context(world: World) -> None:
    """What a sync interceptor sets, an async handler sees, and the other way round."""

    async def async_change() -> str:
        mark.set(f"{mark.get()}+async")
        return mark.get()

    def change() -> str:
        mark.set(f"{mark.get()}+sync")
        return mark.get()

    async def scenario(runtime: Any) -> None:
        context = copy_context()
        await runtime.call(change, context=context)
        await runtime.call(async_change, context=context)
        assert await runtime.call(change, context=context) == Ok("none+sync+async+sync")

    with_runtime(world, scenario)


# ---------------------------------------------------------------- interrupting


class Sleeper:
    """An async function that waits to be cancelled."""

    def __init__(self, then: Callable[[], Any] | None = None) -> None:
        self.entered = Signal()
        self.cleaned = Signal()
        self._then = then

    async def __call__(self) -> object:
        self.entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cleaned.set()
            if self._then is None:
                raise
            return self._then()
        raise AssertionError("nothing was to wake it")


async def _call_and_interrupt(runtime: Any, sleeper: Sleeper) -> Any:
    results: list[Any] = []

    async def calling() -> None:
        results.append(await runtime.call(sleeper, context=copy_context()))

    task = runtime.spawn("caller", calling)
    await sleeper.entered.wait()
    runtime.interrupt()
    assert await task.join(PATIENCE)
    return results[0]


def test_interrupt_cancels_async_functions_and_says_so(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        sleeper = Sleeper()
        result = await _call_and_interrupt(runtime, sleeper)
        assert isinstance(result, Raised)
        assert result.interrupted
        assert isinstance(result.error, asyncio.CancelledError)
        assert sleeper.cleaned.is_set, "it came back at the function's real end"

    with_runtime(world, scenario)


def test_an_interrupted_function_that_finishes_all_the_same_has_finished(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        assert await _call_and_interrupt(runtime, Sleeper(then=lambda: "done")) == Ok("done")

    with_runtime(world, scenario)


def test_an_error_in_the_clean_up_after_an_interrupt_counts_as_interrupted(world: World) -> None:
    def fail() -> None:
        raise ValueError("the clean-up failed")

    async def scenario(runtime: Any) -> None:
        result = await _call_and_interrupt(runtime, Sleeper(then=fail))
        assert isinstance(result, Raised)
        assert (str(result.error), result.interrupted) == ("the clean-up failed", True)

    with_runtime(world, scenario)


def test_interrupt_leaves_sync_functions_and_later_calls_alone(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        runtime.interrupt()  # nothing runs: nothing happens
        entered, release = Signal(), Signal()
        results: list[Any] = []

        def blocks() -> str:
            entered.set()
            release.wait_here()
            return "ended"

        async def calling() -> None:
            results.append(await runtime.call(blocks, context=copy_context()))

        task = runtime.spawn("caller", calling)
        await entered.wait()
        runtime.interrupt()
        release.set()
        assert await task.join(PATIENCE)
        assert results == [Ok("ended")]
        assert await runtime.call(async_plain, 1, context=copy_context()) == Ok(("ran", 1))

    with_runtime(world, scenario)


def test_an_interrupt_does_not_miss_a_function_that_has_just_begun(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may run on the loop thread before its caller, in another thread, has come any further."""

    async def scenario(runtime: Any) -> None:
        sleeper, results, interrupting = Sleeper(), [], threading.Thread(target=runtime.interrupt)

        class Slow(portal.LoopCall):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                sleeper.entered.wait_here()
                interrupting.start()
                interrupting.join(0.05)  # it has come and gone, or waits until this call is known

        monkeypatch.setattr(portal, "LoopCall", Slow)

        async def calling() -> None:
            results.append(await runtime.call(sleeper, context=copy_context()))

        task = runtime.spawn("caller", calling)
        assert await task.join(5), "the function was not interrupted"
        assert results[0].interrupted
        interrupting.join()

    with_runtime(World("threads", tmp_path), scenario)


def test_an_interrupt_before_the_first_step_is_one_too(tmp_path: Any) -> None:
    async def scenario(runtime: Any) -> None:
        called = asyncio.ensure_future(runtime.call(async_plain, 1, context=copy_context()))
        asyncio.get_running_loop().call_soon(runtime.interrupt)  # in the turn in which the call makes its task
        result = await called
        assert isinstance(result, Raised)
        assert isinstance(result.error, asyncio.CancelledError)
        assert result.interrupted

    with_runtime(World("asyncio", tmp_path), scenario)


def test_a_function_that_failed_before_the_interrupt_failed_by_itself(tmp_path: Any) -> None:
    """Its task has ended and its caller has not heard yet: the failure is its own, and it counts."""

    async def scenario(runtime: Any) -> None:
        loop = asyncio.get_running_loop()

        async def fails() -> None:
            loop.call_soon(runtime.interrupt)  # runs after this task's last step, before its caller's next one
            raise ValueError("by itself")

        result = await runtime.call(fails, context=copy_context())
        assert isinstance(result, Raised)
        assert (str(result.error), result.interrupted) == ("by itself", False)

    with_runtime(World("asyncio", tmp_path), scenario)


@pytest.mark.parametrize("then", [None, lambda: "swallowed"], ids=["raises", "swallows"])
def test_a_caller_that_is_cancelled_is_cancelled_and_takes_the_function_along(tmp_path: Any, then: Any) -> None:
    """F61, F62: what asyncio passes on to the function must not be lost on the way back, or asyncio.run never ends."""

    async def scenario(runtime: Any) -> None:
        sleeper = Sleeper(then)
        called = asyncio.ensure_future(runtime.call(sleeper, context=copy_context()))
        await sleeper.entered.wait()
        called.cancel()
        await asyncio.wait({called}, timeout=PATIENCE)
        assert called.cancelled()
        assert sleeper.cleaned.is_set

    with_runtime(World("asyncio", tmp_path), scenario)


def test_a_function_that_cancels_its_own_calls_does_not_cancel_its_caller(tmp_path: Any) -> None:
    """asyncio.timeout() inside a handler is the handler's own matter."""

    async def times_out() -> str:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        except TimeoutError:
            return "timed out"
        return "never"

    async def scenario(runtime: Any) -> None:
        assert await runtime.call(times_out, context=copy_context()) == Ok("timed out")

    with_runtime(World("asyncio", tmp_path), scenario)


# ---------------------------------------------------------------- shielding


def test_shielded_gives_the_value_and_passes_errors_on(world: World) -> None:
    async def value() -> int:
        return 5

    async def broken() -> None:
        raise LookupError("as it is")

    async def scenario(runtime: Any) -> None:
        assert await runtime.shielded(value()) == 5
        with pytest.raises(LookupError, match="as it is"):
            await runtime.shielded(broken())

    with_runtime(world, scenario)


@pytest.mark.parametrize("ends", ["well", "badly"])
def test_shielded_work_comes_to_its_end_before_the_cancellation(tmp_path: Any, ends: str) -> None:
    """F61. Cancelled twice: the second must not cut short what the first has waited for."""

    async def scenario(runtime: Any) -> None:
        entered, release, steps = asyncio.Event(), asyncio.Event(), []

        async def work() -> None:
            entered.set()
            await release.wait()
            steps.append("the end of the work")
            if ends == "badly":
                raise LookupError("nobody is left to hear it")

        async def caller() -> None:
            try:
                await runtime.shielded(work())
            except asyncio.CancelledError:
                steps.append("cancelled")
                raise

        task = asyncio.ensure_future(caller())
        await entered.wait()
        for _ in range(2):
            task.cancel()
            await asyncio.wait({task}, timeout=0.001)
        assert steps == []
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert steps == ["the end of the work", "cancelled"]

    with_runtime(World("asyncio", tmp_path), scenario)


def test_shielded_work_that_is_cancelled_itself_says_so(tmp_path: Any) -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError("from inside")

    async def scenario(runtime: Any) -> None:
        with pytest.raises(asyncio.CancelledError):
            await runtime.shielded(cancelled())

    with_runtime(World("asyncio", tmp_path), scenario)
