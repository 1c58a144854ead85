"""Transactional handlers: their statements and the mark of their event are one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from aftercommit.events.claims import Claimed, Lease
from aftercommit.events.outcome import Result
from aftercommit.ports.runtime import Runtime


class Effect(Protocol):
    """One call of a transactional handler."""

    @property
    def function(self) -> Callable[..., object]:
        """To be called in the handler's place: with the effect, then with what the handler gets beside its transaction.
        It begins the transaction where it is called, runs the handler, marks the event, and commits."""

    def seen(self, result: Result) -> Result:
        """What the call has come to, by what the runtime says of it: `COMMITTED`, when the row is marked as done.
        What still runs, left behind by a timeout, is rolled back when it ends."""


class Effects(Protocol):
    """A transactional handler, as the walk calls it."""

    def call(self, runtime: Runtime, claimed: Claimed) -> Effect: ...


class HandlerTx(Protocol):
    """The transaction of one call, whoever has it: the outbox, a session, a framework. It is ended by `commit`, or by
    `undo`, which may follow upon a commit that has failed."""

    @property
    def is_committed(self) -> bool: ...

    async def begin(self) -> object:
        """What the handler gets as its tx."""

    async def mark(self, lease: Lease, done_handlers: tuple[str, ...]) -> bool:
        """As `settle_in` of the store. Raises when the transaction has been ended, or takes no more statements."""

    async def commit(self) -> None: ...

    async def undo(self, cause: BaseException | None) -> None:
        """Roll back. The error that led here goes before all others."""
