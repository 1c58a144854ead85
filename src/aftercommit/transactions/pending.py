"""A write that is not awaited yet: validated at once, inserted when awaited, loud when forgotten."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from aftercommit.errors import NotInTransaction
from aftercommit.events.log import Log

T = TypeVar("T")

log = Log("aftercommit.transactions")


class PendingWrite(Generic[T]):
    """What AsyncOutbox.write() returns: await it, once."""

    def __init__(self, what: str, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self.what = what
        self.is_awaited = False
        #: Awaited in a task that has no right to the transaction; perhaps nobody listens to that task.
        self.is_refused = False
        self._is_forgiven = False
        self._work = work

    def __await__(self) -> Generator[Any, None, T]:
        if self.is_awaited:
            raise RuntimeError(f"write() of {self.what} was awaited before")
        self.is_awaited = True
        try:
            return (yield from self._work().__await__())
        except NotInTransaction:
            self.is_refused = True
            raise

    def forgive(self) -> None:
        """It has been reported, or its transaction is undone: say nothing more."""
        self._is_forgiven = True

    def __del__(self) -> None:
        if not self.is_awaited and not self._is_forgiven:
            log.error(
                "[AC003] write() of %s was never awaited, so the event is NOT saved. Fix: await outbox.write(…)",
                self.what,
            )


async def _nothing() -> str | None:
    """A hook has dropped the event, and nothing is left to do."""
    return None


def suppressed(what: str) -> PendingWrite[str | None]:
    """For an event that a hook has dropped: it may be awaited, and need not be."""
    pending = PendingWrite(what, _nothing)
    pending.forgive()
    return pending
