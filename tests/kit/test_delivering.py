"""The kit runs the real engine: handlers of the program, delays, retries, order and crashes, without waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aftercommit import (
    AsyncOutbox,
    Exponential,
    FailureContext,
    Fixed,
    HandlerSet,
    HandlerTimeout,
    InvalidOption,
    OutboxError,
    OutboxTypedHandler,
    RetryAfter,
    Unavailable,
)
from aftercommit.hooks import EventInterceptor
from tests.kit.ways import OrderPaid, OrderPlaced, Way, value

Colour = Callable[[Callable[..., Any]], Callable[..., Any]]


def test_the_program_s_own_handlers_get_what_was_written(way: Way, colour: Colour) -> None:
    outbox, seen = way.outbox(), []
    outbox.handler(OrderPlaced, id="receipt")(colour(seen.append))
    its_store = outbox._store

    async def scenario(kit: Any) -> None:
        await value(kit.write(OrderPlaced(7), key="order-7"))
        assert seen == []
        result = await value(kit.drain())
        assert (result.attempts, result.delivered, result.crashed) == (1, 1, False)
        assert seen == [OrderPlaced(7)]
        assert (await value(kit.drain())).attempts == 0
        assert (await value(kit.written()))[0].status.name == "DONE"

    way.play(outbox, scenario)
    assert outbox._store is its_store, "it is led back"
    assert outbox.config.hot_path


def test_time_stands_still_until_the_test_moves_it_on(way: Way, colour: Colour) -> None:
    outbox, seen = way.outbox(), []
    outbox.handler(OrderPlaced, id="receipt")(colour(seen.append))

    async def scenario(kit: Any) -> None:
        began = kit.now
        assert began == kit.now
        await value(kit.write(OrderPlaced(1), deliver_after="30m"))
        await value(kit.write(OrderPlaced(2), available_at=began + timedelta(days=3)))
        await value(kit.write(OrderPlaced(3)))
        assert (await value(kit.drain())).delivered == 1
        assert kit.advance("29m") == began + timedelta(minutes=29)
        assert (await value(kit.drain())).delivered == 0
        kit.advance("1m")
        assert (await value(kit.drain())).delivered == 1
        assert (await value(kit.drain(advance="7d"))).delivered == 1
        assert [each.order_id for each in seen] == [3, 1, 2]
        assert kit.now == began + timedelta(days=7, minutes=30)
        await value(kit.write(OrderPlaced(4)))
        await value(kit.drain())
        assert len(seen) == 4

    way.play(outbox, scenario)


def test_a_drain_moves_through_all_retries_each_at_its_time(way: Way, colour: Colour) -> None:
    outbox, times, tickets = way.outbox(), [], []

    @outbox.handler(OrderPlaced, retry=Exponential("1s", "1m", max_attempts=8), id="charge")
    @colour
    def charge(event: OrderPlaced) -> None:
        raise AssertionError("it is made to fail before it runs")

    @charge.fallback
    def ticket(event: OrderPlaced, failure: FailureContext) -> None:
        tickets.append(failure.failure_count)

    async def scenario(kit: Any) -> None:
        failure = kit.fail(charge, TimeoutError)
        await value(kit.write(OrderPlaced(1)))
        result = await value(kit.drain())
        assert (result.attempts, result.retried, tickets) == (1, 1, []), "however slow this machine is"
        times.append(kit.now)
        result = await value(kit.drain(advance="1d"))
        assert (result.attempts, result.delivered, result.retried, result.dead) == (7, 1, 6, 0)
        assert [type(error) for error in result.errors] == [TimeoutError] * 7
        assert tickets == [8]
        assert failure.count == 8
        assert kit.now == times[0] + timedelta(days=1)

    way.play(outbox, scenario)


def test_a_failure_ends_after_its_times_or_when_it_is_stopped(way: Way) -> None:
    outbox, seen = way.outbox(retry_policy=Fixed("1m")), []

    @outbox.handler
    def charge(event: OrderPlaced) -> None:
        seen.append(event.order_id)

    async def scenario(kit: Any) -> None:
        kit.fail("charge", ConnectionError("no line"), times=2)
        await value(kit.write(OrderPlaced(1)))
        result = await value(kit.drain(advance="1h"))
        assert (result.attempts, result.delivered, seen) == (3, 1, [1])
        assert [str(error) for error in result.errors] == ["no line", "no line"]
        with kit.fail(charge, ValueError):
            await value(kit.write(OrderPlaced(2)))
            assert (await value(kit.drain())).retried == 1
        assert (await value(kit.drain(advance="1m"))).delivered == 1

    way.play(outbox, scenario)


def test_what_dies_is_shown_and_can_be_replayed(way: Way, colour: Colour) -> None:
    outbox, seen = way.outbox(max_attempts=3, retry_policy=Fixed("1m"), delete_completed=True), []
    outbox.handler(OrderPlaced, id="charge")(colour(seen.append))

    async def scenario(kit: Any) -> None:
        failure = kit.fail("charge", ValueError("no card"))
        event_id = await value(kit.write(OrderPlaced(1)))
        result = await value(kit.drain(advance="1h"))
        assert (result.attempts, result.retried, result.dead) == (3, 2, 1)
        (dead,) = await value(kit.dead())
        assert (dead.event_id, dead.attempts) == (event_id, 3)
        assert "no card" in dead.last_error
        failure.stop()
        if not way.is_async_outbox or way.is_async_test:
            assert await value(outbox.dead.replay(event_id))
            assert (await value(kit.drain())).delivered == 1
            # Written, and delivered, and deleted where the program says so: a test sees it all the same.
            assert [each.status.name for each in await value(kit.written())] == ["DONE"]

    way.play(outbox, scenario)


@pytest.mark.parametrize("point", ["after_claim", "after_handler", "before_settle"])
def test_after_a_crash_the_next_process_delivers_again(way: Way, colour: Colour, point: Any) -> None:
    outbox, seen = way.outbox(), []
    outbox.handler(OrderPlaced, id="charge")(colour(lambda event: seen.append(event.order_id)))

    async def scenario(kit: Any) -> None:
        for number in (1, 2):
            await value(kit.write(OrderPlaced(number)))
        kit.crash_at(point)
        began = kit.now
        result = await value(kit.drain())
        assert (result.crashed, result.delivered) == (True, 0)
        assert seen == {"after_claim": [], "after_handler": [1], "before_settle": [1, 2]}[point]
        assert {each.status.name for each in await value(kit.written())} == {"NEW"}
        assert kit.now == began
        before = len(seen)
        result = await value(kit.drain())
        assert (result.crashed, result.delivered, seen[before:]) == (False, 2, [1, 2])
        assert kit.now == began + timedelta(seconds=30), "the lease of the dead one is over"

    way.play(outbox, scenario)


def test_a_handler_that_kills_every_process_ends_as_a_dead_letter() -> None:
    way = Way("Outbox")
    outbox = way.outbox(max_abandoned=2)
    outbox.handler(OrderPlaced, id="poison")(lambda event: None)

    async def scenario(kit: Any) -> None:
        kit.write(OrderPlaced(1))
        for _ in range(3):
            kit.crash_at("after_handler")
            assert kit.drain().crashed
        assert kit.drain().dead == 1
        assert "worker lost" in kit.dead()[0].last_error

    way.play(outbox, scenario)


def test_a_crash_that_nothing_comes_to_fails_the_test() -> None:
    outbox = Way("Outbox").outbox()
    outbox.handler(OrderPlaced, id="charge")(lambda event: None)

    async def scenario(kit: Any) -> None:
        kit.crash_at("after_handler")
        with pytest.raises(AssertionError, match="nothing came as far as 'after_handler'"):
            kit.drain(advance="1d")
        assert not kit.drain().crashed, "it is not kept for later"
        with pytest.raises(InvalidOption, match="after_claim, after_handler, before_settle"):
            kit.crash_at("after_lunch")

    Way("Outbox").play(outbox, scenario)


def test_an_ordered_outbox_keeps_its_keys_in_order(way: Way, colour: Colour) -> None:
    outbox, seen = way.outbox(ordered=True, retry_policy=Fixed("1m"), schema="shop", serialize_keys=True), []
    outbox.handler(OrderPlaced, id="placed")(colour(lambda event: seen.append(("placed", event.order_id))))
    outbox.handler(OrderPaid, id="paid")(colour(lambda event: seen.append(("paid", event.order_id))))

    async def scenario(kit: Any) -> None:
        kit.fail("placed", ConnectionError, times=2)
        for number in (1, 2):
            await value(kit.write(OrderPlaced(number), key=f"order-{number}"))
            await value(kit.write(OrderPaid(number), key=f"order-{number}"))
        assert (await value(kit.drain())).delivered == 0
        kit.crash_at("after_handler")
        assert (await value(kit.drain(advance="1h"))).crashed
        assert (await value(kit.drain(advance="1h"))).delivered == 4
        for number in (1, 2):
            mine = [name for name, order_id in seen if order_id == number]
            assert mine[-2:] == ["placed", "paid"]
            assert mine[0] == "placed"

    way.play(outbox, scenario)


def test_handlers_of_one_event_are_retried_apart(way: Way, colour: Colour) -> None:
    outbox, seen = way.outbox(retry_policy=Fixed("1m")), []
    for name in ("mail", "audit"):
        outbox.handler(OrderPlaced, id=name)(colour(lambda event, name=name: seen.append(name)))

    async def scenario(kit: Any) -> None:
        kit.fail("mail", ConnectionError, times=1)
        await value(kit.write(OrderPlaced(1)))
        assert (await value(kit.drain())).retried == 1
        (written,) = await value(kit.written(OrderPlaced))
        assert {name: status.name for name, status in written.statuses.items()} == {"mail": "RETRY", "audit": "DONE"}
        assert written.status.name == "RETRY"
        await value(kit.drain(advance="1m"))
        assert seen == ["audit", "mail"]

    way.play(outbox, scenario)


def test_outages_limits_and_wishes_of_handlers_pass_on_the_clock_of_the_test(way: Way) -> None:
    outbox, calls = way.outbox(), []

    @outbox.handler(OrderPlaced, rate="2/s")
    def call(event: OrderPlaced) -> Any:
        calls.append(event.order_id)
        if len(calls) == 1:
            raise Unavailable("bank", retry_in="10m")
        return RetryAfter("1h") if len(calls) == 2 else None

    async def scenario(kit: Any) -> None:
        for number in range(5):
            await value(kit.write(OrderPlaced(number)))
        result = await value(kit.drain())
        assert (result.attempts, result.delivered, result.dead, len(calls)) == (1, 0, 0, 1)
        assert (await value(kit.drain(advance="9m"))).attempts == 0
        result = await value(kit.drain(advance="2h"))
        assert (result.delivered, result.retried) == (5, 0)
        assert sorted(set(calls)) == [0, 1, 2, 3, 4]

    way.play(outbox, scenario)


def test_what_asks_again_for_ever_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = Way("Outbox").outbox()
    outbox.handler(OrderPlaced, id="again")(lambda event: RetryAfter("1s"))
    monkeypatch.setattr("aftercommit.testing.bench._MOMENTS_AT_MOST", 20)

    async def scenario(kit: Any) -> None:
        kit.write(OrderPlaced(1))
        with pytest.raises(AssertionError, match=r"fell due 20 times in one drain, and would go on.*OrderPlaced"):
            kit.drain(advance="1d")

    Way("Outbox").play(outbox, scenario)


def test_a_program_that_starts_its_outbox_is_tested_as_it_is(way: Way) -> None:
    """Nothing is delivered behind the back of the test."""
    outbox, seen = way.outbox(ordered=True), []
    outbox.handler(OrderPlaced, id="receipt")(seen.append)

    async def scenario(kit: Any) -> None:
        if way.is_async_outbox and not way.is_async_test:
            return
        await value(outbox.start())
        assert outbox.is_started
        assert outbox.health().is_healthy
        await value(kit.write(OrderPlaced(1)))
        assert (await value(kit.drain())).delivered == 1
        await value(kit.write(OrderPlaced(2)))
        assert (await value(outbox.drain())).delivered == 1
        await value(outbox.close())
        await value(kit.write(OrderPlaced(3)))
        assert (await value(kit.drain())).delivered == 1
        assert len(seen) == 3

    way.play(outbox, scenario)


def test_a_test_may_fail_from_inside_a_handler() -> None:
    outbox = Way("Outbox").outbox()
    outbox.handler(OrderPlaced, id="charge")(lambda event: pytest.fail("this order must not be charged"))

    async def scenario(kit: Any) -> None:
        kit.write(OrderPlaced(1))
        with pytest.raises(pytest.fail.Exception, match="must not be charged"):
            kit.drain()

    Way("Outbox").play(outbox, scenario)


def test_what_a_handler_writes_is_delivered_by_the_same_drain(way: Way, colour: Colour) -> None:
    outbox, seen = way.outbox(), []

    if way.is_async_outbox:

        @outbox.handler
        async def place(event: OrderPlaced) -> None:
            async with outbox.transaction():
                await outbox.write(OrderPaid(event.order_id))
    else:

        @outbox.handler
        def place(event: OrderPlaced) -> None:
            with outbox.transaction():
                outbox.write(OrderPaid(event.order_id))

    outbox.handler(OrderPaid, id="paid")(colour(seen.append))

    async def scenario(kit: Any) -> None:
        await value(kit.write(OrderPlaced(1)))
        assert (await value(kit.drain())).delivered == 2
        assert seen == [OrderPaid(1)]

    way.play(outbox, scenario)


def test_a_handler_that_hangs_is_past_its_timeout(way: Way) -> None:
    """Timeouts are kept in real time."""
    outbox, is_over = way.outbox(), threading.Event()

    @outbox.handler(OrderPlaced, timeout="10ms")
    def hang(event: OrderPlaced) -> None:
        is_over.wait()

    async def scenario(kit: Any) -> None:
        await value(kit.write(OrderPlaced(1)))
        result = await value(kit.drain())
        assert [type(error) for error in result.errors] == [HandlerTimeout]
        is_over.set()

    way.play(outbox, scenario)


class Marks(EventInterceptor):
    def before_dispatch(self, event: Any) -> None: ...
    def after_dispatch(self, event: Any, error: Any) -> None: ...


handlers = HandlerSet()


class Desk:
    @handlers.handler
    def bill(self, event: OrderPaid) -> None: ...


class Audit(OutboxTypedHandler[OrderPlaced]):
    def handle(self, payload: OrderPlaced, metadata: Any) -> None: ...


class Mailer:
    def on_event(self, event: Any) -> None: ...


def test_whatever_receives_events_can_be_made_to_fail() -> None:
    mailer = Mailer()
    outbox = Way("Outbox").outbox(interceptors=[Marks()], max_attempts=1)
    outbox.register("Heard", mailer)

    @outbox.handler("Placed")
    def place(event: Any) -> None: ...

    @place.fallback
    def instead(event: Any, failure: FailureContext) -> None: ...

    async def scenario(kit: Any) -> None:
        kit.fail(mailer, ValueError)
        kit.fail(place, ValueError)
        kit.fail(instead, OSError)
        kit.write("Heard", 1)
        kit.write("Placed", 1)
        result = kit.drain()
        assert (result.attempts, result.dead) == (2, 2), "neither fallbacks nor interceptors are attempts"
        with pytest.raises(InvalidOption, match=r"plcae is no handler of the outbox under test.*the closest is place"):
            kit.fail("plcae", ValueError)
        with pytest.raises(InvalidOption, match="print is no handler"):
            kit.fail(print, ValueError)
        with pytest.raises(InvalidOption, match="pass an exception, or its class"):
            kit.fail(place, "broken")
        with pytest.raises(InvalidOption, match="fail 0 times"):
            kit.fail(place, ValueError, times=0)
        with pytest.raises(InvalidOption, match="UnicodeDecodeError cannot be made with a text alone"):
            kit.fail(place, UnicodeDecodeError)

    Way("Outbox").play(outbox, scenario)


@pytest.mark.parametrize("named_by", ["the method", "the class", "the id"])
def test_handlers_that_are_methods_or_objects_can_fail_as_well(named_by: str) -> None:
    outbox, desk, audit = Way("Outbox").outbox(max_attempts=1), Desk(), Audit()
    outbox.include(desk)
    outbox.include(audit)

    async def scenario(kit: Any) -> None:
        kit.fail({"the method": desk.bill, "the class": Desk.bill, "the id": "bill"}[named_by], ValueError)
        kit.fail(audit, ValueError)
        kit.write(OrderPaid(1))
        kit.write(OrderPlaced(1))
        assert kit.drain().dead == 2

    Way("Outbox").play(outbox, scenario)


def test_a_program_that_only_writes_has_nothing_to_drain() -> None:
    from aftercommit import Outbox

    outbox = Outbox.writer_only("postgresql://nowhere.invalid/shop")

    async def scenario(kit: Any) -> None:
        kit.write(OrderPlaced(1))
        kit.assert_written(OrderPlaced, order_id=1)
        with pytest.raises(InvalidOption, match="writer-only"):
            kit.drain()

    Way("Outbox").play(outbox, scenario)


def test_a_program_on_redis_writes_without_a_transaction(way: Way) -> None:
    pytest.importorskip("redis")
    outbox, seen = way.outbox("redis://nowhere.invalid"), []
    outbox.handler(OrderPlaced, id="receipt")(seen.append)

    async def scenario(kit: Any) -> None:
        if way.is_async_outbox and not way.is_async_test:
            await value(kit.write(OrderPlaced(1)))
        else:
            await value(outbox.write(OrderPlaced(1)))
        assert (await value(kit.drain())).delivered == 1

    way.play(outbox, scenario)


def test_only_an_outbox_can_be_under_test() -> None:
    from aftercommit.testing import OutboxTest

    with pytest.raises(OutboxError, match="pass the Outbox or AsyncOutbox of your program"):
        OutboxTest("shop")  # type: ignore[arg-type]


def test_the_clock_of_the_test_begins_now() -> None:
    outbox = Way("Outbox").outbox()

    async def scenario(kit: Any) -> None:
        assert abs(kit.now - datetime.now(UTC)) < timedelta(hours=1)
        with pytest.raises(InvalidOption, match="negative"):
            kit.advance("-1s")

    Way("Outbox").play(outbox, scenario)


def test_a_transactional_handler_is_called_counted_and_failed_as_any_other(way: Way) -> None:
    outbox, seen = way.outbox(), []

    def reserve(event, tx):  # type: ignore[no-untyped-def]
        seen.append("reserve")

    async def reserve_async(event, tx):  # type: ignore[no-untyped-def]
        seen.append("reserve")
        await outbox.write("Next", {})

    is_async = isinstance(outbox, AsyncOutbox)
    handler = outbox.handler("A", id="reserve", transactional=True, retry=Fixed("1s"))(
        reserve_async if is_async else reserve
    )

    async def scenario(kit: Any) -> None:
        await value(kit.write("A", {}))
        with kit.fail(handler, ValueError("no luck")):
            assert (await value(kit.drain())).retried == 1
        kit.advance("1s")
        result = await value(kit.drain())
        assert (result.attempts, result.delivered, seen) == (1, 1, ["reserve"])

    way.play(outbox, scenario)
