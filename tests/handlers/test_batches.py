"""Handlers that take many events at once: full batches, one outcome each, order per key, a poison found by halves."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

from aftercommit import (
    BatchResult,
    DeadLetter,
    Discard,
    Done,
    EventEnvelope,
    EventInterceptor,
    EventMetadata,
    EventStatus,
    FailureContext,
    Fixed,
    HandlerSet,
    InFlightTracker,
    InvalidHandler,
    InvalidOption,
    MetricsExporter,
    NoRetry,
    Outbox,
    OutboxHandler,
    OutboxTypedHandler,
    RetryAfter,
    RetryAfterError,
    Tracing,
    Unavailable,
    WrongBatchResult,
    any_event,
    current_context,
)
from aftercommit.testing.outbox_test import OutboxTest
from tests.handlers.kit import Colouring, Deliberate, OrderPlaced, declare, drain_all, due_now, rows, write
from tests.ordered.kit import make_ordered
from tests.support import Collector, Signal, World

DONE, RETRY, DEAD, NEW = EventStatus.DONE, EventStatus.RETRY, EventStatus.DEAD, EventStatus.NEW


def number_of(event: EventEnvelope) -> int:
    return int(event.payload_json)


async def put(outbox: Any, numbers: Sequence[int], *, keys: int = 0, kind: str = "A") -> None:
    """Events that are known by their numbers, in one transaction; of so many keys, or of none."""
    async with outbox.transaction():
        for number in numbers:
            await outbox.write(kind, str(number), key=f"k{number % keys}" if keys else None)


class Calls:
    """A handler that keeps the numbers of each call, and answers as it is told."""

    def __init__(self, answer: Any = lambda numbers: None) -> None:
        self.made = Collector()
        self._answer = answer

    def __call__(self, events: list[EventEnvelope]) -> Any:
        numbers = [number_of(event) for event in events]
        self.made.add(numbers)
        return self._answer(numbers)

    @property
    def sizes(self) -> list[int]:
        return [len(each) for each in self.made]

    def times(self, number: int) -> int:
        return sum(number in each for each in self.made)


def refuses(*poisons: int, error: type[BaseException] = Deliberate) -> Any:
    """Fails every call that has one of them."""

    def answer(numbers: list[int]) -> None:
        if found := set(poisons).intersection(numbers):
            raise error(f"cannot take {found}")

    return answer


def told_of(**by_name: Any) -> Any:
    """Answers for some numbers, and that the others are done."""
    wanted = {int(name[1:]): answer for name, answer in by_name.items()}
    return lambda numbers: BatchResult([wanted.get(number) for number in numbers])


# ---------------------------------------------------------------- declaring


def test_what_a_handler_of_batches_may_take() -> None:
    handlers = HandlerSet()

    @handlers.handler(batch=100, linger="5ms")
    def typed(events: list[OrderPlaced], metas: list[EventMetadata]) -> None: ...

    @handlers.handler(batch=1)
    async def sequence(events: Sequence[OrderPlaced]) -> None: ...

    @handlers.handler("A", batch=2)
    def plain(events: list[dict[str, int]]) -> None: ...

    @handlers.handler("B", batch=2)
    def untyped(events, metas): ...  # type: ignore[no-untyped-def]

    @handlers.handler(any_event, batch=2)
    def generic(events: list[EventEnvelope]) -> None: ...

    assert (typed.route_type, typed.takes_metadata, typed.settings.linger) == (OrderPlaced, True, 0.005)
    assert (sequence.route_type, sequence.takes_metadata) == (OrderPlaced, False)
    assert (plain.payload, untyped.payload, generic.payload) == (dict[str, int], EventEnvelope, EventEnvelope)
    assert untyped.takes_metadata


def test_what_cannot_be_a_handler_of_batches_is_refused_with_the_fix() -> None:
    handlers = HandlerSet()

    def single(event: OrderPlaced) -> None: ...
    def one_meta(events: list[OrderPlaced], meta: EventMetadata) -> None: ...
    def many(events: list[OrderPlaced]) -> None: ...

    with pytest.raises(InvalidHandler, match=r"takes OrderPlaced, which is no list\n.*list\[OrderPlaced\]"):
        handlers.handler(batch=10)(single)
    with pytest.raises(
        InvalidHandler, match=r"second parameter .* is annotated EventMetadata\n.*list\[EventMetadata\]"
    ):
        handlers.handler(batch=10)(one_meta)
    with pytest.raises(InvalidHandler, match="names no event type"):
        handlers.handler(many)
    for wrong in (0, 10_001, True, "10"):
        with pytest.raises(InvalidOption, match="from 1 to 10000"):
            handlers.handler(batch=wrong)(many)  # type: ignore[call-overload]
    with pytest.raises(InvalidOption, match="one event at a time"):
        handlers.handler("A", linger="5ms")(many)
    with pytest.raises(WrongBatchResult, match="AC064"):
        BatchResult([None, ValueError])  # type: ignore[list-item]
    with pytest.raises(WrongBatchResult):
        BatchResult(None)  # type: ignore[arg-type]


def test_a_list_without_batch_is_a_payload(world: World) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()

        @outbox.handler("A")
        def numbers(payload: list[int]) -> None:
            seen.add(payload)

        async with outbox.transaction():
            await outbox.write("A", [1, 2])
        await outbox.drain()
        assert seen == [[1, 2]]

    world.run(scenario)


def test_objects_may_be_handlers_of_batches(world: World) -> None:
    seen = Collector()

    class Receipts(OutboxTypedHandler[list[OrderPlaced]]):
        batch = 10

        def handle(self, payload: list[OrderPlaced]) -> None:
            seen.add([each.order_id for each in payload])

    class Audit(OutboxHandler):
        batch = 10

        async def handle(self, payloads: Any, metas: Any) -> None:
            seen.add([(payload.order_id, meta.event_type) for payload, meta in zip(payloads, metas, strict=True)])

    class Wrong(OutboxTypedHandler[OrderPlaced]):
        batch = 10

        def handle(self, payload: OrderPlaced) -> None: ...

    async def scenario() -> None:
        outbox = world.outbox()
        outbox.include(Receipts()).include(Audit())
        with pytest.raises(InvalidHandler, match=r"OutboxTypedHandler\[list\[OrderPlaced\]\]"):
            outbox.include(Wrong())
        await write(outbox, OrderPlaced(1), OrderPlaced(2))
        await outbox.drain()
        assert seen == [[1, 2], [(1, "OrderPlaced"), (2, "OrderPlaced")]]

    world.run(scenario)


# ---------------------------------------------------------------- gathering


def test_under_a_backlog_batches_are_full_and_those_of_others_are_left_to_them(every_world: World) -> None:
    world = every_world

    async def scenario() -> None:
        begun, release, others = Signal(), Signal(), Collector()

        def first_waits(numbers: list[int]) -> None:
            if numbers == [0]:
                begun.set()
                release.wait_here()

        calls, outbox = Calls(first_waits), world.outbox(worker_count=1, poll_interval="1h")
        outbox.handler("A", id="many", batch=100)(calls)
        outbox.handler("B", id="single")(others.add)
        async with outbox:
            await put(outbox, [0])
            await begun.wait()
            async with outbox.transaction():
                for number in range(1, 251):
                    await outbox.write("A", str(number))
                    if not number % 10:
                        await outbox.write("B", str(number))
            release.set()
            await world.until_settled(276)
        assert calls.sizes == [1, 100, 100, 50]
        assert sorted(number for each in calls.made for number in each) == list(range(251))
        assert len(others) == 25

    world.run(scenario)


def test_a_batch_waits_until_it_is_full(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        calls, outbox = Calls(), world.outbox(worker_count=1, poll_interval="1h")
        declare(outbox, colour, calls, batch=3, linger="1h")
        async with outbox:
            for number in range(6):
                await put(outbox, [number])
            await calls.made.reach(2)
            await world.until_settled(6)
        assert calls.made == [[0, 1, 2], [3, 4, 5]]

    world.run(scenario)


def test_a_batch_waits_no_longer_than_it_lingers(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        calls, outbox = Calls(), world.outbox(poll_interval="1h")
        declare(outbox, colour, calls, batch=3, linger="1ms")
        async with outbox:
            await put(outbox, [1])
            await world.until_settled(1)
        assert calls.made == [[1]]

    world.run(scenario)


def test_a_batch_that_waits_is_no_reason_to_wait_with_the_close(world: World) -> None:
    """Promise 15: it is delivered in the time of the drain, or given back."""

    async def scenario() -> None:
        calls, outbox = Calls(), world.outbox(worker_count=2, poll_interval="1h")
        outbox.handler("A", id="h", batch=100, linger="1h")(calls)
        await outbox.start()
        lanes = outbox._engine.lanes
        await put(outbox, range(5), keys=2)
        await world._until(lambda: [len(each.items) for each in lanes._gathering.waiting.values()] == [5], "5", 20)
        assert not lanes.is_quiet
        await outbox.close()
        assert calls.made == [[0, 1, 2, 3, 4]]
        assert world.statuses() == [DONE] * 5

        late = world.outbox(worker_count=2, poll_interval="1h", drain_timeout=0)
        late.handler("A", id="h", batch=100, linger="1h")(calls)
        await late.start()
        await put(late, range(5, 10))
        await late.close()
        assert {row["locked_by"] for row in world.rows()} == {None}
        assert {row["attempts"] for row in world.rows()} == {0}

    world.run(scenario)


def test_with_lease_ahead_off_a_batch_is_what_is_at_hand(world: World) -> None:
    async def scenario() -> None:
        calls, outbox = Calls(), world.outbox(worker_count=3, lease_ahead=False, hot_path=False)
        outbox.handler("A", id="h", batch=100)(calls)
        await put(outbox, range(40))
        async with outbox:
            await world.until_settled(40)
        assert sorted(number for each in calls.made for number in each) == list(range(40))
        assert max(calls.sizes) <= 3

    world.run(scenario)


def test_each_of_several_handlers_has_its_own_batches(world: World) -> None:
    async def scenario() -> None:
        first, second, outbox = Calls(), Calls(refuses(3)), world.outbox()
        outbox.handler("A", id="first", batch=10)(first)
        outbox.handler("A", id="second", batch=4, retry=NoRetry())(second)
        await put(outbox, range(8))
        await outbox.drain()
        assert first.made == [list(range(8))]
        assert second.made == [[0, 1, 2, 3], [0, 1], [2, 3], [2], [3], [4, 5, 6, 7]]
        assert Counter(rows(world)) == {("first", "DONE"): 8, ("second", "DONE"): 7, ("second", "DEAD"): 1}

    world.run(scenario)


def test_a_row_that_serves_several_handlers_goes_alone(world: World) -> None:
    async def scenario() -> None:
        writer = world.outbox(wiring="writer_only")
        await put(writer, range(3))
        calls, others, outbox = Calls(), Collector(), world.outbox()
        outbox.handler("A", id="many", batch=10)(calls)
        outbox.handler("A", id="single")(others.add)
        await outbox.drain()
        assert (calls.made, len(others)) == ([[0], [1], [2]], 3)
        assert world.statuses() == [DONE] * 3

    world.run(scenario)


# ---------------------------------------------------------------- outcomes


def test_one_outcome_for_each(every_world: World, colour: Colouring) -> None:
    world = every_world

    async def scenario() -> None:
        calls = Calls(
            told_of(
                _1=Done(),
                _2=RetryAfter("1h"),
                _3=Deliberate("three"),
                _4=Discard("no"),
                _5=DeadLetter("never"),
                _6=RetryAfterError("1h"),
                _7=Unavailable("shop", "1h"),
            )
        )
        outbox = world.outbox(retry_policy=Fixed("1h"))
        declare(outbox, colour, calls, batch=10)
        await put(outbox, range(8))
        result = await outbox.drain()
        assert calls.made == [list(range(8))]
        assert (result.delivered, result.retried, result.deferred, result.dead) == (3, 2, 2, 1)
        found = [(row["status"], row["attempts"]) for row in world.rows()]
        assert found == [(DONE, 0), (DONE, 0), (RETRY, 0), (RETRY, 1), (DONE, 0), (DEAD, 1), (RETRY, 1), (RETRY, 0)]
        assert "three" in world.rows()[3]["last_error"]
        assert (await outbox.stats()).unavailable == ("shop",)
        (failure,) = await outbox.records.failures(world.rows()[3]["event_id"])
        assert (failure.handler, failure.attempt, failure.message) == ("h", 1, "three")

        due_now(world)
        assert (await outbox.drain()).deferred == 4, "what was not done comes again, and the shop is still away"
        assert len(calls.made) == 1

    world.run(scenario)


@pytest.mark.parametrize("answer", [RetryAfter("1h"), "whatever"])
def test_one_outcome_for_all(world: World, answer: Any) -> None:
    async def scenario() -> None:
        calls, outbox = Calls(lambda _: answer), world.outbox()
        outbox.handler("A", id="h", batch=10)(calls)
        await put(outbox, range(4))
        result = await outbox.drain()
        assert calls.sizes == [4]
        assert (result.deferred, result.delivered) == ((4, 0) if isinstance(answer, RetryAfter) else (0, 4))

    world.run(scenario)


@pytest.mark.parametrize("poison", [0, 37, 63])
def test_one_poison_of_64_is_found_by_halves_and_nobody_else_is_charged(
    world: World, colour: Colouring, poison: int
) -> None:
    async def scenario() -> None:
        calls, outbox = Calls(refuses(poison)), world.outbox(batch_size=64, retry_policy=Fixed("1h"))
        declare(outbox, colour, calls, batch=64)
        await put(outbox, range(64))
        result = await outbox.drain()

        assert (result.delivered, result.retried) == (63, 1)
        assert len(calls.made) == 1 + 2 * 6, "twice the logarithm of 64, and the first"
        assert calls.times(poison) == 1 + 6
        accepted = [number for each in calls.made if poison not in each for number in each]
        assert sorted(accepted) == [number for number in range(64) if number != poison], "each innocent once"
        attempts = {number_of_row(row): row["attempts"] for row in world.rows()}
        assert attempts == {number: int(number == poison) for number in range(64)}

        due_now(world)
        await put(outbox, [100, 101])
        calls.made.clear()
        await outbox.drain()
        assert sorted(calls.made) == [[poison], [100, 101]], "what has failed before goes alone"

    world.run(scenario)


def number_of_row(row: Any) -> int:
    return int(row["payload"])


def test_an_answer_for_another_number_of_events_counts_as_raised(world: World) -> None:
    async def scenario() -> None:
        calls = Calls(lambda numbers: BatchResult([None for number in numbers if number != 2]))
        outbox = world.outbox(retry_policy=NoRetry())
        outbox.handler("A", id="h", batch=4)(calls)
        await put(outbox, range(4))
        await outbox.drain()
        assert calls.made == [[0, 1, 2, 3], [0, 1], [2, 3], [2], [3]]
        assert world.statuses() == [DONE, DONE, DEAD, DONE]
        assert "[AC064] BatchResult has 0 entries, and the handler got 1 events" in world.rows()[2]["last_error"]

    world.run(scenario)


def test_a_payload_that_cannot_be_decoded_fails_alone(world: World) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()

        @outbox.handler("A", batch=10)
        def h(events: list[OrderPlaced]) -> None:
            seen.add([each.order_id for each in events])

        async with outbox.transaction():
            for payload in ({"order_id": 1}, {"order_id": "two"}, {"order_id": 3}):
                await outbox.write("A", payload)
        await outbox.drain()
        assert seen == [[1, 3]]
        assert [(row["status"], row["attempts"]) for row in world.rows()] == [(DONE, 0), (DEAD, 0), (DONE, 0)]

    world.run(scenario)


def test_the_fallback_gets_one_event_at_a_time(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        fallen, outbox = Collector(), world.outbox(retry_policy=NoRetry())
        handler = declare(outbox, colour, Calls(told_of(_1=Deliberate("one"))), batch=10)

        @handler.fallback
        def take_over(event: EventEnvelope, meta: EventMetadata, failure: FailureContext) -> None:
            fallen.add((number_of(event), meta.event_id == event.event_id, str(failure.last_error)))

        await put(outbox, range(3))
        assert (await outbox.drain()).delivered == 3
        assert fallen == [(1, True, "one")]

    world.run(scenario)


def test_a_timeout_costs_all_of_the_call_one_attempt_and_then_each_goes_alone(world: World) -> None:
    async def scenario() -> None:
        calls, outbox = Collector(), world.outbox(retry_policy=Fixed("1h"))

        @outbox.handler("A", batch=10, timeout="50ms")
        async def h(events: list[EventEnvelope]) -> None:
            calls.add([number_of(event) for event in events])
            if len(events) > 1:
                await asyncio.sleep(3600)

        await put(outbox, range(3))
        assert (await outbox.drain()).retried == 3
        assert calls == [[0, 1, 2]]
        due_now(world)
        assert (await outbox.drain()).delivered == 3
        assert sorted(calls[1:]) == [[0], [1], [2]]
        assert {row["attempts"] for row in world.rows()} == {1}

    world.run(scenario)


def test_a_delay_that_was_chosen_for_all_is_no_reason_to_ask_again_at_once(world: World) -> None:
    async def scenario() -> None:
        calls, outbox = Calls(refuses(1, error=lambda _: RetryAfterError("1h"))), world.outbox()  # type: ignore[arg-type]
        outbox.handler("A", id="h", batch=10)(calls)
        await put(outbox, range(3))
        assert (await outbox.drain()).retried == 3
        assert calls.sizes == [3]

    world.run(scenario)


# ---------------------------------------------------------------- limits, outages, and who is told


def test_a_batch_is_one_call_for_limits(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        calls, outbox = Calls(refuses(1)), world.outbox(retry_policy=Fixed("1h"), batch_size=50)
        declare(outbox, colour, calls, batch=4, rate="1/h")
        await put(outbox, range(10))
        result = await outbox.drain()
        assert calls.made == [[0, 1, 2, 3], [0, 1], [0], [1], [2, 3]], "its halves are the same call"
        assert (result.delivered, result.retried, result.deferred) == (3, 1, 6)
        assert sum(row["attempts"] for row in world.rows()) == 1

    world.run(scenario)


def test_calls_at_the_same_time_are_counted_by_batch(world: World) -> None:
    async def scenario() -> None:
        lock, running, most = threading.Lock(), [0], [0]

        def busy(numbers: list[int]) -> None:
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            threading.Event().wait(0.002)
            with lock:
                running[0] -= 1

        calls, outbox = Calls(busy), world.outbox(worker_count=6)
        outbox.handler("A", id="h", batch=5, concurrency=2)(calls)
        async with outbox:
            for start in range(0, 100, 10):
                await put(outbox, range(start, start + 10))
            await world.until_settled(100)
        assert 1 <= most[0] <= 2
        assert {row["attempts"] for row in world.rows()} == {0}

    world.run(scenario)


def test_while_the_destination_is_away_all_wait_and_one_batch_tries(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        is_away = [True]

        def answer(numbers: list[int]) -> None:
            if is_away[0]:
                raise Unavailable("the shop", retry_in="1h")

        calls, outbox = Calls(answer), world.outbox(batch_size=50)
        declare(outbox, colour, calls, batch=4)
        await put(outbox, range(10))
        assert (await outbox.drain()).deferred == 10
        assert calls.sizes == [4], "the others were not called"
        assert (await outbox.stats()).unavailable == ("the shop",)

        is_away[0] = False
        outbox._current().delivery.chain.circuits.known["the shop"]._until = 0.0
        await drain_all(world, outbox)
        assert {row["attempts"] for row in world.rows()} == {0}
        assert (await outbox.stats()).unavailable == ()

    world.run(scenario)


def test_an_outage_in_the_middle_of_halves_ends_them(world: World) -> None:
    async def scenario() -> None:
        def answer(numbers: list[int]) -> None:
            if len(numbers) > 4:
                raise Deliberate
            if len(numbers) > 1:
                raise Unavailable("the shop", retry_in="1h")

        calls, outbox = Calls(answer), world.outbox()
        outbox.handler("A", id="h", batch=8)(calls)
        await put(outbox, range(8))
        assert (await outbox.drain()).deferred == 8
        assert calls.sizes == [8, 4]

    world.run(scenario)


def test_only_events_for_the_same_destination_are_in_one_call_and_keys_keep_their_order(world: World) -> None:
    async def scenario() -> None:
        calls, outbox = Calls(), world.outbox(ordered=True)
        outbox.handler("A", id="h", batch=10, destination=lambda event: "odd" if number_of(event) % 2 else "even")(
            calls
        )
        await put(outbox, [0, 2, 1, 3, 4], keys=1)
        await outbox.drain()
        assert calls.made == [[0, 2], [1, 3], [4]]
        assert world.statuses() == [DONE] * 5

    world.run(scenario)


@pytest.mark.parametrize("destination", [lambda event: 1 / 0, lambda event: [event]])
def test_a_destination_that_makes_no_sense_is_a_failed_attempt(world: World, destination: Any) -> None:
    async def scenario() -> None:
        calls, outbox = Calls(), world.outbox(retry_policy=Fixed("1h"))
        outbox.handler("A", id="h", batch=10, destination=destination)(calls)
        await put(outbox, range(3))
        assert (await outbox.drain()).retried == 3
        assert calls.made == []

    world.run(scenario)


class Told(EventInterceptor, MetricsExporter, Tracing):
    """Keeps what interceptors, exporters and tracings are told."""

    def __init__(self) -> None:
        self.before, self.after, self.results, self.spans = Collector(), Collector(), Collector(), Collector()

    def before_dispatch(self, event: EventEnvelope) -> None:
        if number_of(event) == 9:
            raise Deliberate("not this one")
        self.before.add(number_of(event))

    def after_dispatch(self, event: EventEnvelope, error: BaseException | None) -> None:
        self.after.add((number_of(event), error is not None))

    def delivered(self, told: Any) -> None:
        self.results.add((told.handler_id, told.result))

    def writing(self, events: list[EventEnvelope]) -> Any:
        return events, lambda error: None

    def settling(self, settlements: Any) -> Any:
        return lambda error: None

    def delivering(self, claimed: Any, handler_id: str) -> Any:
        return lambda error: self.spans.add((number_of(claimed.event), error is not None))


def test_interceptors_exporters_and_tracings_hear_of_each_event(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        told, contexts = Told(), Collector()
        outbox = world.outbox(interceptors=[told], metrics=told, tracing=told, retry_policy=NoRetry())

        def h(events: list[EventEnvelope], metas: list[EventMetadata]) -> BatchResult:
            contexts.add(dict(current_context()))
            assert [meta.event_id for meta in metas] == [event.event_id for event in events]
            contexts.add([meta.context.get("tenant") for meta in metas])
            return BatchResult([Deliberate() if number_of(event) == 1 else None for event in events])

        async def coloured(events: list[EventEnvelope], metas: list[EventMetadata]) -> BatchResult:
            return h(events, metas)

        outbox.handler("A", batch=10, id="h")(h if colour(h) is h else coloured)
        async with outbox.transaction():
            for number in (0, 1, 9, 2):
                await outbox.write("A", str(number), context={"tenant": f"t{number}"})
        await outbox.drain()

        assert contexts == [{}, ["t0", "t1", "t2"]], "the call has no context of a single event"
        assert told.before == [0, 1, 2]
        assert sorted(told.after) == [(0, False), (1, True), (2, False)]
        assert sorted(told.spans) == [(0, False), (1, True), (2, False), (9, True)]
        assert Counter(told.results) == {("h", "ok"): 2, ("h", "dead"): 2}
        assert world.statuses() == [DONE, DEAD, DEAD, DONE]

    world.run(scenario)


def test_what_the_tracker_holds_and_what_is_paused_waits_and_the_rest_is_called(world: World) -> None:
    class Tracker(InFlightTracker):
        def __init__(self) -> None:
            self.held = Collector()

        def try_acquire(self, name: str) -> bool:
            self.held.add(name)
            return len(self.held) != 2

        def release(self, name: str) -> None:
            self.held.remove(name)

    async def scenario() -> None:
        calls, tracker = Calls(), Tracker()
        outbox = world.outbox(in_flight_tracker=tracker)
        outbox.handler("A", id="h", batch=10)(calls)
        await put(outbox, range(4))
        assert (await outbox.drain()).deferred == 1
        assert calls.made == [[0, 2, 3]]
        assert len(tracker.held) == 1, "that of the one that was refused, which nobody has to release"

        await outbox.pause(handler="h")
        due_now(world)
        await put(outbox, range(4, 6))
        assert (await outbox.drain()).deferred >= 2
        assert len(calls.made) == 1
        assert {row["attempts"] for row in world.rows()} == {0}

    world.run(scenario)


# ---------------------------------------------------------------- order


def test_behind_one_that_failed_everything_of_its_key_comes_again_uncounted(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        def answer(numbers: list[int]) -> BatchResult:
            is_first = len(calls.made) == 1
            return BatchResult([Deliberate("two") if number == 2 and is_first else None for number in numbers])

        calls = Calls(answer)
        outbox = world.outbox(ordered=True, retry_policy=Fixed("1h"))
        declare(outbox, colour, calls, batch=10)
        await put(outbox, range(8), keys=2)
        await outbox.drain()
        assert [sorted(each) for each in calls.made] == [list(range(8))]
        found = {number_of_row(row): (row["status"], row["attempts"]) for row in world.rows()}
        assert [found[number] for number in (0, 2, 4, 6)] == [(DONE, 0), (RETRY, 1), (NEW, 0), (NEW, 0)]
        assert [found[number] for number in (1, 3, 5, 7)] == [(DONE, 0)] * 4

        due_now(world)
        await outbox.drain()
        assert calls.made[1:] == [[2], [4, 6]]
        assert world.statuses() == [DONE] * 8

    world.run(scenario)


def test_of_a_key_that_failed_in_one_half_nothing_is_called_in_the_other(world: World) -> None:
    async def scenario() -> None:
        calls, outbox = Calls(refuses(0)), world.outbox(ordered=True, retry_policy=Fixed("1h"))
        outbox.handler("A", id="h", batch=8)(calls)
        await put(outbox, range(4), keys=1)
        await outbox.drain()
        assert calls.made == [[0, 1, 2, 3], [0, 1], [0]]
        assert [(row["status"], row["attempts"]) for row in world.rows()] == [(RETRY, 1), *[(NEW, 0)] * 3]
        assert {row["locked_by"] for row in world.rows()} == {None}

    world.run(scenario)


@pytest.mark.parametrize("on_dead", ["block", "continue"])
def test_a_dead_event_in_a_batch_blocks_its_key_or_lets_it_go_on(world: World, on_dead: str) -> None:
    async def scenario() -> None:
        calls, outbox = Calls(told_of(_1=DeadLetter("never"))), world.outbox(ordered=True, on_dead=on_dead)
        outbox.handler("A", id="h", batch=8)(calls)
        await put(outbox, range(3), keys=1)
        await outbox.drain()
        assert world.statuses() == [DONE, DEAD, NEW if on_dead == "block" else DONE]

    world.run(scenario)


def test_order_per_key_holds_over_batches_failures_and_halves(every_world: World) -> None:
    """Promise 8: the first effects of a key come in order, and so do the last ones: what had been called behind a
    failed event was called again behind it."""
    world, total, keys = every_world, 240, 8

    async def scenario() -> None:
        lock, seen = threading.Lock(), Counter[int]()

        def answer(numbers: list[int]) -> Any:
            with lock:
                seen.update(numbers)
                first = [number for number in numbers if seen[number] == 1]
            if any(number % 31 == 7 for number in first):
                raise Deliberate("all of them")
            return BatchResult(
                [Deliberate("this one") if number in first and number % 17 == 5 else None for number in numbers]
            )

        if world.database in ("postgres", "mariadb"):
            make_ordered(world)
        calls = Calls(answer)
        outbox = world.outbox(ordered=True, worker_count=4, poll_interval="50ms", retry_policy=Fixed("5ms"))
        outbox.handler("A", id="h", batch=16, linger="2ms")(calls)
        async with outbox:
            for start in range(0, total, 20):
                await put(outbox, range(start, start + 20), keys=keys)
            await world.until_settled(total, timeout=60)

        firsts, lasts = defaultdict[int, dict[int, int]](dict), defaultdict[int, dict[int, int]](dict)
        moment = 0
        for numbers in calls.made:
            for number in numbers:
                moment += 1
                firsts[number % keys].setdefault(number, moment)
                lasts[number % keys][number] = moment
        for moments in (*firsts.values(), *lasts.values()):
            assert sorted(moments, key=moments.__getitem__) == sorted(moments)
        assert sum(map(len, firsts.values())) == total
        assert max(calls.sizes) > 1

    world.run(scenario)


# ---------------------------------------------------------------- what ends processes and callers


def test_what_may_have_ended_a_process_goes_alone(world: World) -> None:
    """Promise 4a: taken over from one that never reported."""

    async def scenario() -> None:
        calls, outbox = Calls(), world.outbox()
        outbox.handler("A", id="h", batch=10)(calls)
        await put(outbox, range(3))
        world.change("UPDATE outbox_event SET locked_by = 'gone', lease_until = 1")
        await put(outbox, range(3, 6))
        await outbox.drain()
        assert sorted(calls.made) == [[0], [1], [2], [3, 4, 5]]
        assert {row["abandoned"] for row in world.rows()} == {0}

    world.run(scenario)


def test_ctrl_c_in_a_batch_gives_all_of_it_back(tmp_path: Any) -> None:
    world = World("threads", tmp_path)

    async def scenario() -> None:
        outbox = world.outbox()
        outbox.handler("A", id="h", batch=10)(Calls(refuses(2, error=KeyboardInterrupt)))
        await put(outbox, range(12))
        with pytest.raises(KeyboardInterrupt):
            await outbox.drain()
        assert world.statuses() == [NEW] * 12
        assert {(row["locked_by"], row["attempts"]) for row in world.rows()} == {(None, 0)}

    world.run(scenario)


def test_what_waits_for_its_half_is_given_back_when_the_time_of_the_drain_is_over(world: World) -> None:
    """Promise 15: nothing more is begun, and what was begun and is cancelled is not counted."""

    async def scenario() -> None:
        calls, begun = Collector(), Signal()
        outbox = world.outbox(worker_count=1, poll_interval="1h", drain_timeout=0)

        @outbox.handler("A", batch=4, linger="1h")
        async def h(events: list[EventEnvelope]) -> None:
            calls.add([number_of(event) for event in events])
            if len(events) == 4:
                raise Deliberate
            begun.set()
            await asyncio.sleep(3600)

        async with outbox:
            await put(outbox, range(4))
            await begun.wait()
        assert calls == [[0, 1, 2, 3], [0, 1]]
        assert {(row["status"], row["attempts"], row["locked_by"]) for row in world.rows()} == {(NEW, 0, None)}

    world.run(scenario)


def test_a_lease_that_was_lost_before_the_call_is_no_reason_to_start(world: World) -> None:
    async def scenario() -> None:
        calls, outbox = Calls(), world.outbox(worker_count=1, poll_interval="1h")
        outbox.handler("A", id="h", batch=3, linger="1h")(calls)
        async with outbox:
            await put(outbox, [0, 1])
            held, lanes = outbox._engine.held, outbox._engine.lanes
            await world._until(lambda: [len(each.items) for each in lanes._gathering.waiting.values()] == [2], "2", 20)
            (first,) = [each for each in held._rows.values() if number_of(each.claimed.event) == 0]
            first.is_overtaken = True
            await put(outbox, [2])
            await world.until_settled(2)
            assert calls.made == [[1, 2]]

    world.run(scenario)


def test_the_kit_delivers_batches() -> None:
    outbox = Outbox("sqlite://")
    calls = Calls(refuses(2))
    outbox.handler("A", id="h", batch=10, retry=Fixed("1m"))(calls)
    with OutboxTest(outbox) as kit:
        for number in range(4):
            kit.write("A", str(number))
        drained = kit.drain()
        assert calls.made == [[0, 1, 2, 3], [0, 1], [2, 3], [2], [3]]
        assert (drained.attempts, drained.delivered, drained.retried) == (5, 3, 1)
        kit.crash_at("after_handler")
        kit.write("A", "5")
        assert kit.drain().crashed
        assert kit.drain(advance="1h").delivered == 1
