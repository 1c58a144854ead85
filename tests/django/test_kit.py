"""The test kit in Django: in the atomic block of a TestCase, on each database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from aftercommit import Fixed
from aftercommit.testing import OutboxTest
from tests.databases import Database
from tests.django import kit
from tests.django.shop.models import Order

Make = Callable[..., Any]


@dataclass
class OrderPlaced:
    number: int


def test_the_kit_works_in_the_block_of_a_test_case(alias: str, make_outbox: Make, somebody: Database) -> None:
    outbox, seen = make_outbox(alias, retry_policy=Fixed("1m"), delete_completed=True), []
    its_store = outbox._store

    @outbox.handler(OrderPlaced, timeout="1m")
    def place(event: OrderPlaced) -> None:
        seen.append((event.number, Order.objects.using(alias).count()))

    @outbox.handler("Placed")
    async def announce(event: Any) -> None:
        seen.append(("announced", await Order.objects.using(alias).acount()))

    def test(case: Any) -> None:
        with OutboxTest(outbox) as outbox_test:
            outbox_test.assert_nothing_written()
            with transaction.atomic(using=alias):
                Order.objects.using(alias).create(number=7)
                outbox.write(OrderPlaced(7), key="order-7")
            outbox.write("Placed", {}, deliver_after="1h")
            outbox_test.assert_written(OrderPlaced, number=7, key="order-7", count=1)
            outbox_test.fail(place, ConnectionError, times=2)
            result = outbox_test.drain()
            assert (result.attempts, result.retried, seen) == (1, 1, [])
            result = outbox_test.drain(advance="59m")
            assert (result.attempts, result.delivered, seen) == (2, 1, [(7, 1)])
            outbox_test.crash_at("after_handler")
            assert outbox_test.drain(advance="1m").crashed
            assert outbox_test.drain().delivered == 1
            assert seen == [(7, 1), ("announced", 1), ("announced", 1)]
            outbox_test.write(OrderPlaced(8))
            outbox_test.fail(place, ValueError("no paper"))
            assert outbox_test.drain(advance="1d").dead == 1
            assert "no paper" in outbox_test.dead()[0].last_error

    kit.in_test_case(alias, test)
    assert outbox._store is its_store
    assert somebody.read("SELECT event_id FROM outbox_event") == []


def test_a_database_in_memory_needs_no_block(memory_alias: str, make_outbox: Make) -> None:
    outbox, seen = make_outbox(memory_alias), []
    outbox.register("Placed", lambda event: seen.append(event.payload_json))
    with OutboxTest(outbox) as outbox_test:
        outbox_test.write("Placed", 1)
        assert outbox_test.drain().delivered == 1
    assert seen == ["1"]
