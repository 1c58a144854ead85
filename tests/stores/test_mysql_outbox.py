"""An outbox over MySQL from end to end, in both worlds and with handlers of both colours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import isawaitable
from typing import Any

import asyncmy
import pytest

from aftercommit import EventEnvelope, Fixed
from aftercommit.errors import NotInTransaction
from aftercommit.ports import Colour
from tests.conftest import on_both_mysqls
from tests.stores.mysql_kit import Table, connect, gone, made, parts_of, store_at
from tests.support import Collector, Signal, World

pytestmark = on_both_mysqls

Paint = Callable[[Callable[..., Any]], Callable[..., Any]]


@pytest.fixture
def table(mysql_url: str) -> Iterator[Table]:
    table = made(mysql_url)
    table.clear()
    yield table
    table.close()


@pytest.fixture
def outbox(world: World, table: Table) -> Callable[..., Any]:
    """An outbox over a store of this world's colour."""
    # The world looks at the database that the store is in.
    world.database, world.url = "mysql", table.url

    def make(**options: Any) -> Any:
        store = store_at(table.url, Colour.ASYNC if world.is_async else Colour.BLOCKING)
        return world.outbox(store, **options)

    return make


async def done(value: Any) -> Any:
    return await value if isawaitable(value) else value


async def user_connection(world: World, url: str, **settings: Any) -> Any:
    return await asyncmy.connect(**parts_of(url), **settings) if world.is_async else connect(url, **settings)


async def hung_up(connection: Any) -> None:
    await done(connection.ensure_closed() if hasattr(connection, "ensure_closed") else connection.close())


def test_a_committed_event_is_delivered_from_memory(world: World, table: Table, outbox: Any, colour: Paint) -> None:
    """Hot: the poller is off."""

    async def scenario() -> None:
        seen = Collector()
        box = outbox(poller_enabled=False)
        box.register("Happened", colour(seen.add))
        await box.start()
        async with box.transaction() as tx:
            await tx.execute("CREATE TEMPORARY TABLE IF NOT EXISTS business (n INT)")
            await tx.execute("INSERT INTO business VALUES (%s)", (7,))
            event_id = await box.write("Happened", {"n": "😀"}, tx=tx)
        await seen.reach(1)
        assert (seen[0].event_id, seen[0].payload) == (event_id, '{"n":"😀"}')
        await world.until_settled(1)

    world.run(scenario)
    assert [(row["status"], row["attempts"], row["locked_by"]) for row in table.rows()] == [(1, 0, None)]


def test_what_was_rolled_back_is_not_delivered(world: World, table: Table, outbox: Any, colour: Paint) -> None:
    async def scenario() -> None:
        seen = Collector()
        box = outbox()
        box.register("Happened", colour(lambda envelope: seen.add(envelope.event_id)))
        await box.start()
        with pytest.raises(ZeroDivisionError):
            async with box.transaction() as tx:
                await box.write("Happened", {}, tx=tx)
                raise ZeroDivisionError
        async with box.transaction() as tx:
            with pytest.raises(ZeroDivisionError):
                async with box.transaction():
                    await box.write("Happened", {})
                    raise ZeroDivisionError
            kept = await box.write("Happened", {}, tx=tx)
        await seen.reach(1)
        await world.until_settled(1)
        assert seen == [kept]

    world.run(scenario)
    assert len(table.rows()) == 1


def test_events_of_others_are_found_by_the_poller(world: World, table: Table, outbox: Any, colour: Paint) -> None:
    """Cold: retried until it succeeds, dead when it does not."""

    async def scenario() -> None:
        seen = Collector()

        def fail(envelope: Any) -> None:
            seen.add(envelope.event_type)
            if envelope.event_type == "Dies" or seen.count("Fails") == 1:
                raise ValueError("no luck: 'x' \\ 😀")

        writer, box = outbox(), outbox(poll_interval="50ms", retry_policy=Fixed("1ms"), max_attempts=3)
        for name in ("Fails", "Dies"):
            box.register(name, colour(fail))
        async with writer.transaction() as tx:
            await writer.write_all([EventEnvelope(name, payload_json="{}") for name in ("Fails", "Dies")], tx=tx)
        await box.start()
        await world.until_settled(1, status=3)
        await world.until_settled(1)
        assert (seen.count("Fails"), seen.count("Dies")) == (2, 3)
        (dead,) = await box.dead.query()
        assert (dead.event_type, dead.attempts) == ("Dies", 3)
        assert "no luck: 'x' \\ 😀" in dead.last_error
        assert await box.dead.replay(dead.event_id)

    world.run(scenario)


def test_a_callers_own_connection_is_written_through(world: World, table: Table, outbox: Any, colour: Paint) -> None:
    async def scenario() -> None:
        seen = Collector()
        box = outbox(poll_interval="50ms")
        box.register("Happened", colour(lambda envelope: seen.add(envelope.payload)))
        await box.start()
        connection = await user_connection(world, table.url)
        await box.write("Happened", {"n": 1}, tx=connection)
        await done(connection.rollback())
        await box.write("Happened", {"n": 2}, tx=connection)
        await done(connection.commit())
        await seen.reach(1)
        await world.until_settled(1)
        await hung_up(connection)
        assert seen == ['{"n":2}']

    world.run(scenario)


def test_without_a_transaction_nothing_is_written(world: World, table: Table, outbox: Any) -> None:
    async def scenario() -> None:
        box = outbox()
        connection = await user_connection(world, table.url, autocommit=True)
        with pytest.raises(NotInTransaction):
            await box.write("Happened", {}, tx=connection)
        await hung_up(connection)

    world.run(scenario)
    assert table.rows() == []


def test_a_killed_session_delays_but_loses_nothing(world: World, table: Table, outbox: Any) -> None:
    """While a handler runs, all connections of the outbox die."""

    async def scenario() -> None:
        started, goes_on, seen = Signal(), Signal(), Collector()

        def slow(envelope: Any) -> None:
            seen.add(envelope.event_id)
            if len(seen) == 1:
                started.set()
                goes_on.wait_here()

        box = outbox(poll_interval="50ms", worker_count=1)
        box.register("Happened", slow)
        await box.start()
        async with box.transaction() as tx:
            await box.write("Happened", {}, tx=tx)
        await started.wait()
        for session in table.sessions():
            table.kill(session)
        goes_on.set()
        await world.until_settled(1)
        async with box.transaction() as tx:
            await box.write("Happened", {}, tx=tx)
        await world.until_settled(2)
        assert len(seen) == len(set(seen)) == 2

    world.run(scenario)


def test_close_leaves_no_session(world: World, table: Table, outbox: Any, colour: Paint) -> None:
    async def scenario() -> None:
        box = outbox()
        box.register("Happened", colour(lambda envelope: None))
        await box.start()
        async with box.transaction() as tx:
            await box.write("Happened", {}, tx=tx)
        await box.close()

    world.run(scenario)
    gone(table)
