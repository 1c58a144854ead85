"""close() in the middle of a chain: what is done stays done, the rest goes back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aftercommit import NoRetry
from aftercommit.events.envelope import EventStatus
from tests.delivery.faulty import short_pauses  # noqa: F401  (used by every test here)
from tests.handlers.kit import Deliberate, write
from tests.support import Collector, Signal, World


def test_a_row_of_several_handlers_keeps_what_was_done_and_begins_no_more(world: World) -> None:
    async def scenario() -> None:
        seen, begun = Collector(), Signal()
        writer, outbox, heir = (world.outbox(wiring="writer_only"), *(world.outbox(drain_timeout="0s") for _ in "ab"))

        async def hanging(event: Any) -> None:
            begun.set()
            await asyncio.Event().wait()

        for each, two in ((outbox, hanging), (heir, lambda event: seen.add("two"))):
            each.handler("A", id="one")(lambda event: seen.add("one"))
            each.handler("A", id="two")(two)
            each.handler("A", id="three")(lambda event: seen.add("three"))
        await write(writer, "A")
        await outbox.start()
        await begun.wait()
        await outbox.close()
        row = world.rows()[0]
        assert (row["status"], row["attempts"], row["locked_by"]) == (EventStatus.NEW, 0, None)
        assert json.loads(row["done_handlers"]) == ["one"]
        await heir.drain()
        assert seen == ["one", "two", "three"]
        assert world.statuses() == [EventStatus.DONE]

    world.run(scenario)


def test_a_fallback_that_was_interrupted_is_not_a_failed_one(world: World) -> None:
    async def scenario() -> None:
        begun, outbox = Signal(), world.outbox(drain_timeout="0s", retry_policy=NoRetry())

        @outbox.handler("A")
        def fails(event: Any) -> None:
            raise Deliberate

        @fails.fallback
        async def failed(event: Any, failure: Any) -> None:
            begun.set()
            await asyncio.Event().wait()

        await outbox.start()
        await write(outbox, "A")
        await begun.wait()
        await outbox.close()
        row = world.rows()[0]
        assert (row["status"], row["attempts"], row["locked_by"]) == (EventStatus.NEW, 0, None)

    world.run(scenario)
