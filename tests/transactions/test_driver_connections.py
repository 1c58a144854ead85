"""tx=connection of each driver, inside the caller's own transaction: rows are born free, and the poller looks soon."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from aftercommit import NotInTransaction, UnsupportedTransaction
from tests.support import Collector, World
from tests.transactions.driver_kit import calling, done, is_asyncpg


def playing(world: World, scenario: Callable[[Any, Collector], Awaitable[None]]) -> None:
    """With a started outbox that looks by itself once a minute only."""
    seen = Collector()

    async def whole() -> None:
        outbox = world.outbox(poll_interval="60s")
        outbox.register("T", lambda event: seen.add(event.payload_json))
        await outbox.start()
        await scenario(outbox, seen)

    world.run(whole)


def committed(world: World) -> list[str]:
    return [row["payload"] for row in world.rows()]


@pytest.mark.parametrize("autocommit", [False, True])
def test_an_event_is_part_of_a_transaction_that_was_begun(any_world: World, autocommit: bool) -> None:
    if is_asyncpg(any_world) and not autocommit:
        pytest.skip("which has no other mode")

    async def scenario(outbox: Any, seen: Collector) -> None:
        async with calling(any_world, autocommit=autocommit) as caller:
            await caller.run("BEGIN")
            await outbox.write("T", "1", tx=caller.raw)
            await caller.run("ROLLBACK")
            await caller.run("BEGIN")
            await outbox.write("T", "2", tx=caller.raw)
            assert committed(any_world) == []
            await caller.run("COMMIT")
            await seen.reach(1)
        assert list(seen) == committed(any_world) == ["2"]
        assert any_world.rows("SELECT lease_epoch FROM outbox_event")[0][0] == 1  # born free, and claimed

    playing(any_world, scenario)


def test_a_connection_that_begins_by_itself_is_in_a_transaction(any_world: World) -> None:
    if is_asyncpg(any_world):
        pytest.skip("which begins nothing by itself")

    async def scenario(outbox: Any, seen: Collector) -> None:
        async with calling(any_world, autocommit=False) as caller:
            await outbox.write("T", "1", tx=caller.raw)
            assert committed(any_world) == []
            await done(caller.raw.commit())
            await seen.reach(1)
            await outbox.write("T", "2", tx=caller.raw)
            await done(caller.raw.rollback())
        assert list(seen) == committed(any_world) == ["1"]

    playing(any_world, scenario)


def test_autocommit_without_begin_is_refused_before_anything_is_written(any_world: World) -> None:
    async def scenario(outbox: Any, seen: Collector) -> None:
        async with calling(any_world, autocommit=True) as caller:
            with pytest.raises(NotInTransaction, match="BEGIN"):
                await outbox.write("T", "1", tx=caller.raw)
            await caller.run("BEGIN")
            await caller.run("COMMIT")
            with pytest.raises(NotInTransaction):
                await outbox.write_all([], tx=caller.raw)
        assert committed(any_world) == []

    playing(any_world, scenario)


def test_a_closed_connection_is_refused(any_world: World) -> None:
    async def scenario(outbox: Any, seen: Collector) -> None:
        async with calling(any_world, autocommit=True) as caller:
            await caller.run("BEGIN")
        with pytest.raises(NotInTransaction):
            await outbox.write("T", "1", tx=caller.raw)

    playing(any_world, scenario)


def test_a_failed_transaction_takes_nothing_more(any_world: World) -> None:
    if any_world.database != "postgres":
        pytest.skip("where a failed statement undoes itself alone")
    # asyncpg keeps to itself that it has failed; the server does not.
    refusal = asyncpg.InFailedSQLTransactionError if is_asyncpg(any_world) else NotInTransaction

    async def scenario(outbox: Any, seen: Collector) -> None:
        async with calling(any_world, autocommit=True) as caller:
            await caller.run("BEGIN")
            with pytest.raises(Exception, match="nowhere"):
                await caller.run("SELECT * FROM nowhere")
            with pytest.raises(refusal):
                await outbox.write("T", "1", tx=caller.raw)
            await caller.run("ROLLBACK")
            await caller.run("BEGIN")
            await outbox.write("T", "2", tx=caller.raw)
            await caller.run("COMMIT")
            await seen.reach(1)
        assert committed(any_world) == ["2"]

    playing(any_world, scenario)


def test_a_connection_of_another_driver_is_refused(any_world: World) -> None:
    async def scenario(outbox: Any, seen: Collector) -> None:
        other: Any = sqlite3.connect(":memory:") if any_world.database != "sqlite" else object()
        with pytest.raises(UnsupportedTransaction, match=type(other).__qualname__):
            await outbox.write("T", "1", tx=other)
        if isinstance(other, sqlite3.Connection):
            other.close()

    playing(any_world, scenario)
