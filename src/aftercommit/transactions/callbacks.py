"""What waits for the end of a transaction, level by level: a savepoint's callbacks share its fate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from aftercommit.events.claims import RowKey
from aftercommit.transactions.pending import PendingWrite

Callback = Callable[[], None]
Lost = Callable[[Collection[RowKey]], None]


class Level:
    """The transaction itself, or one savepoint in it."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.on_commit: list[Callback] = []
        self.on_rollback: list[Callback] = []
        self.written: list[tuple[Sequence[RowKey], Lost]] = []
        self.pending: list[PendingWrite[Any]] = []

    def absorb(self, inner: Level) -> None:
        """A released savepoint is part of what is around it."""
        self.on_commit += inner.on_commit
        self.on_rollback += inner.on_rollback
        self.written += inner.written


def run_all(callbacks: Iterable[Callback], *, beside: BaseException | None = None) -> None:
    """Run every callback; the first error is raised at the end, with notes of the others.

    Beside an error that is on its way to the caller they are all notes of that one. What stops a program stops it.
    """
    errors: list[BaseException] = []
    for callback in callbacks:
        try:
            callback()
        except BaseException as error:
            errors.append(error)
    if not errors:
        return
    loudest = next((each for each in errors if not isinstance(each, Exception)), beside or errors[0])
    for each in errors:
        if each is not loudest:
            loudest.add_note(f"another callback failed too: {each!r}")
    if loudest is not beside:
        raise loudest
