"""What a database lends to the contract: a store, a way to run it, and a look at the table behind its back."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any


class StoreHooks(ABC):
    """One empty database per test. All hooks speak of that one."""

    @abstractmethod
    def make_store(self, **options: Any) -> Any:
        """A new store over the test's database, not opened; options are those of the store."""

    @abstractmethod
    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a scenario to its end in the colour of the stores."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """The committed rows in order of position, by column; times in microseconds since the epoch."""

    @abstractmethod
    def change(self, event_id: str | None = None, **columns: Any) -> None:
        """Set columns of one event's rows, or of all rows, and commit; times as in `rows`."""

    @abstractmethod
    def now(self) -> int:
        """The database's clock, in microseconds since the epoch."""

    # ------------------------------------------------------------ for the scenarios

    async def opened(self, **options: Any) -> Any:
        """A store that is open; closed when the scenario ends."""
        store = self.make_store(**options)
        self.__dict__.setdefault("stores", []).append(store)
        await store.open()
        return store

    def row(self, event_id: str | None = None) -> dict[str, Any]:
        """The one row there is, or the one of this event."""
        (found,) = [row for row in self.rows() if event_id in (None, row["event_id"])]
        return found

    def expire(self) -> None:
        """All leases have run out."""
        self.change(lease_until=self.now() - 1)

    def fall_due(self) -> None:
        """Whatever waits for its time waits no more."""
        self.change(available_at=self.now() - 1)


def played(scenario: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test of an `async def` method: run it in the colour at hand, and close what it opened."""

    @functools.wraps(scenario)
    def test(self: StoreHooks, *arguments: Any, **fixtures: Any) -> None:
        async def whole() -> None:
            try:
                await scenario(self, *arguments, **fixtures)
            finally:
                for store in self.__dict__.get("stores", []):
                    await store.close()

        self.run(whole())

    return test
