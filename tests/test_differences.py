"""Cases of the reference implementations that end differently here, on purpose. docs/specification.md has the reasons,
a line for each; the number in a test's name is the case's."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from aftercommit import (
    DefaultInFlightTracker,
    DuplicateHandler,
    EventEnvelope,
    EventStatus,
    ExponentialJitter,
    Fixed,
    InvalidHandler,
    InvalidHeaders,
    InvalidOption,
    InvalidPayload,
    Outbox,
    OutboxConfig,
    RetryAfter,
    RetryPolicy,
    UnknownStore,
    any_event,
    outbox_event,
)
from aftercommit.events.claims import Lease, RowKey, Settlement
from aftercommit.events.outcome import Dead
from aftercommit.ordering.fleet import target_of
from tests.support import Collector, World

PAGE = Path(__file__).parents[1] / "docs" / "specification.md"
HOUR = 3_600_000_000


class Deliberate(Exception):
    """Raised by handlers."""


def failing(seen: Collector) -> Callable[..., None]:
    def handler(event: Any) -> None:
        seen.add(event)
        raise Deliberate

    return handler


async def written(outbox: Any, *events: Any, **fields: Any) -> None:
    async with outbox.transaction():
        for event in events:
            await (outbox.write(event, {}, **fields) if isinstance(event, str) else outbox.write(event, **fields))


# ---------------------------------------------------------------- writing


def test_tc_017_a_delay_counts_from_the_insert_on_the_databases_clock(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        past = datetime(2020, 1, 1, tzinfo=UTC)
        await written(outbox, EventEnvelope("A", payload_json="{}", occurred_at=past, deliver_after="1h"))
        row = world.rows()[0]
        assert abs(row["available_at"] - row["created_at"] - HOUR) < HOUR / 60

    world.run(scenario)


def test_tc_098_tc_099_created_at_is_the_databases_time(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        await written(outbox, EventEnvelope("A", payload_json="{}", occurred_at=datetime(2020, 1, 1, tzinfo=UTC)))
        row = world.rows()[0]
        assert row["created_at"] - row["occurred_at"] > 365 * 24 * HOUR
        assert row["available_at"] - row["created_at"] < HOUR

    world.run(scenario)


def test_tc_229_a_header_without_a_value_is_refused_when_it_is_written() -> None:
    with pytest.raises(InvalidHeaders, match="None"):
        EventEnvelope("A", payload_json="{}", headers={"key": None})  # type: ignore[dict-item]


def test_tc_318_tc_325_tc_436_without_a_key_there_is_none(world: World) -> None:
    @outbox_event
    @dataclass
    class Placed:
        id: int

    async def scenario() -> None:
        outbox = world.outbox()
        await written(outbox, "A", Placed(7))
        assert [row["event_key"] for row in world.rows()] == [None, None]

    world.run(scenario)


def test_tc_324_an_event_that_nobody_here_handles_is_stored(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        await written(outbox, "A")
        assert world.statuses() == [EventStatus.NEW]

    world.run(scenario)


def test_tc_381_no_payload_is_refused_when_it_is_written(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        async with outbox.transaction():
            with pytest.raises(InvalidPayload):
                await outbox.write("A", None)

    world.run(scenario)


def test_tc_437_a_number_may_be_a_key(world: World) -> None:
    @outbox_event(key="id")
    @dataclass
    class Placed:
        id: int

    async def scenario() -> None:
        outbox = world.outbox()
        await written(outbox, Placed(7))
        assert world.rows()[0]["event_key"] == "7"

    world.run(scenario)


# ---------------------------------------------------------------- delivering


def test_tc_256_a_deferred_event_is_retry(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        outbox.register("A", lambda event: RetryAfter("1h"))
        await written(outbox, "A")
        await outbox.drain()
        row = world.rows()[0]
        assert (row["status"], row["attempts"]) == (EventStatus.RETRY, 0)

    world.run(scenario)


@pytest.mark.parametrize(
    ("wiring", "status"),
    [(None, EventStatus.RETRY), ("multi_node", EventStatus.RETRY), ("single_node", EventStatus.DEAD)],
)
def test_tc_128_tc_382_an_unroutable_event_is_dead_at_once_on_a_single_node_only(
    world: World, wiring: str | None, status: int
) -> None:
    async def scenario() -> None:
        outbox = world.outbox(wiring=wiring)
        outbox.register("Another", lambda event: None)
        await written(outbox, "A")
        await outbox.drain()
        assert world.rows()[0]["status"] == status

    world.run(scenario)


def test_tc_144_an_event_that_is_done_is_not_run_again(world: World) -> None:
    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox()
        outbox.register("A", seen.add)
        await written(outbox, "A")
        for _ in range(3):
            await outbox.drain()
        assert len(seen) == 1

    world.run(scenario)


def test_tc_149_a_time_to_live_below_zero_is_refused() -> None:
    with pytest.raises(InvalidOption, match="ttl"):
        DefaultInFlightTracker(-1)


def test_tc_177_an_outbox_that_was_closed_starts_and_polls_again(world: World) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        outbox.register("A", seen.add)
        await outbox.start()
        await outbox.close()
        await written(outbox, "A")
        assert await outbox.poll() == 1
        async with outbox:
            await written(outbox, "A")
            await seen.reach(2)

    world.run(scenario)


def test_tc_188_an_ordered_event_has_all_its_attempts(world: World) -> None:
    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(wiring="ordered", max_attempts=3, retry_policy=Fixed("1ms"))
        outbox.register("A", failing(seen))
        await written(outbox, "A", key="k")
        for _ in range(3):
            world.change("UPDATE outbox_event SET available_at = 0")
            await outbox.drain()
        assert (len(seen), world.statuses()) == (3, [EventStatus.DEAD])

    world.run(scenario)


def test_tc_192_tc_250_several_nodes_need_no_option_for_their_locks() -> None:
    with Outbox.multi_node("sqlite://") as outbox:
        assert outbox.config.lock_timeout == timedelta(seconds=30)


def test_tc_249_defaults_that_are_not_the_references() -> None:
    config = OutboxConfig()
    assert config.lock_timeout == timedelta(seconds=30)
    assert config.purge_retention is None
    assert config.unroutable_grace == timedelta(minutes=10)


def test_tc_195_a_purge_leaves_dead_events_alone_unless_it_is_told_otherwise(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox(max_attempts=1)
        outbox.register("Fine", lambda event: None)
        outbox.register("Failing", failing(Collector()))
        await written(outbox, "Fine", "Failing")
        await outbox.drain()
        world.change("UPDATE outbox_event SET done_at = 1")
        assert await outbox.purge(older_than="1h") == 1
        assert world.statuses() == [EventStatus.DEAD]
        assert await outbox.purge(older_than="1h", dead=True) == 1

    world.run(scenario)


def test_tc_312_a_done_event_stays_done(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        outbox.register("A", lambda event: None)
        await written(outbox, "A")
        await outbox.drain()
        row = world.rows()[0]
        lease = Lease(RowKey(row["event_id"], ""), "late", row["lease_epoch"], float("inf"))
        assert await outbox._store.settle([Settlement(lease, Dead("late"))]) == {lease.key}
        assert world.statuses() == [EventStatus.DONE]

    world.run(scenario)


# ---------------------------------------------------------------- handlers and retries


def test_tc_327_handlers_run_in_the_order_of_registration_whatever_class_they_take(world: World) -> None:
    @dataclass
    class Parcel:
        weight: int

    @dataclass
    class Letter(Parcel):
        stamp: str

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        outbox.handler(any_event, id="any")(lambda event: seen.add("any"))
        outbox.handler(Parcel, id="parcel")(lambda event: seen.add("base"))
        outbox.handler(Letter, id="letter")(lambda event: seen.add("class"))
        await written(outbox, Letter(1, "red"))
        await outbox.drain()
        assert seen == ["base", "class", "any"]

    world.run(scenario)


def test_tc_372_an_error_without_a_text_is_stored_by_its_class(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        outbox.register("A", failing(Collector()))
        await written(outbox, "A")
        await outbox.drain()
        assert world.rows()[0]["last_error"] == "Deliberate"

    world.run(scenario)


def test_tc_376_a_fallback_that_succeeds_counts_no_attempt(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox(max_attempts=1)
        handler = outbox.handler("A", id="h")(failing(Collector()))
        handler.fallback(lambda event, failure: None)
        await written(outbox, "A")
        await outbox.drain()
        row = world.rows()[0]
        assert (row["status"], row["attempts"]) == (EventStatus.DONE, 0)

    world.run(scenario)


def test_tc_385_the_default_policy_is_that_of_000() -> None:
    assert OutboxConfig().retry_policy == ExponentialJitter("200ms", "60s")
    assert OutboxConfig().max_attempts == 10


def test_tc_391_the_name_of_an_error_is_not_looked_up() -> None:
    Outbox("sqlite://", retry_policy={"policy": "fixed", "include": ["NoSuchError"]})


def test_tc_396_a_rule_of_ones_own_is_a_policy_of_ones_own(world: World) -> None:
    class IfTemporary(Fixed):
        def should_retry(self, error: BaseException) -> bool:
            return "temporary" in str(error)

    async def scenario() -> None:
        outbox = world.outbox(retry_policy=IfTemporary("1s"))

        def handler(event: EventEnvelope) -> None:
            raise Deliberate(event.event_type)

        for event_type in ("temporary", "for good"):
            outbox.register(event_type, handler)
        await written(outbox, "temporary", "for good")
        await outbox.drain()
        assert world.statuses() == [EventStatus.RETRY, EventStatus.DEAD]

    assert isinstance(IfTemporary("1s"), RetryPolicy)
    world.run(scenario)


def test_tc_399_one_attempt_is_a_policy() -> None:
    assert Fixed("1s", max_attempts=1).max_attempts == 1


def test_tc_400_a_second_handler_of_one_id_is_refused() -> None:
    outbox = Outbox("sqlite://")
    outbox.handler("A", id="h", retry=Fixed("1s"))(lambda event: None)
    with pytest.raises(DuplicateHandler):
        outbox.handler("B", id="h", retry=Fixed("2s"))(lambda event: None)


def test_tc_414_a_wrong_signature_is_refused_where_it_is_declared() -> None:
    with pytest.raises(InvalidHandler, match="0 parameters"):
        Outbox("sqlite://").handler("A", id="h")(lambda: None)


def test_tc_416_a_generic_handler_may_do_without_metadata(world: World) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        outbox.handler(any_event, id="h")(lambda event: seen.add(event.event_type))
        await written(outbox, "A")
        await outbox.drain()
        assert seen == ["A"]

    world.run(scenario)


def test_tc_418_a_second_fallback_is_refused() -> None:
    handler = Outbox("sqlite://").handler("A", id="h")(lambda event: None)
    handler.fallback(lambda event, failure: None)
    with pytest.raises(DuplicateHandler, match="fallback"):
        handler.fallback(lambda event, failure: None)


def test_tc_419_tc_422_an_id_is_the_functions_name_and_a_lambda_needs_one() -> None:
    outbox = Outbox("sqlite://")

    def send_receipt(event: EventEnvelope) -> None: ...

    assert outbox.handler("A")(send_receipt).id == "send_receipt"
    with pytest.raises(InvalidHandler, match="no name of its own"):
        outbox.handler("B")(lambda event: None)


# ---------------------------------------------------------------- fleet and stores


def test_tc_268_one_partition_more_goes_to_who_owns_the_most() -> None:
    assert {id: target_of(id, {"a": 0, "b": 0, "c": 0}) for id in "abc"} == {"a": 86, "b": 85, "c": 85}
    assert {id: target_of(id, {"a": 0, "b": 0, "c": 100}) for id in "abc"} == {"a": 85, "b": 85, "c": 86}


@pytest.mark.parametrize("url", ["mysql+aurora://host/shop", "oracle://host/shop", "h2://host/shop"])
def test_tc_240_tc_457_what_no_store_speaks_is_refused_by_name(url: str) -> None:
    with pytest.raises(UnknownStore, match=r"aurora|oracle|h2"):
        Outbox(url)


def test_tc_456_tables_of_other_names_are_created_as_well(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox(table="shop_outbox", create_schema=True)
        await written(outbox, "A")
        assert len(world.rows("SELECT * FROM shop_outbox")) == 1

    world.run(scenario)


def test_every_difference_has_its_line_in_the_specification_and_its_test_here() -> None:
    lines = re.findall(r"^\| (TC-\d{3}(?:, TC-\d{3})*)[: ]", PAGE.read_text(), re.MULTILINE)
    said = [number for line in lines for number in re.findall(r"\d{3}", line)]
    mine = [number for name in globals() if name.startswith("test_tc_") for number in re.findall(r"tc_(\d{3})", name)]
    assert len(said) == len(set(said))
    # What needs several processes, or is about the shape of a store, is tested where it lives.
    elsewhere = set(re.findall(r"TC-(\d{3}) is not ours", _other_tests()))
    assert set(said) == set(mine) | elsewhere


def _other_tests() -> str:
    here = Path(__file__).parent
    return "".join(file.read_text() for file in here.rglob("test_*.py") if file != Path(__file__))
