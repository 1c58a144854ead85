"""What is wrong with an event is said before its transaction is touched: not one statement runs."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aftercommit import EventEnvelope, InvalidEvent, WriterHook
from tests.support import World
from tests.transactions.kit import Deliberate, free_slots, listening, watched

NOW = datetime.now(UTC)
ENVELOPE = EventEnvelope.of_json("T", "{}")


@dataclass
class Order:
    number: float
    extra: Any = None


def another_order() -> Any:
    @dataclass
    class Order:
        number: int

    return Order(1)


#: Arguments of write(), by what is wrong with them.
BAD: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "no payload": (("T",), {}),
    "payload None": (("T", None), {}),
    "text that is no JSON": (("T", "{bad"), {}),
    "empty text": (("T", ""), {}),
    "lone surrogate": (("T", '"\ud800"'), {}),
    "NaN": (("T", float("nan")), {}),
    "infinity inside": (("T", {"deep": [1, float("inf")]}), {}),
    "an object inside": (("T", {"deep": object()}), {}),
    "bytes too long": (("T", b"x" * 1_048_577), {}),
    "text too long": (("T", '"' + "x" * 1_048_676 + '"'), {}),
    "encoded too long": (("T", {"text": "x" * 1_048_576}), {}),
    "type empty": (("", {}), {}),
    "type too long": (("T" * 129, {}), {}),
    "type with NUL": (("T\0", {}), {}),
    "type None": ((None, {}), {}),
    "type a number": ((7, {}), {}),
    "None alone": ((None,), {}),
    "a dict alone": (({"type": "T"},), {}),
    "a class": ((Order,), {}),
    "an object and a payload": ((Order(1), {}), {}),
    "an object that cannot be encoded": ((Order(1, object()),), {}),
    "an object with NaN": ((Order(float("nan")),), {}),
    "a second class of one name": ((another_order(),), {}),
    "an envelope and a payload": ((ENVELOPE, {}), {}),
    "an envelope and a key": ((ENVELOPE,), {"key": "k"}),
    "an envelope and headers": ((ENVELOPE,), {"headers": {}}),
    "header name None": (("T", {}), {"headers": {None: "v"}}),
    "header name empty": (("T", {}), {"headers": {"": "v"}}),
    "header None": (("T", {}), {"headers": {"h": None}}),
    "header a number": (("T", {}), {"headers": {"h": 1}}),
    "headers a list": (("T", {}), {"headers": [("h", "v")]}),
    "available_at without a zone": (("T", {}), {"available_at": datetime(2030, 1, 1)}),
    "available_at in the past": (("T", {}), {"available_at": NOW - timedelta(days=1)}),
    "available_at a text": (("T", {}), {"available_at": "tomorrow"}),
    "two schedules": (("T", {}), {"available_at": NOW + timedelta(days=1), "deliver_after": 5}),
    "deliver_after zero": (("T", {}), {"deliver_after": 0}),
    "deliver_after negative": (("T", {}), {"deliver_after": timedelta(seconds=-10)}),
    "deliver_after a word": (("T", {}), {"deliver_after": "soon"}),
    "deliver_after beyond all time": (("T", {}), {"deliver_after": timedelta(days=999_999_999)}),
    "aggregate_type empty": (("T", {}), {"aggregate_type": ""}),
    "aggregate_type too long": (("T", {}), {"aggregate_type": "a" * 65}),
    "aggregate_id empty": (("T", {}), {"aggregate_id": ""}),
    "aggregate_id too long": (("T", {}), {"aggregate_id": "a" * 129}),
    "aggregate_id a bool": (("T", {}), {"aggregate_id": True}),
    "tenant_id empty": (("T", {}), {"tenant_id": ""}),
    "tenant_id a UUID": (("T", {}), {"tenant_id": uuid.uuid4()}),
    "key empty": (("T", {}), {"key": ""}),
    "key too long": (("T", {}), {"key": "k" * 256}),
    "key a float": (("T", {}), {"key": 1.5}),
}


def test_a_bad_event_is_refused_before_the_transaction_is_touched(world: World) -> None:
    """TC-007, TC-010 to TC-014, TC-019 to TC-026, TC-030, TC-032: in a block, and on a connection of the caller's."""

    async def scenario() -> None:
        hook = Calls()
        outbox = world.outbox(writer_hook=hook)
        async with outbox.transaction():
            await outbox.write(Order(1))  # its name is taken from now on
        assert hook.calls == 1
        connection = sqlite3.connect(world.path)
        async with outbox.transaction() as tx:
            with watched(tx.connection) as here, watched(connection) as there:
                for what, (arguments, keywords) in BAD.items():
                    for where in ({}, {"tx": tx}, {"tx": connection}):
                        with case(what), pytest.raises(InvalidEvent, match=r"(?s)\[AC01\d\] .+Fix: .+"):
                            await outbox.write(*arguments, **keywords, **where)
                        assert (here, there) == ([], []), what
                        assert not connection.in_transaction
                assert hook.calls == 1
                await outbox.write("T", '"good"')
                assert here, "the trace shows nothing at all"
        connection.close()
        assert len(world.rows()) == 2

    world.run(scenario)


@contextmanager
def case(what: str) -> Iterator[None]:
    """Names the case in the report of a failure."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"the case: {what}")
        raise


@pytest.mark.parametrize("bad", [None, "T", {}, 7, ("T", {}), Order, Order(float("inf"))])
def test_one_bad_event_keeps_the_whole_batch_out(world: World, bad: Any) -> None:
    async def scenario() -> None:
        outbox, _ = listening(world, hot_queue_capacity=5)
        async with outbox, outbox.transaction() as tx:
            with watched(tx.connection) as statements:
                with pytest.raises(InvalidEvent):
                    await outbox.write_all([ENVELOPE, Order(1), bad])
                assert statements == []
        assert world.rows() == []

    world.run(scenario)


def test_a_generator_that_fails_half_way_keeps_the_whole_batch_out(world: World) -> None:
    def events() -> Iterator[Any]:
        yield Order(1)
        raise Deliberate

    async def scenario() -> None:
        outbox = world.outbox()
        async with outbox.transaction() as tx:
            with watched(tx.connection) as statements:
                with pytest.raises(Deliberate):
                    await outbox.write_all(events())
                assert statements == []
                assert len(await outbox.write_all(Order(number) for number in range(2))) == 2
        assert len(world.rows()) == 2

    world.run(scenario)


@pytest.mark.parametrize("count", [2, 1200])
def test_a_batch_that_the_database_refuses_leaves_none_of_it(world: World, count: int) -> None:
    """The last one has the id of the first: who catches the error and commits must not find half a batch."""

    async def scenario() -> None:
        outbox, seen = listening(world, hot_queue_capacity=5)
        async with outbox:
            async with outbox.transaction():
                events = [EventEnvelope.of_json("T", str(number)) for number in range(count - 1)]
                with pytest.raises(sqlite3.IntegrityError):
                    await outbox.write_all([*events, events[0]])
                await outbox.write("T", '"after"')
            await seen.reach(1)
        assert [row["payload"] for row in world.rows()] == ['"after"']

    world.run(scenario)


def test_an_event_that_the_database_refuses_returns_its_slot(world: World) -> None:
    async def scenario() -> None:
        outbox, seen = listening(world, hot_queue_capacity=5)
        event = EventEnvelope.of_json("T", "{}")
        async with outbox:
            async with outbox.transaction():
                await outbox.write(event)
                with pytest.raises(sqlite3.IntegrityError):
                    await outbox.write(event)
                assert free_slots(outbox) == 4
            await seen.reach(1)
            await world.until_settled(1)
            assert free_slots(outbox) == 5
        assert len(seen) == 1

    world.run(scenario)


class Calls(WriterHook):
    calls = 0

    def before_write(self, events: list[EventEnvelope]) -> list[EventEnvelope]:
        self.calls += 1
        return events
