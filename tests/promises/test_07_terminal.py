"""Promise 7: DONE and DEAD are final. Only an explicit replay moves a dead row, under a new epoch."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from aftercommit import EventStatus
from aftercommit.events.claims import Lease, RowKey, Settlement
from aftercommit.events.outcome import DONE, RELEASE, Dead, Retry
from tests.support import Collector, World

LATE_MARKS = [DONE, RELEASE, Retry(timedelta(0), "late"), Dead("late")]


def test_promise_07_terminal_rows_move_for_nobody_but_a_replay(every_world: World) -> None:
    world = every_world

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(max_attempts=1)
        outbox.register("Fine", lambda event: seen.add(event.event_type))

        def fail(event: Any) -> None:
            seen.add(event.event_type)
            raise ValueError("no luck")

        outbox.register("Failing", fail)
        async with outbox.transaction():
            await outbox.write("Fine", {})
            dead = await outbox.write("Failing", {})
        await outbox.drain()
        ended = [tuple(row) for row in world.rows()]
        assert world.statuses() == [EventStatus.DONE, EventStatus.DEAD]

        # What is due again by its times is not due, and whoever held it has nothing to say any more.
        world.change("UPDATE outbox_event SET available_at = 1")
        await outbox.drain()
        for row in world.rows():
            lease = Lease(RowKey(row["event_id"], row["handler_id"]), "somebody", row["lease_epoch"], float("inf"))
            for late in LATE_MARKS:
                assert await outbox._store.settle([Settlement(lease, late)]) == {lease.key}
            assert not await outbox._store.renew([lease], timedelta(minutes=1))
        changed = [tuple(row) for row in world.rows()]
        assert _but_due(world, changed) == _but_due(world, ended)
        assert sorted(seen) == ["Failing", "Fine"]

        before = world.rows()[1]
        assert await outbox.dead.replay(dead)
        after = world.rows()[1]
        assert (after["status"], after["attempts"], after["abandoned"]) == (EventStatus.NEW, 0, 0)
        assert after["lease_epoch"] > before["lease_epoch"]
        await outbox.drain()
        assert sorted(seen) == ["Failing", "Failing", "Fine"]
        assert world.statuses() == [EventStatus.DONE, EventStatus.DEAD]

    world.run(scenario)


def _but_due(world: World, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows without the time that this test has changed itself."""
    place = world.rows()[0].keys().index("available_at")
    return [(*row[:place], *row[place + 1 :]) for row in rows]
