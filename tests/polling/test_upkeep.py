"""What people do with rows that ended: dead letters and purges."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import Any

import pytest

from aftercommit import EventEnvelope, EventStatus, InvalidName, InvalidOption, NoRetry
from aftercommit.config import OutboxConfig, Wiring
from aftercommit.events.records import EventFilter
from aftercommit.polling.upkeep import DeadEvents, Purge
from tests.delivery.faulty import Unreachable, with_runtime
from tests.support import PATIENCE, Collector, World

Colouring = Callable[[Callable[..., Any]], Callable[..., Any]]

DAY = 86_400_000_000


class Kind(Enum):
    BILLED = 1


async def die(world: World, outbox: Any, *events: tuple[str, str]) -> list[str]:
    """Rows that ran out of attempts, one per (event type, aggregate type)."""
    async with outbox.transaction():
        ids = [await outbox.write(kind, {"n": 1}, aggregate_type=aggregate) for kind, aggregate in events]
    world.change(
        "UPDATE outbox_event SET status = 3, attempts = 10, last_error = 'ValueError: no', done_at = created_at "
        "WHERE status = 0"
    )
    return ids


async def age(world: World, outbox: Any, *ages: tuple[int, int]) -> None:
    """Rows of a status that were written, and ended, so many days ago."""
    async with outbox.transaction():
        await outbox.write_all([EventEnvelope.of_json("Happened", "{}") for _ in ages])
    for row, (status, days) in zip(world.rows("SELECT position FROM outbox_event ORDER BY 1"), ages, strict=True):
        world.change(
            "UPDATE outbox_event SET status = ?1, created_at = created_at - ?2, available_at = available_at - ?2, "
            "done_at = CASE WHEN ?1 IN (1, 3) THEN created_at - ?2 END WHERE position = ?3",
            status,
            days * DAY,
            row["position"],
        )


# ---------------------------------------------------------------- dead letters


def test_dead_events_are_found_by_type_oldest_first(world: World) -> None:
    """C17"""

    async def scenario() -> None:
        outbox = world.outbox()
        ids = await die(world, outbox, ("Paid", "Order"), ("BILLED", "Order"), ("Paid", "User"), ("Paid", "Order"))
        assert [event.event_id for event in await outbox.dead.query()] == ids
        assert [event.event_id for event in await outbox.dead.query(limit=2)] == ids[:2]
        assert [event.event_id for event in await outbox.dead.query(event_type="Paid", aggregate_type="Order")] == [
            ids[0],
            ids[3],
        ]
        assert [event.event_id for event in await outbox.dead.query(event_type=Kind.BILLED)] == [ids[1]]
        assert await outbox.dead.count() == 4
        assert await outbox.dead.count(aggregate_type="User") == 1
        first = (await outbox.dead.query(limit=1))[0]
        assert (first.attempts, first.last_error, first.payload) == (10, "ValueError: no", '{"n":1}')

    world.run(scenario)


def test_a_replayed_event_is_new_and_delivered_soon(world: World, colour: Colouring) -> None:
    """Promise 7: with all its attempts, under a new epoch; the poller is told."""

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(poll_interval="1h", retry_policy=NoRetry())
        outbox.register("Paid", colour(seen.add))
        (event_id,) = await die(world, outbox, ("Paid", "__GLOBAL__"))
        async with outbox:
            assert await outbox.poll() == 0
            before = world.rows()[0]["lease_epoch"]
            assert await outbox.dead.replay(event_id) is True
            await seen.reach(1)
            await world.until_settled(1)
            assert await outbox.dead.replay(event_id) is False, "it is not dead"
            assert await outbox.dead.replay("unknown") is False
        row = world.rows()[0]
        assert (row["attempts"], row["last_error"]) == (0, None)
        assert row["lease_epoch"] > before

    world.run(scenario)


def test_all_dead_events_are_replayed_in_batches(world: World) -> None:
    """TC-215"""

    async def scenario() -> None:
        outbox = world.outbox()
        await die(world, outbox, *[("Paid", "Order")] * 3, ("Billed", "Order"))
        assert await outbox.dead.replay_all(event_type="Paid", batch_size=2) == 3
        assert world.statuses() == [0, 0, 0, 3]
        assert await outbox.dead.replay_all() == 1
        assert await outbox.dead.replay_all() == 0

    world.run(scenario)


def test_an_event_that_dies_again_is_not_replayed_again(world: World) -> None:
    """TC-218: one walk over the dead, by position; never round in circles."""

    async def scenario(runtime: Any) -> None:
        asked = Collector()

        class Records:
            async def replay_after(self, where: EventFilter, position: int, limit: int) -> tuple[int, int | None]:
                asked.add(position)
                # All of them are dead again, or were never changed; there is an end all the same.
                return (limit, position + limit) if position < 10 else (0, None)

        async def open_store() -> None: ...

        told = Collector()
        paused = Collector()

        async def pause(seconds: float) -> None:
            paused.add(seconds)

        dead = DeadEvents(Records(), open_store, on_change=lambda: told.add(None), pause=pause)  # type: ignore[arg-type]
        assert await dead.replay_all(batch_size=5) == 10
        assert asked == [0, 5, 10]
        assert (len(told), len(paused)) == (1, 0)
        assert await dead.replay_all(batch_size=5, rate=20) == 10
        assert asked[3:] == [0, 2, 4, 6, 8, 10], "a tenth of a second's worth at a time"
        assert paused == [0.1] * 5
        assert len(told) == 1 + 6, "each time"
        assert await dead.replay_all(rate=0.5) == 10
        assert paused[5:] == [2.0] * 10, "one by one"

    with_runtime(world, scenario)


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "10", None])
def test_batch_sizes_and_limits_are_checked(world: World, wrong: Any) -> None:
    """TC-216"""

    async def scenario() -> None:
        outbox = world.outbox()
        with pytest.raises(InvalidOption, match="batch_size"):
            await outbox.dead.replay_all(batch_size=wrong)
        with pytest.raises(InvalidOption, match="limit"):
            await outbox.dead.query(limit=wrong)

    world.run(scenario)


def test_names_are_checked(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        with pytest.raises(InvalidName, match="event_type"):
            await outbox.dead.query(event_type=7)
        with pytest.raises(InvalidName, match="aggregate_type"):
            await outbox.dead.count(aggregate_type="x" * 65)

    world.run(scenario)


def test_a_discarded_event_is_done_and_keeps_the_reason(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        ids = await die(world, outbox, ("Paid", "Order"), ("Paid", "Order"))
        assert await outbox.dead.discard(ids[0], reason="paid twice") is True
        assert await outbox.dead.discard(ids[0]) is False
        row = world.rows()[0]
        assert (row["status"], row["last_error"]) == (EventStatus.DONE, "discarded: paid twice")
        assert await outbox.dead.count() == 1

    world.run(scenario)


@pytest.mark.parametrize(
    ("method", "records", "arguments"),
    [
        ("query", "query_dead", ()),
        ("count", "count_dead", ()),
        ("replay", "replay", ("some-id",)),
        ("replay_all", "replay_after", ()),
        ("discard", "discard", ("some-id",)),
    ],
)
def test_errors_of_the_store_reach_the_caller(
    world: World, method: str, records: str, arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """TC-217"""

    async def scenario() -> None:
        outbox = world.outbox()

        async def away(*_: Any, **__: Any) -> None:
            raise Unreachable("the database is away")

        monkeypatch.setattr(outbox._store.records, records, away)
        with pytest.raises(Unreachable, match="away"):
            await getattr(outbox.dead, method)(*arguments)

    world.run(scenario)


# ---------------------------------------------------------------- purging


def test_only_what_ended_long_ago_is_purged(world: World) -> None:
    """TC-205, C18"""

    async def scenario() -> None:
        outbox = world.outbox()
        await age(world, outbox, (1, 10), (0, 10), (2, 10), (3, 10), (1, 6))
        assert await outbox.purge("7d") == 1
        assert world.statuses() == [0, 2, 3, 1]
        assert await outbox.purge("7d", dead=True) == 1
        assert world.statuses() == [0, 2, 1]
        assert await outbox.purge(0) == 1

    world.run(scenario)


def test_a_large_backlog_is_purged_in_batches(world: World) -> None:
    """TC-206"""

    async def scenario() -> None:
        outbox = world.outbox(purge_retention="7d", purge_batch_size=500)
        async with outbox.transaction():
            await outbox.write_all([EventEnvelope.of_json("Happened", "{}") for _ in range(1500)])
        world.change("UPDATE outbox_event SET status = 1, done_at = 0")
        assert await outbox.purge() == 1500
        assert world.rows() == []

    world.run(scenario)


def test_purging_is_done_at_the_start_and_then_at_every_interval(world: World) -> None:
    """TC-207; with purge_dead the dead go too."""

    async def scenario() -> None:
        outbox = world.outbox(purge_retention="7d", purge_interval="20ms", purge_dead=True)
        await age(world, outbox, (1, 10), (3, 10))
        async with outbox:
            await outbox.start()
            await world.until("SELECT count(*) = 0 FROM outbox_event")
            await age(world, outbox, (1, 10))
            await world.until("SELECT count(*) = 0 FROM outbox_event")
        await age(world, outbox, (1, 10))
        async with outbox:  # and after a restart
            await world.until("SELECT count(*) = 0 FROM outbox_event")

    world.run(scenario)


def test_a_purge_that_fails_is_an_error_in_the_log_and_goes_on(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(runtime: Any) -> None:
        calls = Collector()

        class Records:
            async def purge(self, older_than: timedelta, *, dead: bool, limit: int) -> int:
                calls.add((older_than, dead, limit))
                if len(calls) == 1:
                    raise Unreachable("away")
                return 0

        purge = Purge(
            runtime,
            Records(),  # type: ignore[arg-type]
            OutboxConfig(purge_retention="7d", purge_interval="1ms", purge_batch_size=9, purge_dead=True),
        )
        purge.start()
        await calls.reach(2)
        assert await purge.stop(PATIENCE)
        assert calls[0] == (timedelta(days=7), True, 9)

    with caplog.at_level(logging.WARNING, "aftercommit"):
        with_runtime(world, scenario)
    assert "aftercommit-purge failed and goes on" in caplog.text


def test_a_long_purge_ends_between_two_batches_when_it_is_told_to(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        batches = Collector()

        class Records:
            async def purge_aged(self, older_than: timedelta, *, limit: int) -> int:
                batches.add(limit)
                if len(batches) == 3:
                    purge.is_stopping = True
                return limit

        purge = Purge(
            runtime,
            Records(),  # type: ignore[arg-type]
            OutboxConfig(wiring=Wiring.WRITER_ONLY, purge_retention="7d", purge_batch_size=5),
        )
        assert await purge.purge(timedelta(days=7), dead=False) == 15

    with_runtime(world, scenario)


@pytest.mark.parametrize(
    "options",
    [
        {"purge_retention": "7d", "purge_batch_size": 0},
        {"purge_retention": "7d", "purge_interval": 0},
        {"purge_retention": "-1d"},
    ],
    ids=lambda options: next(reversed(options)),
)
def test_purge_options_are_checked(world: World, options: dict[str, Any]) -> None:
    """TC-208"""
    with pytest.raises(InvalidOption, match=next(reversed(options))):
        world.outbox(**options)


def test_purge_has_to_know_how_old_is_old(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        with pytest.raises(InvalidOption, match="how old is old"):
            await outbox.purge()
        with pytest.raises(InvalidOption, match="older_than"):
            await outbox.purge("-1d")

    world.run(scenario)


def test_a_writer_only_outbox_purges_by_age_alone(world: World) -> None:
    """C14: somebody else delivers, by reading the table; its status is never changed."""

    async def scenario() -> None:
        outbox = world.outbox(wiring="writer_only", purge_retention="7d", purge_interval="1h")
        await age(world, outbox, (0, 10), (0, 8), (0, 6))
        async with outbox:
            await world.until("SELECT count(*) = 1 FROM outbox_event")

    world.run(scenario)
