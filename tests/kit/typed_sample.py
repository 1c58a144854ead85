"""What mypy --strict says of tests that use the kit: nothing, but for the lines that are wrong."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from aftercommit import DeadEvent
from aftercommit.testing import AsyncOutboxTest, Drained, Failure, OutboxTest, Written


@dataclass
class OrderPlaced:
    order_id: int


def right(outbox_test: OutboxTest) -> None:
    written: list[Written[OrderPlaced]] = outbox_test.written(OrderPlaced)
    number: int = written[0].payload.order_id
    found: list[Written[OrderPlaced]] = outbox_test.assert_written(OrderPlaced, order_id=number, key="a", count=1)
    outbox_test.assert_written("OrderPlaced", {"count": 1}, headers={"a": "b"})
    outbox_test.assert_written(OrderPlaced(7))
    outbox_test.assert_nothing_written()
    event_id: str | None = outbox_test.write(OrderPlaced(found[0].payload.order_id), key="a")
    failure: Failure = outbox_test.fail("charge", TimeoutError, times=2)
    outbox_test.crash_at("after_handler")
    result: Drained = outbox_test.drain(advance=timedelta(days=1))
    dead: list[DeadEvent] = outbox_test.dead()
    now: datetime = outbox_test.advance("5m")
    print(event_id, failure.count, result.attempts, dead, now)


async def right_async(outbox_test: AsyncOutboxTest) -> None:
    written: list[Written[OrderPlaced]] = await outbox_test.written(OrderPlaced)
    found: list[Written[OrderPlaced]] = await outbox_test.assert_written(OrderPlaced, order_id=7)
    result: Drained = await outbox_test.drain()
    outbox_test.fail("charge", TimeoutError("no line"))
    print(written, found, result.delivered)


def wrong(outbox_test: OutboxTest) -> None:
    print(outbox_test.written(OrderPlaced)[0].payload.total)  # wrong
    outbox_test.crash_at("after_lunch")  # wrong
    outbox_test.fail("charge", "broken")  # wrong
    outbox_test.drain(advance=object())  # wrong
    outbox_test.drain("1d")  # wrong
    number: str = outbox_test.assert_written(OrderPlaced)[0].payload.order_id  # wrong
    print(number)


async def wrong_async(outbox_test: AsyncOutboxTest) -> None:
    outbox_test.assert_written(OrderPlaced)  # wrong
    outbox_test.drain()  # wrong
