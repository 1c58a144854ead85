"""Promise 12: a handler sees the same envelope and bytes from memory, from the table, after a retry and a replay."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from aftercommit import EventEnvelope, EventStatus
from tests.support import Collector, World

#: What a database, or a decoder and an encoder, would write otherwise.
TEXT = '{ "b":1.10,  "a" : "\\u00e4ä€😀",\t"n":1E2, "a":null }'
BYTES = bytes(range(256))


class Deliberate(Exception):
    """Raised by the listener."""


@pytest.mark.parametrize("payload", [{"payload_json": TEXT}, {"payload_bytes": BYTES}], ids=["text", "bytes"])
def test_promise_12_verbatim_hot_cold_retried_and_replayed(every_world: World, payload: dict[str, Any]) -> None:
    world = every_world
    event = EventEnvelope(
        "OrderPlaced",
        **payload,
        aggregate_type="Order",
        aggregate_id="order-7",
        tenant_id="tenant ä",
        key="order-7",
        headers={"trace": "00-ab", "quote": "\"'\\"},
        occurred_at=datetime(2020, 2, 29, 23, 59, 59, 999_999, UTC),
    )

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(max_attempts=2, poll_interval="1h")

        def listener(received: EventEnvelope) -> None:
            seen.add(received)
            raise Deliberate

        outbox.register("Order", "OrderPlaced", listener)
        async with outbox:
            async with outbox.transaction():
                await outbox.write(event)
            await world.until_settled(1, status=EventStatus.RETRY)  # from memory
        world.change("UPDATE outbox_event SET available_at = 1")
        await outbox.drain()  # again, from the table
        assert world.statuses() == [EventStatus.DEAD]
        assert await outbox.dead.replay(event.event_id)
        await outbox.drain()
        assert len(seen) == 3
        for received in seen:
            assert received == event
            assert received.payload_bytes == event.payload_bytes
            assert received.occurred_at == event.occurred_at
        if "payload_json" in payload:
            assert {received.payload_json for received in seen} == {TEXT}

    world.run(scenario)
