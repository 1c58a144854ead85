"""Promise 6: a failed mark is not a failed handler. It is repeated until the store takes it or the fence refuses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aftercommit import EventStatus, FailureContext
from tests.support import Collector, Signal, World


class Away(Exception):
    """The database cannot be reached."""


@pytest.mark.parametrize("is_late", [False, True], ids=["unwritten", "written"])
def test_promise_06_failed_mark_calls_neither_handler_nor_fallback_again(
    every_world: World, monkeypatch: pytest.MonkeyPatch, *, is_late: bool
) -> None:
    """Whether it failed before the outcome was written, or after it, when nobody can tell."""
    world = every_world

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(poll_interval="1h", max_attempts=1)

        @outbox.handler("Fine")
        def fine(event: Any) -> None:
            seen.add("handler")

        @outbox.handler("Failing")
        def failing(event: Any) -> None:
            seen.add("failing")
            raise ValueError

        @failing.fallback
        def fallback(event: Any, failure: FailureContext) -> None:
            seen.add("fallback")

        tries = failing_at_first(outbox, monkeypatch, is_late=is_late)
        async with outbox:
            async with outbox.transaction():
                await outbox.write("Fine", {})
                await outbox.write("Failing", {})
            await tries.failed.wait()
            await world.until_settled(2)
            counters = (await outbox.stats()).counters
        assert sorted(seen) == ["failing", "fallback", "handler"]
        assert [(row["status"], row["locked_by"]) for row in world.rows()] == [(EventStatus.DONE, None)] * 2
        # A repetition that finds its own work done has lost no lease.
        assert counters.get("lease_lost", 0) == 0

    world.run(scenario)


class Tries:
    def __init__(self, settle: Callable[..., Any], *, is_late: bool) -> None:
        self._settle, self._is_late = settle, is_late
        self.count = 0
        self.failed = Signal()

    async def __call__(self, settlements: Any) -> Any:
        self.count += 1
        if self.count > 2:
            return await self._settle(settlements)
        if self._is_late:
            await self._settle(settlements)
        self.failed.set()
        raise Away("the answer never came")


def failing_at_first(outbox: Any, monkeypatch: pytest.MonkeyPatch, *, is_late: bool) -> Tries:
    """The first two marks of this outbox fail."""
    store = outbox._store
    tries = Tries(store.settle, is_late=is_late)
    monkeypatch.setattr(store, "settle", tries)
    return tries
