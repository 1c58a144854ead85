"""tx=connection: the INSERT runs at once in the caller's transaction; the poller delivers soon after its commit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import insert

from aftercommit import EventEnvelope, NotInTransaction, UnsupportedTransaction
from tests.transactions.kit import Deliberate
from tests.transactions.sqlalchemy_kit import Customer, Shop, orphan, plain


@asynccontextmanager
async def connected(shop: Shop, engine: Any = None) -> AsyncIterator[Any]:
    """A connection whose methods are awaited in both worlds."""
    engine = engine or shop.engine
    if shop.is_async:
        async with engine.connect() as connection:
            yield connection
    else:
        with engine.connect() as connection:
            yield Handle(connection)


class Handle:
    """A sync connection whose methods are awaited."""

    def __init__(self, inner: Any) -> None:
        self.plain = inner

    def __getattr__(self, name: str) -> Any:
        async def method(*arguments: Any, **keywords: Any) -> Any:
            result = getattr(self.plain, name)(*arguments, **keywords)
            return Handle(result) if name == "begin_nested" else result

        return method


def bare(handle: Any) -> Any:
    return getattr(handle, "plain", handle)


async def write(outbox: Any, handle: Any, name: str, **options: Any) -> Any:
    """In either colour; a connection of asyncio is awaited."""
    written = plain(outbox).write("T", f'"{name}"', tx=bare(handle), **options)
    return written if isinstance(written, str) else await written


def test_the_row_is_in_the_callers_transaction_and_shares_its_fate(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = shop.outbox(poller_enabled=True, poll_interval="60s")
        await outbox.start()
        async with connected(shop) as connection:
            await connection.execute(insert(Customer).values(id=1))
            await write(outbox, connection, "undone")
            await connection.rollback()
            event_id = await write(outbox, connection, "kept")
            savepoint = await connection.begin_nested()
            await write(outbox, connection, "inner")
            await savepoint.rollback()
            assert shop.committed() == []
            await connection.commit()
            await shop.seen.reach(1)  # while the connection is still open
        assert [row["event_id"] for row in shop.world.rows()] == [event_id]
        assert list(shop.seen) == shop.committed() == ["kept"]

    shop.run(scenario)


def test_the_poller_is_told_of_the_commit_and_again_of_the_return(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()
        told: list[str] = []
        edge = plain(outbox)._edge()
        edge.look_soon, edge.wake = lambda: told.append("soon"), lambda: told.append("now")
        async with connected(shop) as connection:
            await write(outbox, connection, "1")
            assert told == []
            await connection.commit()
            assert told == ["soon"]
        assert told == ["soon", "now"]
        async with connected(shop) as connection:
            await write(outbox, connection, "2")
        assert told == ["soon", "now"]

    shop.run(scenario)


def test_the_poller_is_told_of_each_commit_on_a_connection_that_is_kept(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()
        told: list[str] = []
        edge = plain(outbox)._edge()
        edge.look_soon, edge.wake = lambda: told.append("soon"), lambda: told.append("now")
        async with connected(shop) as connection:
            await write(outbox, connection, "1")
            await connection.commit()
            await write(outbox, connection, "2")
            assert told == ["soon", "now"]
            await connection.commit()
            assert told == ["soon", "now", "soon"]
        assert told == ["soon", "now", "soon", "now"]

    shop.run(scenario)


def test_many_rows_are_all_there_or_none(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = shop.outbox(poller_enabled=True, poll_interval="60s")
        await outbox.start()
        one, other = EventEnvelope("T", payload_json='"1"'), EventEnvelope("T", payload_json='"2"', deliver_after="1h")
        third = EventEnvelope("T", payload_json='"3"')
        async with connected(shop) as connection:
            await _write_all(outbox, connection, [one, other, third])
            with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
                await _write_all(outbox, connection, [EventEnvelope("T", payload_json='"4"'), one])
            await connection.commit()
        assert shop.committed() == ["1", "2", "3"]
        await shop.seen.reach(2)

    shop.run(scenario)


async def _write_all(outbox: Any, handle: Any, events: list[Any]) -> None:
    written = plain(outbox).write_all(events, tx=bare(handle))
    if not isinstance(written, list):
        await written


def test_a_constraint_that_fails_at_commit_takes_the_event(shop: Shop) -> None:
    if shop.world.database == "mariadb":
        pytest.skip("whose constraints are looked at at once")

    async def scenario() -> None:
        outbox = shop.outbox(poller_enabled=True, poll_interval="60s")
        await outbox.start()
        async with connected(shop) as connection:
            await write(outbox, connection, "undone")
            await connection.execute(orphan())
            with pytest.raises(Exception, match=r"(?i)foreign key"):
                await connection.commit()
            await connection.rollback()
        async with connected(shop) as connection:
            await write(outbox, connection, "kept")
            await connection.commit()
        await shop.seen.reach(1)
        assert list(shop.seen) == shop.committed() == ["kept"]

    shop.run(scenario)


def test_without_a_transaction_nothing_is_written(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()
        async with connected(shop, shop.engine.execution_options(isolation_level="AUTOCOMMIT")) as connection:
            with pytest.raises(NotInTransaction, match="AUTOCOMMIT"):
                await write(outbox, connection, "1")
        async with connected(shop) as connection:
            pass
        with pytest.raises(NotInTransaction, match=r"engine\.begin"):
            await write(outbox, connection, "1")
        assert shop.committed() == []

    shop.run(scenario)


def test_a_connection_of_the_other_colour_is_refused(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()
        if not shop.is_async:
            return

        def blocking(connection: Any) -> None:
            with pytest.raises(UnsupportedTransaction, match="AsyncConnection"):
                outbox.write("T", '"1"', tx=connection)

        await shop.on_connection(blocking)

    shop.run(scenario)


def test_a_block_that_fails_takes_the_event(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = shop.outbox(poller_enabled=True, poll_interval="60s")
        await outbox.start()
        with pytest.raises(Deliberate):
            async with connected(shop) as connection:
                await write(outbox, connection, "undone")
                raise Deliberate
        async with connected(shop) as connection:
            await write(outbox, connection, "kept")
            await connection.commit()
        await shop.seen.reach(1)
        assert list(shop.seen) == shop.committed() == ["kept"]

    shop.run(scenario)
