"""publish() through an outbox: what is marked is written in the transaction, subscribers run inside of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from aftercommit import (
    EventMetadata,
    InvalidHeaders,
    InvalidPayload,
    InvalidPayloadType,
    NotAwaited,
    NotInTransaction,
    any_event,
    outbox_event,
)
from tests.conftest import in_transactions
from tests.support import World


@pytest.fixture
def world(every_world: World) -> World:
    """What is said here holds on every store."""
    return every_world


@outbox_event(key="number", context={"n": "number"})
@dataclasses.dataclass
class Placed:
    number: Any


@dataclasses.dataclass
class Noted:
    text: str


def test_published_events_are_written_delivered_and_passed_on(world: World) -> None:
    """TC-431, TC-440."""

    async def scenario() -> None:
        outbox = world.outbox()
        seen: list[Any] = []
        outbox.subscribe(Placed, lambda value: seen.append(("subscriber", value)))

        @outbox.handler
        def handle(event: Placed) -> None:
            seen.append(("handler", event))

        async with outbox.transaction():
            ids = [await outbox.publish(Placed(number)) for number in (1, 2, 3)]
        assert [row["event_id"] for row in world.rows()] == ids
        assert [(row["event_key"], row["headers"]) for row in world.rows()] == [
            (str(number), f'{{"ac-context-n":"{number}"}}') for number in (1, 2, 3)
        ]
        await outbox.drain()
        assert seen == [(role, Placed(number)) for role in ("subscriber", "handler") for number in (1, 2, 3)]
        assert world.statuses() == [1, 1, 1]

    world.run(scenario)


@dataclasses.dataclass
class Parcel:
    number: int

    def ref(self) -> str:
        return f"parcel-{self.number}"


@outbox_event(key="#event.parcel.ref()", context={"n": "#this.parcel.number", "to": "extras.city", "from": "'here'"})
@dataclasses.dataclass
class Sent:
    parcel: Parcel
    extras: dict[str, str]


def test_key_and_context_may_be_expressions(world: World) -> None:
    """H5, TC-435, TC-438, TC-439: in the row and in the handler, by write() and by publish()."""

    async def scenario() -> None:
        outbox, seen = world.outbox(), []

        @outbox.handler
        def handle(event: Sent, meta: EventMetadata) -> None:
            seen.append((meta.key, dict(meta.context)))

        async with outbox.transaction():
            await outbox.write(Sent(Parcel(1), {"city": "Rome"}))
            await outbox.publish(Sent(Parcel(2), {"city": "Oslo"}))
            with pytest.raises(InvalidHeaders, match="the step city after extras failed with KeyError"):
                await outbox.write(Sent(Parcel(3), {}))
        assert [row["event_key"] for row in world.rows()] == ["parcel-1", "parcel-2"]
        await outbox.drain()
        assert seen == [
            ("parcel-1", {"n": "1", "to": "Rome", "from": "here"}),
            ("parcel-2", {"n": "2", "to": "Oslo", "from": "here"}),
        ]

    world.run(scenario)


@in_transactions
def test_outside_a_transaction_a_marked_object_is_refused_and_others_are_not(world: World) -> None:
    """TC-432."""

    async def scenario() -> None:
        outbox = world.outbox()
        seen: list[Any] = []
        outbox.subscribe(object, seen.append)
        with pytest.raises(NotInTransaction):
            await outbox.publish(Placed(1))
        assert seen == []
        assert await outbox.publish(Noted("x")) is None
        assert seen == [Noted("x")]

    world.run(scenario)


def test_an_unmarked_object_that_handlers_wait_for_is_refused(world: World) -> None:
    """They would get nothing, and nobody would say so. With a subscriber it has somewhere to go."""

    async def scenario() -> None:
        outbox, seen = world.outbox(), []
        outbox.handler(any_event, id="everything")(print)
        assert await outbox.publish(Noted("x")) is None
        outbox.handler(Noted, id="keep")(print)
        with pytest.raises(InvalidPayloadType, match=r"publish\(\) got a Noted.* get nothing \(keep\)") as caught:
            await outbox.publish(Noted("x"))
        assert "@outbox_event on Noted, or use outbox.write()" in caught.value.fix
        outbox.subscribe(Noted, seen.append)
        assert await outbox.publish(Noted("x")) is None
        assert seen == [Noted("x")]
        silent = world.outbox(publish_enabled=False)
        silent.handler(Noted, id="keep")(print)
        assert await silent.publish(Noted("x")) is None

    world.run(scenario)


def test_a_subscriber_that_fails_takes_the_transaction_with_it(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        outbox.subscribe(Placed, lambda value: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            async with outbox.transaction():
                await outbox.publish(Placed(1))
        assert world.rows() == []

    world.run(scenario)


def test_a_subscriber_writes_in_the_same_transaction(world: World) -> None:
    """It finds the ambient one, and what it writes is rolled back with it."""

    async def scenario() -> None:
        outbox = world.outbox()

        async def on_placed(value: Placed) -> None:
            await outbox.write("Follows", {})

        def on_placed_plain(value: Placed) -> None:
            outbox.plain.write("Follows", {})

        outbox.subscribe(Placed, on_placed if world.is_async else on_placed_plain)
        with pytest.raises(ZeroDivisionError):
            async with outbox.transaction():
                await outbox.publish(Placed(1))
                raise ZeroDivisionError
        assert world.rows() == []
        async with outbox.transaction():
            await outbox.publish(Placed(1))
        assert [row["event_type"] for row in world.rows()] == ["Placed", "Follows"]

    world.run(scenario)


@pytest.mark.parametrize(
    ("options", "written", "passed_on"),
    [
        ({}, 1, 2),
        ({"publish_after_save": False}, 1, 1),
        ({"publish_enabled": False}, 0, 2),
        ({"publish_enabled": False, "publish_after_save": False}, 0, 2),
    ],
)
def test_what_is_written_and_what_is_passed_on_are_options(
    world: World, options: dict[str, Any], written: int, passed_on: int
) -> None:
    """TC-431, TC-433: one marked object and one that is not."""

    async def scenario() -> None:
        outbox = world.outbox(**options)
        seen: list[Any] = []
        outbox.subscribe(object, seen.append)
        async with outbox.transaction():
            await outbox.publish(Placed(1))
            await outbox.publish(Noted("x"))
        assert (len(world.rows()), len(seen)) == (written, passed_on)

    world.run(scenario)


def test_an_object_that_cannot_be_written_is_not_passed_on(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        seen: list[Any] = []
        outbox.subscribe(object, seen.append)
        async with outbox.transaction():
            with pytest.raises(InvalidPayload, match=r"payload\.content is a object"):
                await outbox.publish(Loose(1, object()))
        assert (seen, world.rows()) == ([], [])

    world.run(scenario)


@outbox_event(key="number")
@dataclasses.dataclass
class Loose:
    number: int
    content: Any


def test_a_publish_that_is_never_awaited_rolls_back(tmp_path: Any) -> None:
    world = World("asyncio", tmp_path)

    async def scenario() -> None:
        outbox = world.outbox()
        with pytest.raises(NotAwaited):
            async with outbox.transaction():
                outbox.publish(Placed(1))
        assert world.rows() == []

    world.run(scenario)
