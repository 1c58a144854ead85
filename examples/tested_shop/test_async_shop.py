"""The same for asyncio: an `async def` test awaits what looks into the table; a plain one does not."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from aftercommit import AsyncOutbox
from aftercommit.testing import AsyncOutboxTest, OutboxTest

outbox = AsyncOutbox("postgresql://shop@db.example/shop")
paid: list[int] = []


@dataclass
class OrderPaid:
    order_id: int


@outbox.handler
async def thank(event: OrderPaid) -> None:
    paid.append(event.order_id)


@pytest.fixture
def outbox_under_test() -> AsyncOutbox:
    paid.clear()
    return outbox


@pytest.mark.anyio
async def test_in_a_coroutine(outbox_test: AsyncOutboxTest) -> None:
    async with outbox.transaction():
        await outbox.write(OrderPaid(7))
    await outbox_test.assert_written(OrderPaid, order_id=7)
    result = await outbox_test.drain()
    assert (result.delivered, paid) == (1, [7])


def test_in_a_plain_function(outbox_test: OutboxTest) -> None:
    outbox_test.write(OrderPaid(8))
    assert outbox_test.drain().delivered == 1
    assert paid == [8]
