"""TC-470: whether a failure was the last one is judged on the count that the row has when the failure is written."""

from __future__ import annotations

from typing import Any

import pytest

from aftercommit import EventStatus, Fixed
from tests.support import Signal, World


@pytest.mark.parametrize(("stored", "status"), [(2, EventStatus.DEAD), (1, EventStatus.RETRY)])
def test_an_attempt_that_somebody_has_counted_meanwhile_is_spent(
    any_server_world: World, stored: int, status: EventStatus
) -> None:
    async def scenario() -> None:
        begun, changed = Signal(), Signal()

        def handle(event: Any) -> None:
            begun.set()
            changed.wait_here()
            raise ValueError("no luck")

        outbox = any_server_world.outbox(max_attempts=3, retry_policy=Fixed("1h"))
        outbox.register("OrderPlaced", handle)
        await outbox.start()
        async with outbox.transaction():
            await outbox.write("OrderPlaced", {})
        await begun.wait()
        any_server_world.change("UPDATE outbox_event SET attempts = ?", stored)
        changed.set()
        await any_server_world.until(
            "SELECT count(*) FROM outbox_event WHERE locked_by IS NULL AND attempts > ?", stored
        )
        (row,) = any_server_world.rows("SELECT status, attempts, last_error FROM outbox_event")
        assert tuple(row) == (status, stored + 1, "ValueError: no luck")
        assert await outbox.dead.count() == (status is EventStatus.DEAD)

    any_server_world.run(scenario)
