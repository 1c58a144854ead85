"""Relays of an outbox, to a real RabbitMQ: an event is done when the broker has it, and not before."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from aftercommit import Fixed
from aftercommit.relays import Route
from aftercommit.relays.testing import Wire
from tests.relays.places import NatsPlaces, Places, RabbitmqPlaces, RedisPlaces
from tests.support import Collector, World


@pytest.fixture(params=["threads", "asyncio", "postgres-threads", "postgres-asyncio"])
def any_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Either runtime, over SQLite and over PostgreSQL."""
    database, _, name = request.param.rpartition("-")
    if not database:
        yield World(name, tmp_path)
        return
    made = World(name, tmp_path, "postgres", request.getfixturevalue("postgres_url"))
    made.somebody.clear()
    yield made
    made.somebody.close()


@pytest.fixture
def places(rabbitmq_url: str) -> Iterator[RabbitmqPlaces]:
    made = RabbitmqPlaces(rabbitmq_url)
    yield made
    made.close()


@pytest.fixture
def wire(places: RabbitmqPlaces) -> Iterator[Wire]:
    with Wire(places.host, places.port) as made:
        yield made


def relay_through(places: RabbitmqPlaces, wire: Wire) -> Any:
    return places.relay(wire.host, wire.port)


async def write(outbox: Any, count: int, *, keys: int | None = None, start: int = 0) -> None:
    async with outbox.transaction():
        for number in range(start, start + count):
            await outbox.write("It", {"number": number}, key=None if keys is None else f"key-{number % keys}")


def attempts(world: World) -> set[int]:
    return {row["attempts"] for row in world.rows()}


def test_events_are_done_when_the_broker_has_them(any_world: World, places: RabbitmqPlaces, wire: Wire) -> None:
    """Before, they wait, and that costs no attempts: while the broker is away, and while it is silent."""
    queue = places.make()

    async def scenario() -> None:
        outbox = any_world.outbox()
        outbox.relay(relay_through(places, wire), to=queue)
        wire.refuse()
        await outbox.start()  # which a broker that is away does not keep from starting
        await write(outbox, 3)
        await any_world.until(
            "SELECT count(*) = 3 FROM outbox_event WHERE locked_by IS NULL AND available_at > created_at"
        )
        assert any_world.statuses() != [1, 1, 1]
        wire.mend()
        await any_world.until_settled(3)
        wire.swallow()
        await write(outbox, 1, start=3)
        await any_world.until(
            "SELECT count(*) = 1 FROM outbox_event"
            " WHERE status <> 1 AND locked_by IS NULL AND available_at > created_at"
        )
        assert wire.swallowed.is_set()
        wire.mend()
        wire.cut()
        await any_world.until_settled(4)
        assert attempts(any_world) == {0}
        assert (await outbox.stats()).unavailable == ()

    any_world.run(scenario)
    found = Counter(each.id for each in places.stored(queue))
    assert set(found) == {row["event_id"] for row in any_world.rows()}
    assert max(found.values()) == 2, "the one that was stored and not confirmed came twice, with one id"


@pytest.mark.parametrize(("kind", "server"), [(NatsPlaces, "nats_url"), (RedisPlaces, "redis_url")])
def test_every_relay_runs_in_either_runtime(
    world: World, kind: type[Places], server: str, request: pytest.FixtureRequest
) -> None:
    with closing(kind(request.getfixturevalue(server))) as places:  # type: ignore[call-arg]
        place = places.make()

        async def scenario() -> None:
            outbox = world.outbox()
            outbox.relay(places.relay(), to=place)
            async with outbox:
                await write(outbox, 30, keys=3)
                await world.until_settled(30)

        world.run(scenario)
        assert {each.id for each in places.stored(place)} == {row["event_id"] for row in world.rows()}


def test_what_nobody_would_get_is_retried_and_then_dead_or_the_fallbacks(world: World, places: RabbitmqPlaces) -> None:
    queue, taken = places.make(), Collector()

    async def scenario() -> None:
        outbox = world.outbox()
        nowhere = f"{places.prefix}-nobody"
        retry = Fixed("10ms", max_attempts=3)
        outbox.relay(places.relay(), to=lambda e: nowhere if "1" in e.payload_json else queue, only="It", retry=retry)
        spare = outbox.relay(
            places.relay(), to=Route(f"{places.prefix}-no-exchange", "x"), only="Other", id="spare", retry=retry
        )

        @spare.fallback
        def give_up(event: Any, failure: Any) -> None:
            taken.add((event.event_type, failure.failure_count, str(failure.last_error)))

        async with outbox:
            await write(outbox, 3)
            async with outbox.transaction():
                await outbox.write("Other", {})
            await world.until_settled(1, status=3)
            await world.until_settled(3)
            (dead,) = await outbox.dead.query()
            assert dead.attempts == 3
            assert "MessageRefused" in dead.last_error
            assert "NO_ROUTE" in dead.last_error

    world.run(scenario)
    assert [(name, count) for name, count, _ in taken] == [("Other", 3)]
    assert "no exchange" in taken[0][2]
    assert sorted(each.body for each in places.stored(queue)) == [b'{"number":0}', b'{"number":2}']


def test_order_holds_through_cut_connections(world: World, places: RabbitmqPlaces, wire: Wire) -> None:
    """Some come again after a cut. Who drops known ids sees each key in the order of writing."""
    queue, keys = places.make(), 8

    async def scenario() -> None:
        outbox = world.outbox(ordered=True, poll_interval="50ms")
        outbox.relay(relay_through(places, wire), to=queue)
        async with outbox:
            for part in range(6):
                wire.cut_after(2000 + 3000 * part)
                await write(outbox, 40, keys=keys, start=40 * part)
            await world.until_settled(240, timeout=60)
            assert attempts(world) == {0}
            assert wire.made > 1, "no connection was cut"

    world.run(scenario)
    found = places.stored(queue)
    numbers: dict[str, list[int]] = {}
    for each in found:
        numbers.setdefault(each.attributes["partitionkey"], []).append(int(each.body[10:-1]))
    assert sorted({number for of_key in numbers.values() for number in of_key}) == list(range(240))
    firsts = [list(dict.fromkeys(of_key)) for of_key in numbers.values()]
    assert all(of_key == sorted(of_key) for of_key in firsts), numbers


def test_relays_are_handlers_among_others(world: World, places: RabbitmqPlaces) -> None:
    """Each event has a row for each of its handlers, and each relay takes what it was declared for."""
    everything, invoices, seen = places.make(), places.make(), Collector()

    async def scenario() -> None:
        outbox = world.outbox()
        outbox.relay(places.relay(), to=everything)
        outbox.relay(places.relay(), to=invoices, only="invoice.*", id="invoices")

        @outbox.handler("invoice.sent")
        def here(event: Any) -> None:
            seen.add(event.event_id)

        async with outbox.transaction():
            await outbox.write("invoice.sent", {})
            await outbox.write("order.sent", {})
        await outbox.drain()  # not started: connections are made by those who need them
        assert sorted(row["handler_id"] for row in world.rows()) == ["", "here", "invoices", "rabbitmq"]

    world.run(scenario)
    assert [each.attributes["type"] for each in places.stored(everything)] == ["invoice.sent", "order.sent"]
    assert [each.id for each in places.stored(invoices)] == list(seen)


def test_connections_live_as_long_as_the_outbox(world: World, places: RabbitmqPlaces, wire: Wire) -> None:
    queue = places.make()

    async def scenario() -> None:
        outbox = world.outbox()
        outbox.relay(relay_through(places, wire), to=queue)
        for start in range(2):  # and once more after close()
            await outbox.start()
            await write(outbox, 1)
            await world.until_settled(start + 1)
            assert wire.open == 1
            await outbox.close()
            assert wire.closed.wait(20)
            assert wire.open == 0
        assert wire.made == 2

    world.run(scenario)
    assert len(places.stored(queue)) == 2


def test_an_outbox_that_is_closed_does_not_wait_for_a_broker_that_is_silent(
    world: World, places: RabbitmqPlaces, wire: Wire
) -> None:
    queue = places.make()

    async def scenario() -> None:
        outbox = world.outbox(drain_timeout="200ms")
        outbox.relay(places.relay(wire.host, wire.port, confirm_timeout="10m"), to=queue, timeout="10m")
        await outbox.start()
        await write(outbox, 1)
        await world.until_settled(1)
        wire.swallow()
        await write(outbox, 1)
        await outbox.close()
        rows = [(row["status"], row["locked_by"], row["attempts"]) for row in world.rows()]
        assert rows == [(1, None, 0), (0, None, 0)], "given back at once"

    world.run(scenario)


CHILD = """
import os, sys
from aftercommit import Outbox
from aftercommit.relays import RabbitMQ
url, queue, path = sys.argv[1:]
outbox = Outbox(f"sqlite:///{path}")
outbox.relay(RabbitMQ(url), to=queue)

def one(name):
    with outbox.transaction():
        outbox.write(name, {})
    outbox.drain()

with outbox:
    one("parent")
    pid = os.fork()
    one("child" if pid == 0 else "parent again")
    if pid == 0:
        outbox.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    one("parent at last")
print("all well")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_makes_a_connection_of_its_own(places: RabbitmqPlaces, wire: Wire, tmp_path: Path) -> None:
    queue = places.make()
    url = places.at(wire.host, wire.port)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, url, queue, str(tmp_path / "o.db")],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "all well\n", done.stderr
    assert sorted(each.attributes["type"] for each in places.stored(queue)) == [
        *("child", "parent", "parent again", "parent at last"),
    ]
    assert wire.made == 2
