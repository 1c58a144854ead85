"""Outages: a destination that is away costs no attempts, and one event at a time looks whether it is back."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aftercommit import Unavailable
from aftercommit.events.envelope import EventStatus
from tests.handlers.kit import Colouring, OrderPlaced, declare, due_now, write
from tests.support import Collector, Signal, World


class Shop:
    """A destination that may be away."""

    def __init__(self, name: str = "shop", retry_in: Any = "1h") -> None:
        self.name = name
        self.retry_in = retry_in
        self.is_away = True
        self.calls = Collector()

    def __call__(self, event: Any) -> None:
        self.calls.add(event)
        if self.is_away:
            raise Unavailable(self.name, self.retry_in) from ConnectionError("refused")


def pass_time(outbox: Any) -> None:
    """The pause of every circuit is over."""
    for circuit in outbox._current().delivery.chain.circuits.known.values():
        circuit._until = float("-inf")


def test_its_events_wait_and_spend_no_attempts(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        shop, others, outbox = Shop(), Collector(), world.outbox(max_attempts=1)
        declare(outbox, colour, shop)
        declare(outbox, colour, others.add, "B", id="other")
        await write(outbox, "A", "A", "A", "B")
        await outbox.drain()
        # The first one found out, and nobody is tried after it.
        assert (len(shop.calls), len(others)) == (1, 1)
        assert world.statuses() == [EventStatus.RETRY] * 3 + [EventStatus.DONE]
        assert {row["attempts"] for row in world.rows()} == {0}
        assert (await outbox.stats()).unavailable == ("shop",)
        assert all(row["available_at"] - row["created_at"] > 3500e6 for row in world.rows()[:3])

    world.run(scenario)


def test_one_event_looks_whether_it_is_back_and_then_all_go_on(
    world: World, colour: Colouring, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        shop, outbox = Shop(), world.outbox()
        declare(outbox, colour, shop)
        await write(outbox, "A", "A", "A")
        await outbox.drain()
        for calls in (2, 3):  # still away: one call for each look
            pass_time(outbox)
            due_now(world)
            await outbox.drain()
            assert len(shop.calls) == calls
        shop.is_away = False
        pass_time(outbox)
        due_now(world)
        with caplog.at_level(logging.INFO):
            await outbox.drain()
        assert len(shop.calls) == 6
        assert world.statuses() == [EventStatus.DONE] * 3
        assert (await outbox.stats()).unavailable == ()
        assert "shop is back" in caplog.text

    world.run(scenario)


def test_there_is_one_look_at_a_time(world: World) -> None:
    async def scenario() -> None:
        shop, probing, release = Shop(), Signal(), Signal()
        outbox = world.outbox(worker_count=4, poll_interval="1h")

        def handler(event: Any) -> None:
            if len(shop.calls) == 1:
                shop.calls.add(event)
                probing.set()
                release.wait_here()
                return
            shop(event)

        outbox.handler("A", id="h")(handler)
        await write(outbox, "A")
        await outbox.drain()
        pass_time(outbox)
        engine = outbox._current()
        circuits = engine.delivery.chain.circuits
        async with outbox:
            fresh = outbox._engine.delivery.chain.circuits
            fresh.known, fresh._destinations = circuits.known, circuits._destinations
            await write(outbox, *["A"] * 5)
            await probing.wait()
            await world.until("SELECT count(*) >= 4 FROM outbox_event WHERE status = 2 AND locked_by IS NULL")
            assert len(shop.calls) == 2
            shop.is_away = False
            release.set()
            await world.until_settled(5)

    world.run(scenario)


def test_another_error_says_that_the_destination_is_there(world: World) -> None:
    async def scenario() -> None:
        shop, outbox = Shop(), world.outbox()

        def handler(event: Any) -> None:
            if not shop.is_away:
                raise ValueError("refused by the shop")
            shop(event)

        outbox.handler("A", id="h")(handler)
        await write(outbox, "A", "A")
        await outbox.drain()
        shop.is_away = False
        pass_time(outbox)
        due_now(world)
        await outbox.drain()
        assert [row["attempts"] for row in world.rows()] == [1, 1]
        assert (await outbox.stats()).unavailable == ()

    world.run(scenario)


def test_handlers_of_one_destination_wait_together_and_others_do_not(world: World) -> None:
    async def scenario() -> None:
        shop, bank = Shop(), Shop("bank")
        outbox = world.outbox()
        outbox.handler("A", id="one")(shop)
        outbox.handler("B", id="two")(shop)
        outbox.handler("C", id="three")(bank)
        await write(outbox, "A", "B", "C")
        await outbox.drain()
        assert (len(shop.calls), len(bank.calls)) == (2, 1)  # each handler tells once where it goes
        pass_time(outbox)
        due_now(world)
        bank.is_away = False
        await outbox.drain()
        assert (len(shop.calls), len(bank.calls)) == (3, 2)

    world.run(scenario)


def hooks(outbox: Any, away: set[str], **options: Any) -> Collector:
    """A handler that talks to many: each event says to whom."""
    seen = Collector()

    def webhook(event: Any) -> None:
        customer = event.headers["customer"]
        seen.add(customer)
        if customer in away:
            raise Unavailable(customer, "1h")

    outbox.handler("Hook", id="webhook", **options)(webhook)
    return seen


def test_a_handler_may_say_for_whom_an_event_is(world: World) -> None:
    """Webhooks: one customer's server must not stop the events of the others."""

    async def scenario() -> None:
        outbox = world.outbox()
        seen = hooks(outbox, {"a", "b"}, destination=lambda event: event.headers["customer"])
        for customer in "aabbcc":
            await write(outbox, "Hook", headers={"customer": customer})
        await outbox.drain()
        assert seen == ["a", "b", "c", "c"]
        assert {row["attempts"] for row in world.rows()} == {0}
        assert (await outbox.stats()).unavailable == ("a", "b")

    world.run(scenario)


def test_a_handler_that_has_named_two_destinations_has_no_circuit(world: World) -> None:
    """Which one an event is for, only it knows: each event waits by itself."""

    async def scenario() -> None:
        outbox = world.outbox()
        seen = hooks(outbox, {"a", "b"})
        await write(outbox, "Hook", headers={"customer": "a"})
        await outbox.drain()
        pass_time(outbox)
        for customer in "bc":
            await write(outbox, "Hook", headers={"customer": customer})
        await outbox.drain()
        assert seen == ["a", "b", "c"]
        assert {row["attempts"] for row in world.rows()} == {0}
        assert (await outbox.stats()).unavailable == ()

    world.run(scenario)


def test_a_destination_that_cannot_be_told_is_a_failed_attempt(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        outbox.handler("A", id="h", destination=lambda event: event.headers["customer"])(print)
        await write(outbox, "A")
        await outbox.drain()
        row = world.rows()[0]
        assert (row["status"], row["attempts"], row["last_error"]) == (2, 1, "KeyError: 'customer'")

    world.run(scenario)


def test_a_timeout_is_no_sign_of_life(world: World) -> None:
    async def scenario() -> None:
        shop, outbox = Shop(), world.outbox()

        async def handler(event: Any) -> None:
            if not shop.is_away:
                await asyncio.Event().wait()
            shop(event)

        outbox.handler("A", id="h", timeout="300ms")(handler)
        await write(outbox, "A", "A")
        await outbox.drain()
        shop.is_away = False
        pass_time(outbox)
        due_now(world)
        await outbox.drain()
        assert sorted(row["attempts"] for row in world.rows()) == [0, 1]
        assert (await outbox.stats()).unavailable == ("shop",)

    world.run(scenario)


def test_the_pause_is_what_the_error_says_or_grows_by_itself(world: World) -> None:
    async def scenario() -> None:
        shop, outbox = Shop(retry_in=None), world.outbox()
        outbox.handler("A", id="h")(shop)
        await write(outbox, "A")
        pauses = []
        for _ in range(3):
            due_now(world)
            before = world.rows("SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)")[0][0]
            await outbox.drain()
            pauses.append(round(world.rows()[0]["available_at"] / 1e6 - before / 1e3))
            pass_time(outbox)
        assert pauses == [1, 2, 4]

    world.run(scenario)


def test_a_probe_that_nobody_here_can_read_makes_room_for_the_next(world: World) -> None:
    async def scenario() -> None:
        shop, outbox = Shop(), world.outbox(unroutable_grace=None)
        outbox.handler(OrderPlaced, id="h")(shop)
        await write(outbox, OrderPlaced(1))
        await outbox.drain()
        shop.is_away = False
        pass_time(outbox)
        await write(outbox, OrderPlaced(2), OrderPlaced(3))
        world.change("UPDATE outbox_event SET payload_version = 9 WHERE position = 2")
        await outbox.drain()
        assert shop.calls == [OrderPlaced(1), OrderPlaced(3)]

    world.run(scenario)


def test_a_suspect_is_not_put_off(world: World) -> None:
    """Promise 4a: a deferral before it has begun would forget what it may have killed."""

    async def scenario() -> None:
        shop, outbox = Shop(), world.outbox()
        outbox.handler("A", id="h")(shop)
        await write(outbox, "A", "A", "A")
        world.change("UPDATE outbox_event SET abandoned = 1 WHERE position = 3")
        await outbox.drain()
        assert len(shop.calls) == 2

    world.run(scenario)


def test_listeners_have_destinations_of_their_own(world: World) -> None:
    async def scenario() -> None:
        shop, seen, outbox = Shop(), Collector(), world.outbox()
        outbox.register("A", shop).register("B", seen.add)
        await write(outbox, "A", "A", "B")
        await outbox.drain()
        assert (len(shop.calls), len(seen)) == (1, 1)

    world.run(scenario)


def test_a_probe_that_cannot_be_decoded_says_nothing(world: World) -> None:
    async def scenario() -> None:
        shop, outbox = Shop(), world.outbox()
        outbox.handler(OrderPlaced, id="h")(shop)
        await write(outbox, OrderPlaced(1))
        await outbox.drain()
        pass_time(outbox)
        await write(outbox, OrderPlaced(2))
        world.change("UPDATE outbox_event SET payload = '7' WHERE position = 2")
        await outbox.drain()
        assert world.statuses() == [EventStatus.RETRY, EventStatus.DEAD]
        assert (await outbox.stats()).unavailable == ("shop",)

    world.run(scenario)
