"""Tests of the shop: no server, no sleeping, and its own handlers. Run them with `pytest examples/tested_shop`."""

from __future__ import annotations

import pytest
from shop import OrderPlaced, charge, charged, leave_basket, mails, place_order, tickets

from aftercommit.testing import OutboxTest


def test_an_order_is_announced(outbox_test: OutboxTest) -> None:
    place_order(7, total=4200)
    outbox_test.assert_written(OrderPlaced, order_id=7, key="order-7", count=1)


def test_a_refused_order_is_not(outbox_test: OutboxTest) -> None:
    with pytest.raises(ValueError, match="costs something"):
        place_order(7, total=0)
    outbox_test.assert_nothing_written()


def test_an_order_is_charged(outbox_test: OutboxTest) -> None:
    place_order(7, total=4200)
    assert outbox_test.drain().delivered == 1
    assert list(charged.values()) == [4200]


def test_a_bank_that_never_answers_ends_as_a_ticket(outbox_test: OutboxTest) -> None:
    outbox_test.fail(charge, TimeoutError)
    place_order(7, total=4200)
    result = outbox_test.drain(advance="1d")
    assert (result.attempts, result.dead) == (8, 0)
    assert tickets == ["order 7 could not be charged"]


def test_nobody_pays_twice_when_a_process_dies(outbox_test: OutboxTest) -> None:
    place_order(7, total=4200)
    outbox_test.crash_at("after_handler")
    assert outbox_test.drain().crashed
    assert outbox_test.drain().delivered == 1
    assert list(charged.values()) == [4200]


def test_a_reminder_comes_a_day_later(outbox_test: OutboxTest) -> None:
    leave_basket()
    outbox_test.drain(advance="23h")
    assert mails == []
    outbox_test.drain(advance="1h")
    assert mails == ["your basket waits"]
