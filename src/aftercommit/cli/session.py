"""A command's hold on its outbox: whatever its colour, a call gives its result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from inspect import isawaitable, iscoroutine
from typing import TYPE_CHECKING, Any, Self, TypeVar

from aftercommit.cli.output import Output
from aftercommit.errors import OutboxError, SchemaMismatch

if TYPE_CHECKING:
    from aftercommit.base import OutboxBase
    from aftercommit.cli.command import Call
    from aftercommit.cli.targets import Target
    from aftercommit.runtime.foreground import Foreground

T = TypeVar("T")

#: Makes the outbox, with options that the stored table asks for.
Make = Callable[..., "OutboxBase"]


async def done(value: Awaitable[T] | T) -> T:
    """What a method of an outbox gives, awaited if it has to be."""
    return await value if isawaitable(value) else value


class Session:
    """Opened for one command and closed behind it. The outbox is made when it is first asked for."""

    def __init__(self, call: Call, target: Target, make: Make) -> None:
        self.call = call
        self.target = target
        self._make = make
        self._outbox: OutboxBase | None = None
        self._loop: Foreground | None = None

    @property
    def output(self) -> Output:
        return self.call.output

    @property
    def outbox(self) -> Any:
        """An Outbox or an AsyncOutbox. What has to wait for the database goes through `ask`."""
        if self._outbox is None:
            self._outbox = self._make()
        return self._outbox

    @property
    def is_async(self) -> bool:
        from aftercommit.ports import Colour  # noqa: PLC0415  (as all that is behind a door: when it is needed)

        return bool(self.outbox._colour is Colour.ASYNC)

    def ask(self, operation: Callable[[Any], Any]) -> Any:
        """`session.ask(lambda outbox: outbox.dead.query(limit=5))`: what it gives, awaited if it has to be.

        An operation of several steps is a coroutine function that uses `done` and `block`, written once for both
        colours. A table that a URL leads to is worked with as it was made, ordered or not.
        """
        try:
            return self._ask(operation)
        except SchemaMismatch as error:  # met when the store is opened, before anything is done
            if error.kept is None or self.target.has_handlers:
                raise
            self.close()
            self._outbox = self._make(**error.kept)
            return self._ask(operation)

    def _ask(self, operation: Callable[[Any], Any]) -> Any:
        from aftercommit.runtime.threads import run  # noqa: PLC0415  (with the engine, when there is work for it)

        if not self.is_async:
            given = operation(self.outbox)
            return run(given) if iscoroutine(given) else given

        async def awaited() -> Any:
            given = operation(self.outbox)
            return await given if isawaitable(given) else given

        return self._foreground().run(awaited())

    @asynccontextmanager
    async def block(self, manager: Any) -> AsyncIterator[Any]:
        """`with` or `async with`, as the outbox needs it, in an operation that is written once."""
        if self.is_async:
            async with manager as entered:
                yield entered
        else:
            with manager as entered:
                yield entered

    def _foreground(self) -> Foreground:
        from aftercommit.runtime.foreground import Foreground  # noqa: PLC0415  (it brings asyncio along)

        if self._loop is None:
            self._loop = Foreground()
        return self._loop

    def close(self) -> None:
        if self._outbox is not None:
            self._ask(lambda outbox: outbox.close())
            self._outbox = None
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()


def as_made(session: Session) -> None:
    """Before an operation that tells of a table's order instead of refusing it: a table that a URL leads to is worked
    with as it was made."""
    if session.target.has_handlers:
        return

    def examined(outbox: Any) -> None:  # which is blocking, as all are that a URL alone leads to
        problem = outbox.schema_status().problem
        if isinstance(problem, SchemaMismatch) and problem.kept is not None:
            raise problem

    with suppress(OutboxError):  # anything else is told by the operation itself
        session.ask(examined)
