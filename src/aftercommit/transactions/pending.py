"""A write that is not awaited yet: validated at once, inserted when awaited, loud when forgotten."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any, TypeVar

from aftercommit.errors import NotAwaited, NotInTransaction
from aftercommit.events.log import Log

T = TypeVar("T")

log = Log("aftercommit.transactions")


class PendingWrite(Coroutine[Any, Any, T]):
    """What AsyncOutbox.write() returns: await it, once. A coroutine, so that type checkers find a forgotten await."""

    def __init__(self, what: str, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self.what = what
        self.is_awaited = False
        #: Awaited in a task that has no right to the transaction; perhaps nobody listens to that task.
        self.is_refused = False
        self._is_forgiven = False
        self._work = work
        self._steps: Generator[Any, Any, T] | None = None

    def __await__(self) -> Generator[Any, Any, T]:
        if self.is_awaited:
            raise RuntimeError(f"write() of {self.what} was awaited before")
        self.is_awaited = True
        try:
            return (yield from self._work().__await__())
        except NotInTransaction:
            self.is_refused = True
            raise

    # As a task steps through it.

    def send(self, value: Any) -> Any:
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps.throw(*error)

    def close(self) -> None:
        if self._steps is not None:
            self._steps.close()

    def forgive(self) -> None:
        """It has been reported, or its transaction is undone: say nothing more."""
        self._is_forgiven = True

    def __del__(self) -> None:
        if not self.is_awaited and not self._is_forgiven:
            log.error(
                "[AC003] write() of %s was never awaited, so the event is NOT saved. Fix: await outbox.write(…)",
                self.what,
            )


def refuse_unawaited(writes: Iterable[PendingWrite[Any]]) -> None:
    """Before a commit: the caller believes that all of them are saved by it."""
    if forgotten := [each for each in writes if not each.is_awaited or each.is_refused]:
        names = ", ".join(pending.what for pending in forgotten)
        raise NotAwaited(
            f"write() of {names} was never awaited, or in another task, so nothing of it is saved; the transaction "
            "is rolled back",
            fix="await outbox.write(…), in the task that opened the transaction",
        )


def forgive(writes: list[PendingWrite[Any]]) -> None:
    while writes:
        writes.pop().forgive()


async def _nothing() -> str | None:
    """A hook has dropped the event, and nothing is left to do."""
    return None


def suppressed(what: str) -> PendingWrite[str | None]:
    """For an event that a hook has dropped: it may be awaited, and need not be."""
    pending = PendingWrite(what, _nothing)
    pending.forgive()
    return pending
