"""A program that runs on a loop of its own, as under a test client of a web framework, is tested from a plain test."""

from __future__ import annotations

from anyio.from_thread import start_blocking_portal

from aftercommit import AsyncOutbox
from aftercommit.testing import OutboxTest
from tests.kit.ways import NOWHERE, OrderPlaced


def test_the_program_has_its_loop_and_the_kit_has_another() -> None:
    outbox, seen = AsyncOutbox(NOWHERE), []

    @outbox.handler
    async def receipt(event: OrderPlaced) -> None:
        seen.append(event.order_id)

    async def place(number: int) -> None:
        async with outbox.transaction():
            await outbox.write(OrderPlaced(number))

    with OutboxTest(outbox) as outbox_test, start_blocking_portal() as portal:
        portal.call(outbox.start)
        assert outbox.is_started
        for number in (1, 2):
            portal.call(place, number)
            outbox_test.assert_written(OrderPlaced, order_id=number)
            assert seen == list(range(1, number))
            assert outbox_test.drain().delivered == 1
        assert seen == [1, 2]
        portal.call(outbox.close)
