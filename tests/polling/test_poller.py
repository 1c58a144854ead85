"""The poller: only as much as there is room for, just when something may be due; what is not taken is given back."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import pytest

from aftercommit import DefaultListenerRegistry, EventEnvelope, EventStatus, Fixed, InvalidOption
from aftercommit.delivery.agenda import EVERYWHERE, FIRST_LOOK
from aftercommit.delivery.chain import Delivery
from aftercommit.events.claims import Claim, ClaimRequest
from aftercommit.events.outcome import Release
from aftercommit.polling import manual
from aftercommit.polling.due import FLOOR_AGE, LookByTime
from aftercommit.polling.poller import OutboxPoller
from tests.delivery.faulty import (
    Ledger,
    Loud,
    Unreachable,
    agenda_of,
    claimed,
    faulty_store,
    keys_of,
    meter_of,
    plain_config,
    router_of,
    short_pauses,  # noqa: F401  (used by every test here)
    until,
    with_runtime,
)
from tests.support import PATIENCE, Collector, Signal, World

Colouring = Callable[[Callable[..., Any]], Callable[..., Any]]

HOUR = timedelta(hours=1)


class Table:
    """Answers claims from a script and keeps the requests."""

    def __init__(self, *answers: Claim | Exception) -> None:
        self.answers = list(answers)
        self.requests = Collector()

    async def claim(self, request: ClaimRequest) -> Claim:
        self.requests.add(request)
        answer = self.answers.pop(0) if self.answers else Claim([])
        if isinstance(answer, Exception):
            raise answer
        return answer


class Taker:
    """Takes what the poller brings, as long as there is room."""

    def __init__(self, *, says: int = 1000, takes: int = 1000) -> None:
        self.says, self.takes = says, takes
        self.taken = Collector()

    def room(self) -> int:
        return self.says

    def handle(self, row: Any) -> bool:
        if len(self.taken) >= self.takes:
            return False
        self.taken.add(row)
        return True


def poller_of(
    runtime: Any, table: Any, taker: Any = None, *, exporter: Any = None, needed: bool = True, **options: Any
) -> tuple[OutboxPoller, Ledger]:
    ledger, meter = Ledger(), meter_of(runtime, exporter)
    names = {"interval": "poll_interval", "max_interval": "max_poll_interval"}
    config = plain_config(**{"poll_interval": HOUR, **{names.get(name, name): each for name, each in options.items()}})
    registry = DefaultListenerRegistry()
    if needed:
        registry.register("Happened", lambda event: None)
    delivery = Delivery(runtime, router_of(registry), meter, config)
    agenda = agenda_of(runtime, interval=config.poll_interval.total_seconds())
    look = LookByTime(runtime, table, config, owner="me")
    poller = OutboxPoller(
        runtime,
        look,
        taker or Taker(),
        delivery,
        agenda,
        ledger,  # type: ignore[arg-type]
        meter,
        config,
    )
    return poller, ledger


async def write(outbox: Any, count: int = 1, **fields: Any) -> list[str]:
    async with outbox.transaction():
        return [await outbox.write("Happened", {"number": number}, **fields) for number in range(count)]


# ---------------------------------------------------------------- how much


@pytest.mark.parametrize(("room", "batch", "asked"), [(1000, 50, 50), (3, 50, 3), (7, 7, 7)])
def test_it_asks_for_what_fits(world: World, room: int, batch: int, asked: int) -> None:
    """C10"""

    async def scenario(runtime: Any) -> None:
        table = Table()
        poller, _ = poller_of(runtime, table, Taker(says=room), batch_size=batch)
        assert await poller.cycle() == 0
        assert [request.limit for request in table.requests] == [asked]

    with_runtime(world, scenario)


@pytest.mark.parametrize(("quick", "asked"), [(60.0, [2, 4, 8, 8]), (0.0, [2, 2, 2, 2])])
def test_a_drain_asks_for_more_while_it_is_quick(
    world: World, monkeypatch: pytest.MonkeyPatch, quick: float, asked: list[int]
) -> None:
    """Where handlers are slow it leaves the rest to others."""
    monkeypatch.setattr(manual, "_QUICK", quick)

    async def scenario() -> None:
        outbox, limits = world.outbox(batch_size=2, cold_queue_capacity=8), []
        outbox.register("Happened", lambda event: None)
        await write(outbox, 30)
        claim = outbox._engine.poller.claim

        async def noted(limit: int) -> Any:
            limits.append(limit)
            return await claim(limit)

        outbox._engine.poller.claim = noted
        assert (await outbox.drain()).delivered == 30
        assert limits[:4] == asked

    world.run(scenario)


@pytest.mark.parametrize("room", [0, -3])
def test_without_room_the_table_is_not_asked(world: World, room: int) -> None:
    """TC-173"""

    async def scenario(runtime: Any) -> None:
        table = Table()
        poller, _ = poller_of(runtime, table, Taker(says=room))
        assert await poller.cycle() is None
        assert table.requests == []

    with_runtime(world, scenario)


def test_without_listeners_the_table_is_not_asked(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        table = Table()
        poller, _ = poller_of(runtime, table, needed=False)
        assert await poller.cycle() == 0
        assert table.requests == []

    with_runtime(world, scenario)


def test_what_is_not_taken_is_given_back_at_once(world: World) -> None:
    """TC-477, F21, TC-483: the cycle ends at the first refusal."""

    async def scenario(runtime: Any) -> None:
        rows = [claimed(runtime) for _ in range(5)]
        taker = Taker(takes=2)
        poller, ledger = poller_of(runtime, Table(Claim(rows)), taker)
        assert await poller.cycle() == 5
        assert keys_of(taker.taken) == keys_of(rows[:2])
        assert [(holding.lease, outcome) for holding, outcome in ledger.entries] == [
            (row.lease, Release()) for row in rows[2:]
        ]

    with_runtime(world, scenario)


def test_what_a_broken_taker_did_not_take_is_given_back_too(world: World) -> None:
    """TC-483: somebody's own handler may raise in the middle of a batch."""

    async def scenario(runtime: Any) -> None:
        rows = [claimed(runtime) for _ in range(4)]

        class Broken(Taker):
            def handle(self, row: Any) -> bool:
                if len(self.taken) == 1:
                    raise RuntimeError("cannot schedule new futures after shutdown")
                return super().handle(row)

        poller, ledger = poller_of(runtime, Table(Claim(rows)), Broken())
        with pytest.raises(RuntimeError, match="after shutdown"):
            await poller.cycle()
        assert [holding.lease for holding, _ in ledger.entries] == [row.lease for row in rows[1:]]

    with_runtime(world, scenario)


def test_rows_that_do_not_fit_are_claimable_at_once(world: World) -> None:
    """TC-170, TC-172, TC-477: over a real table, with the workers blocked."""

    async def scenario() -> None:
        entered, release = Signal(), Signal()

        def listener(event: EventEnvelope) -> None:
            entered.set()
            release.wait_here()

        first = world.outbox(cold_queue_capacity=2, worker_count=1)
        first.register("Happened", listener)
        await write(first, 6)
        async with first:
            await entered.wait()
            await world.until("SELECT count(*) = 3 FROM outbox_event WHERE locked_by IS NOT NULL")
            assert await first.poll() == 0
            engine = first._engine
            claim = (await engine.poller.claim(3)).claim
            assert len(claim.rows) == 3
            engine.poller._hand_over(claim)  # more than there is room for
            await world.until("SELECT count(*) = 3 FROM outbox_event WHERE locked_by IS NULL")
            await until(lambda: len(first._engine.held) == 3)
            release.set()
            await world.until_settled(6)

    world.run(scenario)


def test_a_recent_row_is_skipped(world: World) -> None:
    """TC-169"""

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(skip_recent="1h")
        outbox.register("Happened", seen.add)
        await write(outbox)
        assert await outbox.poll() == 0
        assert world.statuses() == [EventStatus.NEW]
        world.change("UPDATE outbox_event SET created_at = created_at - 3600000000")
        assert await outbox.poll() == 1
        assert len(seen) == 1

    world.run(scenario)


@pytest.mark.parametrize(
    ("option", "value"), [("batch_size", 0), ("poll_interval", 0), ("skip_recent", "-1ms"), ("lock_timeout", 0)]
)
def test_options_that_make_no_sense_are_refused(world: World, option: str, value: Any) -> None:
    """TC-179"""
    with pytest.raises(InvalidOption, match=option):
        world.outbox(**{option: value})


# ---------------------------------------------------------------- when


def test_a_retry_is_not_kept_waiting_by_the_interval(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        seen = Collector()

        def listener(event: EventEnvelope) -> None:
            seen.add(event)
            if len(seen) == 1:
                raise ValueError("not yet")

        outbox = world.outbox(poll_interval="1h", retry_policy=Fixed("200ms"))
        outbox.register("Happened", colour(listener))
        async with outbox:
            await write(outbox)
            await seen.reach(2)
            await world.until_settled(1)
        row = world.rows()[0]
        assert row["done_at"] - row["created_at"] >= 200_000

    world.run(scenario)


def test_a_delayed_event_is_not_kept_waiting_by_the_interval(world: World) -> None:
    """A11: also one that was in the table before the start."""

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(poll_interval="1h")
        outbox.register("Happened", lambda event: seen.add(event.event_id))
        before = await write(outbox, deliver_after="150ms")
        async with outbox:
            after = await write(outbox, deliver_after="50ms")
            await seen.reach(2)
        assert sorted(seen) == sorted(before + after)

    world.run(scenario)


def test_a_wake_up_is_a_look(world: World) -> None:
    async def scenario() -> None:
        store, seen = faulty_store(world), Collector()
        outbox, elsewhere = world.outbox(store, poll_interval="1h"), world.outbox()
        outbox.register("Happened", seen.add)
        async with outbox:
            await store.calls["claim"].reach(1)
            await write(elsewhere)
            outbox._engine.agenda.add(EVERYWHERE)
            await seen.reach(1)

    world.run(scenario)


def test_a_full_batch_is_followed_by_another_look(world: World) -> None:
    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(poll_interval="1h", batch_size=2)
        outbox.register("Happened", seen.add)
        await write(outbox, 7)
        async with outbox:
            await seen.reach(7)
            await world.until_settled(7)

    world.run(scenario)


def test_it_sleeps_until_the_earliest_of_interval_due_time_and_wake_up(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        now = [1000.0]
        runtime.clock = lambda: now[0]
        poller, _ = poller_of(runtime, Table(Claim([], next_due=90.0)), interval=timedelta(seconds=60))
        pauses: list[float | None] = []

        async def watched(predicate: Any, timeout: float | None = None) -> Any:
            pauses.append(timeout)
            now[0] += timeout or 0.0
            return predicate()

        poller.monitor.wait_for = watched  # type: ignore[method-assign]
        await poller.step()
        assert pauses == [], "the first look is at once"
        await poller.step()
        assert pauses == [60.0], "the interval comes before what is due"
        poller._agenda.add(EVERYWHERE, 7.0)
        poller._agenda.add(EVERYWHERE, 9.0)
        await poller.step()
        assert pauses == [60.0, 7.0]
        poller._agenda.add(EVERYWHERE)
        await poller.step()
        assert pauses == [60.0, 7.0]

    with_runtime(world, scenario)


def test_a_due_time_that_comes_while_it_lies_down_is_not_slept_through(world: World) -> None:
    """The plan changes between the look at it and the sleep."""

    async def scenario(runtime: Any) -> None:
        clock, meddle = runtime.clock, Signal()
        poller, _ = poller_of(runtime, Table())
        await poller.step()

        def meddling() -> float:
            if not meddle.is_set:
                meddle.set()
                poller._agenda.add(EVERYWHERE, 0.01)
            return clock()

        runtime.clock = meddling
        stepping = runtime.spawn("poller", poller.step)
        assert await stepping.join(5), "it sleeps for its interval"
        assert meddle.is_set

    with_runtime(world, scenario)


def test_a_due_time_may_come_from_any_thread(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        table = Table()
        poller, _ = poller_of(runtime, table)
        poller.start()
        await table.requests.reach(1)
        thread = threading.Thread(target=poller._agenda.add, args=(EVERYWHERE, 0.001))
        thread.start()
        await table.requests.reach(2)
        thread.join()
        assert await poller.stop(PATIENCE)

    with_runtime(world, scenario)


def test_a_look_that_failed_is_repeated_after_the_pause(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The wake-up that led to it is not spent: with a long interval its event would wait that long."""

    async def scenario(runtime: Any) -> None:
        row = claimed(runtime)
        taker = Taker()
        poller, _ = poller_of(runtime, Table(Unreachable("once"), Unreachable("twice"), Claim([row])), taker)
        poller.start()
        await taker.taken.reach(1)
        assert await poller.stop(PATIENCE)

    with caplog.at_level(logging.WARNING, "aftercommit"):
        with_runtime(world, scenario)
    assert [record.levelname for record in caplog.records] == ["ERROR"], "one line for both: it is one outage"
    assert "aftercommit-poller failed and goes on" in caplog.text


# ---------------------------------------------------------------- commits that nobody sees


def test_rows_whose_commit_cannot_be_seen_are_looked_for_soon(world: World, colour: Colouring) -> None:
    """The commit comes after several looks in vain."""

    async def scenario() -> None:
        store, seen = faulty_store(world), Collector()
        outbox = world.outbox(store, poll_interval="1h")
        outbox.register("Happened", colour(seen.add))
        async with outbox:
            await store.calls["claim"].reach(1)
            connection = sqlite3.connect(world.path, isolation_level=None, timeout=PATIENCE)
            looks = len(store.calls["claim"])
            # A claim cannot get past an open write transaction, so the commit is hidden in another way.
            connection.execute("BEGIN")
            await outbox.write("Happened", {}, tx=connection)
            connection.execute("UPDATE outbox_event SET available_at = available_at + 3600000000")
            connection.execute("COMMIT")
            await store.calls["claim"].reach(looks + 3)
            connection.execute("UPDATE outbox_event SET available_at = 0")
            connection.close()
            await seen.reach(1)
            await world.until_settled(1)

    world.run(scenario)


def test_the_looks_for_unseen_rows_come_less_and_less_often_and_end(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        now = [1000.0]
        runtime.clock = lambda: now[0]
        rows = [claimed(runtime), claimed(runtime)]
        table = Table(Claim([]), Claim([]), Claim([rows[0]]), Claim([]))
        poller, _ = poller_of(runtime, table, interval=timedelta(milliseconds=70))
        pauses: list[float] = []

        async def watched(predicate: Any, timeout: float | None = None) -> Any:
            pauses.append(round(timeout or 0.0, 6))
            now[0] += timeout or 0.0
            return predicate()

        poller.monitor.wait_for = watched  # type: ignore[method-assign]
        await poller.step()
        poller._agenda.expect(keys_of(rows))
        for _ in range(5):
            await poller.step()
        assert pauses == [FIRST_LOOK, 0.01, 0.02, 0.04, 0.07]
        assert poller._agenda._expected == set(), "from here on the interval will do"

    with_runtime(world, scenario)


def test_rows_that_were_found_are_expected_no_more(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        rows = [claimed(runtime), claimed(runtime)]
        poller, _ = poller_of(runtime, Table(Claim(rows)))
        poller._agenda.expect(keys_of(rows))
        await poller.cycle()
        assert poller._agenda._expected == set()
        assert poller._agenda._next_round == float("-inf"), "no look was planned for them"

    with_runtime(world, scenario)


def test_expected_rows_are_remembered_up_to_a_limit(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        poller, _ = poller_of(runtime, Table())
        for number in range(30):
            poller._agenda.expect(f"{number}-{each}" for each in range(1000))
        assert len(poller._agenda._expected) <= 11_000

    with_runtime(world, scenario)


# ---------------------------------------------------------------- listeners


def test_an_outbox_without_listeners_claims_nothing_until_one_is_registered(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        store, seen = faulty_store(world), Collector()
        outbox = world.outbox(store, poll_interval="1h")
        await write(outbox, 2)
        async with outbox:
            assert await outbox.poll() == 0
            assert (await outbox.drain()).is_complete
            assert store.calls["claim"] == []
            assert world.statuses() == [EventStatus.NEW] * 2
            outbox.register("Happened", colour(seen.add))
            await seen.reach(2)
            await world.until_settled(2)

    world.run(scenario)


# ---------------------------------------------------------------- the floor


def test_the_floor_is_passed_on_and_forgotten_after_a_while(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        now = [1000.0]
        runtime.clock = lambda: now[0]
        rows = [claimed(runtime) for _ in range(2)]
        table = Table(Claim(rows, floor="a"), Claim(rows, floor="b"), Claim(rows, floor="c"), Claim([]))
        poller, _ = poller_of(runtime, table, batch_size=2)
        await poller.cycle()
        now[0] += FLOOR_AGE / 2
        await poller.cycle()
        now[0] += FLOOR_AGE
        await poller.cycle()
        await poller.cycle()
        await poller.cycle()
        assert [request.floor for request in table.requests] == [None, "a", None, "c", None]

    with_runtime(world, scenario)


def test_a_look_behind_the_floor_that_found_nothing_is_followed_by_a_whole_one(world: World) -> None:
    """What was passed over may have become free: nobody may sleep on a part of the truth."""

    async def scenario(runtime: Any) -> None:
        rows = [claimed(runtime) for _ in range(2)]
        table = Table(Claim(rows, floor="a"), Claim([]), Claim([rows[0]]))
        poller, _ = poller_of(runtime, table, batch_size=2)
        poller.start()
        await table.requests.reach(3)
        assert await poller.stop(PATIENCE)
        assert [request.floor for request in table.requests] == [None, "a", None]

    with_runtime(world, scenario)


# ---------------------------------------------------------------- rows that are wrong


def test_an_undecodable_row_is_dead_and_the_others_go_on(
    world: World, colour: Colouring, caplog: pytest.LogCaptureFixture
) -> None:
    """TC-178, TC-482; 000 §16.2"""

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox()
        outbox.register("Happened", colour(lambda event: seen.add(event.event_id)))
        written = await write(outbox, 3)
        world.change("UPDATE outbox_event SET headers = 'not-json' WHERE event_id = ?", written[1])
        async with outbox:
            await world.until("SELECT count(*) = 0 FROM outbox_event WHERE status IN (0, 2)")
            assert (await outbox.drain(PATIENCE)).is_complete
            assert (await outbox.stats()).counters["dispatch_dead"] == 1
        assert world.statuses() == [1, 3, 1]
        assert world.rows()[1]["attempts"] == 0
        assert world.rows()[1]["last_error"]
        assert sorted(seen) == sorted([written[0], written[2]])

    with caplog.at_level(logging.WARNING, "aftercommit"):
        world.run(scenario)
    assert {record.levelname for record in caplog.records} == {"ERROR"}
    assert "cannot be decoded" in caplog.text


def test_a_row_that_has_killed_too_often_is_dead(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Promise 4a"""

    async def scenario(runtime: Any) -> None:
        rows = [claimed(runtime, abandoned=abandoned, is_suspect=True) for abandoned in (4, 5, 6)]
        taker = Taker()
        poller, ledger = poller_of(runtime, Table(Claim(rows)), taker, max_abandoned=5)
        assert await poller.cycle() == 3
        assert keys_of(taker.taken) == keys_of(rows[:1])
        assert [outcome.error for _, outcome in ledger.entries] == [
            f"worker lost: {times} processes that delivered this event ended without reporting an outcome"
            for times in (5, 6)
        ]
        assert not any(outcome.counted for _, outcome in ledger.entries)

    with_runtime(world, scenario)


def test_the_times_of_an_event_come_back_exactly(world: World, colour: Colouring) -> None:
    """TC-175, TC-176"""

    async def scenario() -> None:
        seen = Collector()
        now = datetime.now(UTC)
        planned = EventEnvelope(
            "Happened",
            payload_json="{}",
            occurred_at=now - timedelta(seconds=120, microseconds=7),
            available_at=now - timedelta(seconds=30, microseconds=3),
        )
        outbox = world.outbox()
        outbox.register("Happened", colour(seen.add))
        async with outbox.transaction():
            await outbox.write(planned)
            await outbox.write("Happened", {})
        assert await outbox.poll() == 2
        assert (seen[0].occurred_at, seen[0].available_at) == (planned.occurred_at, planned.available_at)
        assert (seen[1].available_at, seen[1].is_delayed) == (None, False)

    world.run(scenario)


# ---------------------------------------------------------------- the gauge


def test_the_lag_is_of_the_oldest_row_and_stays_while_nothing_is_known(world: World) -> None:
    """TC-180"""

    async def scenario(runtime: Any) -> None:
        exporter = Loud()
        rows = [claimed(runtime, age=timedelta(seconds=age)) for age in (1, 12.345, 3)]
        table = Table(Claim(rows), Unreachable("away"), Claim([]))
        taker = Taker()
        poller, _ = poller_of(runtime, table, taker, exporter=exporter)
        await poller.cycle()
        with pytest.raises(Unreachable):
            await poller.cycle()
        taker.says = 0
        await poller.cycle()
        assert exporter.named("record_oldest_lag_ms") == [(12345,)]
        taker.says = 9
        await poller.cycle()
        assert exporter.named("record_oldest_lag_ms") == [(12345,), (0,)]

    with_runtime(world, scenario)


# ---------------------------------------------------------------- cycles that others wait for


def test_next_cycle_is_one_that_began_afterwards(world: World) -> None:
    async def scenario() -> None:
        store = faulty_store(world)
        outbox = world.outbox(store, poll_interval="1h", worker_count=1)
        outbox.register("Happened", lambda event: None)
        elsewhere = world.outbox()
        async with outbox:
            await store.calls["claim"].reach(1)
            fault = store.hold("claim")
            outbox._engine.agenda.add(EVERYWHERE)
            await fault.entered.wait()  # a cycle is under way, and has not seen the row
            await write(elsewhere)
            counts = Collector()

            async def polling() -> None:
                counts.add(await outbox.poll())

            task = outbox._engine.runtime.spawn("polling", polling)
            fault.release.set()
            assert await task.join(PATIENCE)
            # The cycle under way claims the row, or the next one does; what counts is that there was a next one.
            await store.calls["claim"].reach(3)
            await world.until_settled(1)

    world.run(scenario)


def test_next_cycle_does_not_wait_for_a_poller_that_ends(world: World) -> None:
    """poll() in one thread or task, close() in another."""

    async def scenario(runtime: Any) -> None:
        table, counts, waiting = Table(), Collector(), Signal()
        poller, _ = poller_of(runtime, table)
        wait_for = poller.monitor.wait_for

        async def watched(predicate: Any, timeout: float | None = None) -> Any:
            waiting.set()
            return await wait_for(predicate, timeout)

        poller.monitor.wait_for = watched  # type: ignore[method-assign]

        async def polling() -> None:
            counts.add(await poller.next_cycle(None))

        task = runtime.spawn("polling", polling)
        await waiting.wait()
        assert await poller.stop(PATIENCE)
        await counts.reach(1)
        assert counts == [None]
        assert await task.join(PATIENCE)

    with_runtime(world, scenario)


def test_a_cycle_that_failed_has_no_count(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        rows = [claimed(runtime), claimed(runtime)]
        table = Table(Claim(rows), *[Unreachable("away")] * 50)
        poller, _ = poller_of(runtime, table)
        poller.start()
        await table.requests.reach(1)
        assert await poller.next_cycle(PATIENCE) is None
        assert await poller.stop(PATIENCE)

    with_runtime(world, scenario)


def test_a_database_that_was_away_is_read_when_it_is_back(world: World, colour: Colouring) -> None:
    """F109, TC-498: nothing is lost, and health says so meanwhile."""

    async def scenario() -> None:
        store, seen = faulty_store(world), Collector()
        outbox = world.outbox(store, poll_interval="1h")
        outbox.register("Happened", colour(seen.add))
        await write(outbox, 3)
        fault = store.fail("claim", times=inf)
        async with outbox:
            assert outbox.health().is_healthy
            await store.calls["claim"].reach(4)
            problems = outbox.health().problems
            assert [problem.split(" has")[0] for problem in problems] == ["aftercommit-poller"]
            store.heal()
            await world.until_settled(3)
            assert await outbox.poll() == 0
            assert outbox.health().is_healthy
        assert fault.fired >= 3
        assert len(seen) == 3

    world.run(scenario)
