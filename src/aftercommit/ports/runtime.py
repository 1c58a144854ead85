"""Threads or asyncio, as the walk sees them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from contextvars import Context
from enum import Enum
from typing import Any, Protocol, TypeVar

from aftercommit.events.outcome import Result

T = TypeVar("T")


class Colour(Enum):
    """Whether awaiting really suspends. Runtimes, executors and stores of one outbox have the same colour."""

    BLOCKING = "blocking"
    ASYNC = "async"

    @property
    def block(self) -> str:
        """How a block begins, in advice to users."""
        return "async with" if self is Colour.ASYNC else "with"


class Monitor(AbstractContextManager[object, None], Protocol):
    """A mutex with a waiting room. Everything but `wait_for` may be called from any thread."""

    def notify(self, count: int = 1) -> None:
        """Wake up to `count` waiters. Call it with the mutex held."""

    def notify_all(self) -> None:
        """Wake every waiter. Call it with the mutex held."""

    async def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """The first true value of `predicate`, which is asked with the mutex held; its last value on timeout."""


class Task(Protocol):
    """Something that the runtime runs beside the caller."""

    @property
    def has_ended(self) -> bool: ...

    async def join(self, timeout: float | None) -> bool:
        """Whether it ended within the time."""


class Runtime(Protocol):
    """Threads or asyncio: clocks, waiting, running beside each other, and calling functions of either colour."""

    @property
    def colour(self) -> Colour: ...

    #: Seconds that go on while the machine sleeps, never back.
    clock: Callable[[], float]

    def identity(self) -> object:
        """What is running now: an object for the thread, or the task (None outside one)."""

    def is_here(self) -> bool:
        """Whether this runtime can be awaited from here: always, or on its own loop."""

    def is_gone(self) -> bool:
        """Whether it can be awaited nowhere any more."""

    def monitor(self) -> Monitor: ...

    def lock(self) -> AbstractContextManager[Any]:
        """A mutex for a few lines that await nothing. From any thread."""

    def spawn(self, name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> Task: ...

    async def call(
        self,
        function: Callable[..., object],
        *arguments: object,
        context: Context,
        timeout: float | None = None,
        ended: Callable[[], None] | None = None,
    ) -> Result:
        """Run a user's function to its end, whatever its colour. Never raises: a BaseException comes back Raised.

        After `timeout` seconds it comes back Raised(HandlerTimeout): an async function is cancelled; one that goes on
        all the same is left behind, and `ended` is called, from any thread, when it is over at last.
        """

    def interrupt(self) -> None:
        """Cancel the async functions that run in `call` now; they come back Raised(interrupted=True)."""

    async def shielded(
        self, work: Coroutine[Any, Any, T], hurry: Callable[[], None] | None = None, limit: float | None = None
    ) -> T:
        """Run to the end although the caller is cancelled, for so many seconds at most; the cancellation comes
        afterwards, and `hurry` is called when it arrives."""

    async def close(self) -> None:
        """Stop the threads that `call` has started. Functions that still run are left behind."""
