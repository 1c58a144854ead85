"""Under asyncio our own statements do not wait as psycopg waits, with a timer each time. Nothing else is different."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from aftercommit import AsyncOutbox, EventEnvelope
from aftercommit.errors import StoreUnavailable
from aftercommit.stores.postgres import psycopg_link
from tests.support import PATIENCE

#: By then the statement of an event is prepared.
ENOUGH = 8


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[AsyncOutbox]:
    outbox = AsyncOutbox(url, create_schema=True)
    await outbox.create_schema()
    try:
        yield outbox
    finally:
        await outbox.close()


async def in_transaction(outbox: AsyncOutbox, payload: str = "{}") -> str | None:
    async with outbox.transaction():
        return await outbox.write("T", payload)


async def prepared(outbox: AsyncOutbox, connection: Any) -> None:
    await connection.execute("SELECT 1")
    for _ in range(ENOUGH):
        await outbox.write("T", "{}", tx=connection)
    await connection.commit()
    await connection.execute("SELECT 1")  # the first statement of a transaction is a cursor's


def test_a_transaction_of_ours_never_waits_as_psycopg_does(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with opened(postgres_url) as outbox:
            for _ in range(ENOUGH):
                await in_transaction(outbox)
            waits = 0
            wait = psycopg.AsyncConnection.wait

            def counted(connection: Any, *rest: Any, **more: Any) -> Any:
                nonlocal waits
                waits += 1
                return wait(connection, *rest, **more)

            monkeypatch.setattr(psycopg.AsyncConnection, "wait", counted)
            event_id = await in_transaction(outbox)
            assert waits == 0
            assert len(await outbox.records.find(str(event_id))) == 1

    asyncio.run(scenario())


def test_an_event_that_the_socket_takes_in_parts_is_written_whole(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_parts = 0
    arrived = psycopg_link.arrived

    async def counted(descriptor: int, *, writable: bool = False) -> bool:
        nonlocal in_parts
        in_parts += writable
        return await arrived(descriptor, writable=writable)

    async def scenario() -> None:
        payload = '"' + "x" * 1_000_000 + '"'
        async with opened(postgres_url) as outbox, await psycopg.AsyncConnection.connect(postgres_url) as connection:
            await prepared(outbox, connection)
            with socket.socket(fileno=connection.fileno()) as own:
                own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
                own.detach()
            event_id = await outbox.write("T", payload, tx=connection)
            await connection.commit()
            (row,) = await outbox.records.find(str(event_id))
            assert row.payload == payload

    monkeypatch.setattr(psycopg_link, "arrived", counted)
    asyncio.run(scenario())
    assert in_parts > 0


def test_who_is_cancelled_behind_a_lock_has_a_connection_that_can_go_on(postgres_url: str) -> None:
    async def scenario() -> None:
        event = EventEnvelope("T", payload_json="{}")
        connect = psycopg.AsyncConnection.connect
        async with (
            opened(postgres_url) as outbox,
            await connect(postgres_url) as first,
            await connect(postgres_url) as it,
        ):
            await prepared(outbox, it)
            await first.execute("SELECT 1")
            await outbox.write(event, tx=first)
            task = asyncio.ensure_future(outbox.write(event, tx=it))
            await until_it_waits(first, it.info.backend_pid)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert it.info.transaction_status == TransactionStatus.INERROR
            await it.rollback()
            await it.execute("SELECT 1")
            assert await outbox.write("T", "{}", tx=it)

    asyncio.run(scenario())


async def until_it_waits(connection: Any, process: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            asked = await connection.execute("SELECT cardinality(pg_blocking_pids(%s))", (process,))
            if (await asked.fetchone()) != (0,):
                return


def test_a_block_of_the_users_on_our_connection_is_ended_before_our_commit(postgres_url: str) -> None:
    async def scenario() -> None:
        async with opened(postgres_url) as outbox:
            event_id, inner = None, None
            with pytest.raises(psycopg.ProgrammingError, match="commit"):
                async with outbox.transaction() as tx:
                    event_id = await outbox.write("T", "{}")
                    inner = tx.connection.transaction()
                    await inner.__aenter__()
            assert await outbox.records.find(str(event_id)) == []

    asyncio.run(scenario())


def test_a_session_that_was_ended_in_its_transaction_is_an_outage(postgres_url: str) -> None:
    """Its last word is one answer, and the end of the connection is another."""

    async def scenario() -> None:
        async with (
            opened(postgres_url) as outbox,
            await psycopg.AsyncConnection.connect(postgres_url) as connection,
            await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as other,
        ):
            await prepared(outbox, connection)
            pid = connection.info.backend_pid
            await other.execute("SELECT pg_terminate_backend(%s)", [pid])
            alive = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
            async with asyncio.timeout(PATIENCE):
                while await (await other.execute(alive, [pid])).fetchone():
                    await asyncio.sleep(0.005)
            with pytest.raises(StoreUnavailable):
                await outbox.write("T", "{}", tx=connection)
            assert connection.closed

    asyncio.run(scenario())
