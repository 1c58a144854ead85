"""The border to users' functions: which colour one has, and how it is run without letting anything escape."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Final, NamedTuple

from aftercommit.errors import HandlerTimeout, InvalidListener
from aftercommit.events.names import described
from aftercommit.events.outcome import NOTHING, Ok, Raised, Result
from aftercommit.runtime.process import end_child, here

#: Seconds that a cancelled async function gets for its clean-up before it is left behind.
GRACE: Final = 1.0


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling it gives a coroutine for sure. A False may still return an awaitable; see `awaited`."""
    # The second look finds objects with an async __call__, which the first one does not.
    call = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def called(function: Callable[..., object], arguments: tuple[object, ...]) -> Result:
    """Call a plain function. BaseException included: nothing but a Result may cross a thread or a future."""
    process = here.token
    try:
        value = function(*arguments)
        result = NOTHING if value is None else returned(function, value)
    except BaseException as error:
        result = Raised(error)
    if here.token is not process:
        end_child(result)
    return result


def returned(function: Callable[..., object], value: object) -> Result:
    """What a function has returned, and not nothing. A generator is an error: nothing of its body has run."""
    if not (inspect.isgenerator(value) or inspect.isasyncgen(value)) or inspect.isawaitable(value):
        return Ok(value)
    return Raised(
        InvalidListener(
            f"{getattr(function, '__qualname__', function)!s} returned a generator, so its body has not run",
            fix="return instead of yield",
        )
    )


async def called_async(
    function: Callable[..., Any], arguments: tuple[object, ...], call: Callable[..., Any] | None = None
) -> Result:
    """Call on a running loop and await what comes back, with the same promise; or else `call` in its place."""
    process = here.token
    try:
        value = (call or function)(*arguments)
        while value is not None and inspect.isawaitable(value):  # a forgotten `await` must not pass for a success
            value = await value
        result = NOTHING if value is None else returned(function, value)
    except BaseException as error:
        result = Raised(error)
    if here.token is not process:
        end_child(result)
    return result


def awaited(function: Callable[..., object], value: Awaitable[Any]) -> Coroutine[Any, Any, Result]:
    """Await what a function returned, in the same way."""
    return called_async(function, (), lambda: value)


class Steps:
    """The rest of a coroutine that has taken its first step, in a context of its own, to be awaited in any task."""

    def __init__(self, coroutine: Coroutine[Any, Any, Result], context: Context, first: Any) -> None:
        self._coroutine = coroutine
        self._context = context
        self._first = first

    def __await__(self) -> Generator[Any, Any, Result]:
        run, coroutine, waits_for = self._context.run, self._coroutine, self._first
        try:
            while True:
                try:
                    value = yield waits_for
                except GeneratorExit:
                    coroutine.close()
                    raise
                except BaseException as error:
                    waits_for = run(coroutine.throw, error)
                else:
                    waits_for = run(coroutine.send, value)
        except StopIteration as stop:
            result: Result = stop.value
            return result


class Limit(NamedTuple):
    """The time that a call may take, and whom to tell when it ends although nobody waits for it any more."""

    function: Callable[..., object]
    timeout: float
    ended: Callable[[], None] | None

    def over(self, *, still_runs: bool) -> Raised:
        """What comes back in the function's place."""
        late = ", and still runs: its effects may come later, or twice" if still_runs else ""
        return Raised(
            HandlerTimeout(
                f"{described(self.function)} ran for longer than its timeout of {self.timeout:g} s{late}",
                fix="give its own calls a shorter timeout, or raise timeout= of the handler",
                still_runs=still_runs,
            )
        )
