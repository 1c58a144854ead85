"""Payloads on their way: formats, versions, and what ends as dead without another attempt."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from aftercommit import EventEnvelope, MsgpackSerializer, outbox_event
from tests.events import shapes
from tests.support import World

DEAD = 3


@outbox_event(type="order.paid", version=3, key="number")
@dataclasses.dataclass
class OrderPaid:
    number: int
    amount: int
    currency: str


def paid(number: int, version: int, text: str) -> EventEnvelope:
    return EventEnvelope("order.paid", payload_json=text, payload_version=version, key=number)


async def write(outbox: Any, *events: Any) -> None:
    async with outbox.transaction():
        await outbox.write_all(events)


def with_upcasters(outbox: Any) -> Any:
    @outbox.upcast(OrderPaid, from_version=1)
    def to_cents(data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "amount": data["amount"] * 100}

    @outbox.upcast(OrderPaid, from_version=2)
    def with_currency(data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "currency": "EUR"}

    return outbox


def collecting(outbox: Any, kind: Any = OrderPaid, **options: Any) -> list[Any]:
    """A handler that notes what it gets."""
    seen: list[Any] = []

    def handle(event: Any) -> None:
        seen.append(event)

    handle.__annotations__["event"] = kind
    outbox.handler(**options)(handle)
    return seen


@pytest.mark.parametrize("kind", shapes.CLASSES[:-1], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("serializer", [None, MsgpackSerializer()], ids=["json", "msgpack"])
def test_every_shape_reaches_its_handler_as_it_was(world: World, kind: Any, serializer: Any) -> None:
    """TC-346, TC-347: from the table, in either format."""

    async def scenario() -> None:
        outbox = world.outbox(serializer=serializer)
        seen = collecting(outbox, kind)
        await write(outbox, shapes.order(kind))
        await outbox.drain()
        assert seen == [shapes.order(kind)]
        assert type(seen[0]) is kind

    world.run(scenario)


def test_rows_of_all_versions_reach_the_handler_as_the_newest(world: World) -> None:
    async def scenario() -> None:
        outbox = with_upcasters(world.outbox())
        seen = collecting(outbox)
        await write(
            outbox,
            paid(1, 1, '{"number":1,"amount":42}'),
            paid(2, 2, '{"number":2,"amount":42}'),
            OrderPaid(3, 42, "USD"),
        )
        await outbox.drain()
        assert seen == [OrderPaid(1, 4200, "EUR"), OrderPaid(2, 42, "EUR"), OrderPaid(3, 42, "USD")]
        assert [(row["payload_version"], row["event_key"]) for row in world.rows()] == [(1, "1"), (2, "2"), (3, "3")]

    world.run(scenario)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (paid(1, 3, '{"number":"one"}'), "Expected `int`, got `str` - at `$.number`"),
        (paid(1, 3, '{"number":1}'), "missing required field `amount`"),
        (paid(1, 1, "{}"), "the upcaster"),
        (paid(1, 9, "{}"), "only up to version 3"),
        (EventEnvelope("order.paid", payload_bytes=b"\x00"), "no serializer reads application/octet-stream"),
    ],
)
def test_what_cannot_be_decoded_is_dead_at_once_and_says_why(world: World, event: Any, reason: str) -> None:
    """No attempt is spent, no fallback is called, and what comes after goes on. TC-352."""

    async def scenario() -> None:
        outbox = with_upcasters(world.outbox(unroutable_grace=0))
        seen = collecting(outbox)
        outbox.fallback(OrderPaid)(lambda event, failure: seen.append("fallback"))
        await write(outbox, event, OrderPaid(2, 42, "USD"))
        await outbox.drain()
        dead, done = world.rows()
        assert (dead["status"], dead["attempts"], done["status"]) == (DEAD, 0, 1)
        assert reason in dead["last_error"]
        assert "Fix: " in dead["last_error"]
        assert seen == [OrderPaid(2, 42, "USD")]

    world.run(scenario)


def test_a_missing_step_is_dead_until_it_is_there_and_the_event_replayed(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        seen = collecting(outbox)
        await write(outbox, paid(1, 2, '{"number":1,"amount":42}'))
        await outbox.drain()
        (dead,) = await outbox.dead.query()
        assert "no upcaster leads on from version 2" in dead.last_error
        outbox.upcast(OrderPaid, from_version=2)(lambda data: {**data, "currency": "EUR"})
        await outbox.dead.replay(dead.event_id)
        await outbox.drain()
        assert seen == [OrderPaid(1, 42, "EUR")]

    world.run(scenario)


def test_a_newer_version_waits_where_others_may_know_it(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox(unroutable_grace="1h")
        seen = collecting(outbox)
        await write(outbox, paid(1, 4, "{}"))
        await outbox.poll()
        (row,) = world.rows()
        assert (row["status"], row["attempts"], seen) == (2, 0, [])

    world.run(scenario)


def test_a_change_of_the_format_strands_no_rows(world: World) -> None:
    async def scenario() -> None:
        before = world.outbox(serializer=MsgpackSerializer())
        await write(before, OrderPaid(1, 42, "EUR"))
        after = world.outbox()
        seen = collecting(after)
        await write(after, OrderPaid(2, 42, "EUR"))
        await after.drain()
        assert seen == [OrderPaid(1, 42, "EUR"), OrderPaid(2, 42, "EUR")]
        assert [row["content_type"] for row in world.rows()] == ["application/msgpack", "application/json"]

    world.run(scenario)


def test_the_payload_of_the_hot_path_is_decoded_like_that_of_the_table(world: World) -> None:
    """A handler gets an object of its own, not the one that was written."""

    async def scenario() -> None:
        outbox = world.outbox()
        seen = collecting(outbox)
        await outbox.start()
        value = OrderPaid(1, 42, "EUR")
        await write(outbox, value)
        await world.until_settled(1)
        assert seen == [value]
        assert seen[0] is not value

    world.run(scenario)
