"""What waits for the end of a transaction, level by level: a savepoint's callbacks share its fate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from aftercommit.claims import RowKey

Callback = Callable[[], None]
Lost = Callable[[Collection[RowKey]], None]


class Level:
    """The transaction itself, or one savepoint in it."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.on_commit: list[Callback] = []
        self.on_rollback: list[Callback] = []
        self.written: list[tuple[Sequence[RowKey], Lost]] = []

    def absorb(self, inner: Level) -> None:
        """A released savepoint is part of what is around it."""
        self.on_commit += inner.on_commit
        self.on_rollback += inner.on_rollback
        self.written += inner.written


def run_all(callbacks: Iterable[Callback]) -> None:
    """Run every callback; the first error is raised at the end, with a note of the others."""
    first: Exception | None = None
    for callback in callbacks:
        try:
            callback()
        except Exception as error:
            if first is None:
                first = error
            else:
                first.add_note(f"another callback failed too: {error!r}")
    if first is not None:
        raise first
