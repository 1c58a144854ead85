"""Each assertion holds when it should and fails when it should, and says what was written instead."""

from __future__ import annotations

import asyncio
import gc
from enum import StrEnum
from typing import Any, TypedDict
from unittest.mock import ANY

import msgspec
import pytest

from aftercommit import NotAwaited, outbox_event
from aftercommit.testing import AsyncOutboxTest
from tests.kit.ways import OrderPaid, OrderPlaced, Way, value


class Kind(StrEnum):
    LEGACY = "order.legacy"


class Moved(msgspec.Struct):
    place: str


@outbox_event(type="stock.counted")
class Counted(msgspec.Struct):
    count: int
    key: str


class Draft(TypedDict):
    page: int


def refused(asked: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        asked()
    return str(caught.value)


def test_what_was_written_is_found_by_class_type_fields_key_and_headers(way: Way) -> None:
    outbox = way.outbox()

    async def scenario(kit: Any) -> None:
        await value(kit.assert_nothing_written())
        await value(kit.write(OrderPlaced(7, 100), key="order-7", headers={"tenant": "a"}))
        await value(kit.write(OrderPlaced(8), key=8))
        await value(kit.write(Kind.LEGACY, {"id": 6}))
        await value(kit.write(Moved("Oslo")))
        await value(kit.write(Counted(3, "screws")))
        await value(kit.write("Draft", {"page": 2}))
        await value(kit.write("Blob", b"\x00\xff"))
        (placed,) = await value(kit.assert_written(OrderPlaced, order_id=7, key="order-7", headers={"tenant": "a"}))
        assert (placed.payload, placed.event.key) == (OrderPlaced(7, 100), "order-7")
        await value(kit.assert_written(OrderPlaced, count=2))
        await value(kit.assert_written("OrderPlaced", total=0, key=8))
        await value(kit.assert_written(OrderPlaced(7, 100)))
        await value(kit.assert_written(OrderPlaced, order_id=ANY, total=100, count=1))
        await value(kit.assert_written(Kind.LEGACY, id=6))
        await value(kit.assert_written(Moved, place="Oslo"))
        await value(kit.assert_written(Counted, {"count": 3, "key": "screws"}, count=1))
        await value(kit.assert_written(Draft, page=2))
        await value(kit.assert_written(OrderPaid, count=0))
        await value(kit.assert_nothing_written(OrderPaid))
        types = [each.event.event_type for each in await value(kit.written())]
        assert types == [
            *("OrderPlaced", "OrderPlaced", "order.legacy", "Moved", "stock.counted", "Draft", "Blob"),
        ]
        assert [each.payload.order_id for each in await value(kit.written(OrderPlaced))] == [7, 8]
        assert [each.payload for each in await value(kit.written("Blob"))] == [b"\x00\xff"]
        with pytest.raises(AssertionError, match=r"^nothing was to be written\nwhat was written \(7\):\n  1\. OrderPl"):
            await value(kit.assert_nothing_written())
        with pytest.raises(AssertionError, match="no OrderPlaced with order_id=9 was written"):
            await value(kit.assert_written(OrderPlaced, order_id=9))

    way.play(outbox, scenario)


def test_a_rolled_back_event_was_not_written(way: Way) -> None:
    outbox = way.outbox()

    async def scenario(kit: Any) -> None:
        if way.name == "AsyncOutbox in a sync test":
            return
        with pytest.raises(ZeroDivisionError):
            if way.is_async_test:
                async with outbox.transaction():
                    await outbox.write(OrderPlaced(1))
                    raise ZeroDivisionError
            else:
                with outbox.transaction() as tx:
                    tx.execute("CREATE TABLE orders (id INTEGER)")
                    outbox.write(OrderPlaced(1))
                    raise ZeroDivisionError
        await value(kit.assert_nothing_written())

    way.play(outbox, scenario)


def test_a_failed_assertion_tells_the_nearest_miss_and_all_that_was_written() -> None:
    outbox = Way("Outbox").outbox()

    @outbox.handler
    def place(event: OrderPlaced) -> None: ...

    async def scenario(kit: Any) -> None:
        assert refused(lambda: kit.assert_written(OrderPlaced)) == "no OrderPlaced was written\nnothing was written"
        kit.write(OrderPlaced(6, 100), key="order-6")
        kit.write(OrderPlaced(8, 100), key="order-7")
        kit.write("order.legacy", {"id": 6})
        kit.drain()
        shown = (
            "what was written (3):\n"
            "  1. OrderPlaced(order_id=6, total=100) key='order-6' DONE\n"
            "  2. OrderPlaced(order_id=8, total=100) key='order-7' DONE\n"
            "  3. order.legacy {'id': 6} RETRY"
        )
        assert refused(lambda: kit.assert_written(OrderPlaced, order_id=7, total=100, key="order-7")) == (
            "no OrderPlaced with order_id=7, total=100, key='order-7' was written\n"
            "the nearest is number 2:\n"
            f"    order_id: expected 7, was 8\n{shown}"
        )
        assert refused(lambda: kit.assert_written(OrderPlaced(8, 99))) == (
            "no OrderPlaced(order_id=8, total=99) was written\n"
            "the nearest is number 2:\n"
            f"    total: expected 99, was 100\n{shown}"
        )
        assert refused(lambda: kit.assert_written(OrderPlaced, ordr_id=8)) == (
            "no OrderPlaced with ordr_id=8 was written\n"
            "the nearest is number 1:\n"
            f"    ordr_id: expected 8, and there is no such field; order_id is one\n{shown}"
        )
        assert refused(lambda: kit.assert_written(OrderPlaced, headers={"tenant": "a"})).startswith(
            "no OrderPlaced with header tenant='a' was written\n"
            "the nearest is number 1:\n"
            "    header tenant: expected 'a', was None\n"
        )
        assert refused(lambda: kit.assert_written("OrderPlacd")) == (
            f"no OrderPlacd was written\n  no event of that type was written; the closest is OrderPlaced\n{shown}"
        )
        assert refused(lambda: kit.assert_written(OrderPlaced, total=100, count=3)) == (
            f"OrderPlaced with total=100 was expected 3 times and written 2 times\n{shown}"
        )
        assert refused(lambda: kit.assert_written(OrderPlaced, count=1)) == (
            f"OrderPlaced was expected 1 time and written 2 times\n{shown}"
        )
        assert refused(lambda: kit.assert_nothing_written("order.legacy")) == (
            "no order.legacy was to be written\nwhat was written (1):\n  1. order.legacy {'id': 6} RETRY"
        )

    Way("Outbox").play(outbox, scenario)


def test_a_long_list_is_cut() -> None:
    outbox = Way("Outbox").outbox()

    async def scenario(kit: Any) -> None:
        with outbox.transaction():
            outbox.write_all(OrderPlaced(number) for number in range(25))
        assert refused(kit.assert_nothing_written).endswith("\n  … and 5 more")

    Way("Outbox").play(outbox, scenario)


def test_an_assertion_that_is_not_awaited_fails_the_test() -> None:
    """It would else hold whatever was written."""
    outbox = Way("AsyncOutbox in an async test").outbox()

    async def main() -> None:
        with pytest.raises(NotAwaited, match=r"assert_written\(\), drain\(\) of outbox_test was never awaited"):  # noqa: SIM117
            with AsyncOutboxTest(outbox) as kit:
                await kit.assert_nothing_written()
                kit.assert_written(OrderPlaced)
                kit.drain()

    asyncio.run(main())
    gc.collect()
