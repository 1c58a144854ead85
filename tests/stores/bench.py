"""An executor on a bench: over a table of numbers, with connections that are counted."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from aftercommit.ports import Colour
from aftercommit.stores.sqlite.executor import SqliteExecutor
from tests.stores.kit import read, run_in

#: Long enough to be a wait, short enough not to be felt.
SOON = 0.05


class Opened(sqlite3.Connection):
    """A connection that is counted while it is open."""

    living: set[Opened]

    def close(self) -> None:
        type(self).living.discard(self)
        super().close()


class Bench:
    """An executor of either colour over a file with one table, and the connections that it has open."""

    def __init__(self, colour: Colour, path: Path) -> None:
        self.colour = colour
        self.path = path
        self.kind: type[Opened] = type("Counted", (Opened,), {"living": set()})
        self.executor: Any = SqliteExecutor(self.connect, str(path), colour)
        # It stays open: the first connection to a file sets up the log, and for a moment nobody else gets in.
        self.first = sqlite3.connect(path)
        self.first.executescript("PRAGMA journal_mode = WAL; CREATE TABLE t (n INTEGER PRIMARY KEY)")

    def connect(self, **options: Any) -> sqlite3.Connection:
        # No busy timeout: whoever meets another writer fails at once.
        made = sqlite3.connect(self.path, timeout=0, check_same_thread=False, isolation_level=None, factory=self.kind)
        self.kind.living.add(made)
        return made

    @property
    def pools(self) -> list[Any]:
        """Of the store's own connections, and of those for users."""
        return [self.executor._own, self.executor._lent]

    @property
    def open_connections(self) -> int:
        return len(self.kind.living)

    def run(self, scenario: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        async def whole() -> Any:
            try:
                return await scenario()
            finally:
                await self.executor.close()

        return run_in(self.colour, whole())

    async def insert(self, number: int) -> None:
        await self.executor.transact(lambda tx: tx.execute("INSERT INTO t VALUES (?)", (number,)))

    def numbers(self) -> list[int]:
        return [row["n"] for row in read(self.path, "SELECT n FROM t ORDER BY n")]


def our_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("aftercommit-sqlite")]


def assert_nothing_left(bench: Bench) -> None:
    """Threads that are on their way out are waited for; one that stays makes this fail."""
    for thread in our_threads():
        thread.join(5)
        assert not thread.is_alive(), f"{thread.name} stays"
    assert bench.open_connections == 0
