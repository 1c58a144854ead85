"""What a write on PostgreSQL saves must not be seen: who waits for a commit, and what statements give."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from psycopg.rows import dict_row

from aftercommit import AsyncOutbox, EventEnvelope, Outbox

INSERT = "INSERT INTO things (number) VALUES ($1), ($2)"


def test_a_commit_is_told_before_the_users_pool_resets_the_connection(postgres_url: str) -> None:
    order: list[str] = []

    async def reset(_: Any) -> None:
        order.append("reset")

    async def scenario() -> None:
        async with asyncpg.create_pool(postgres_url, min_size=1, max_size=2, reset=reset) as pool:
            outbox = AsyncOutbox(pool, create_schema=True)
            await outbox.create_schema()
            await outbox.close()
            order.clear()
            async with outbox.transaction() as tx:
                tx.after_commit(lambda: order.append("told"))
                await outbox.write("T", "{}")
            await outbox.close()
            assert order == ["told", "reset"], "and close() has waited for the pool to have it back"
            assert pool.get_idle_size() == pool.get_size()

    asyncio.run(scenario())


def test_a_statement_of_asyncpg_gives_what_it_gave_unprepared(postgres_url: str) -> None:
    """Again and again: asyncpg keeps what it has prepared."""

    async def scenario() -> None:
        outbox = AsyncOutbox(postgres_url.replace("postgresql://", "postgresql+asyncpg://", 1), create_schema=True)
        for _ in range(3):
            async with outbox.transaction() as tx:
                await tx.execute("CREATE TEMPORARY TABLE things (number integer) ON COMMIT DROP")
                changed = await tx.execute(INSERT, (1, 2))
                returned = await tx.execute(f"{INSERT} RETURNING number", (3, 4))
                assert (changed.rows, changed.rowcount) == ([], 2)
                assert ([row[0] for row in returned.rows], returned.rowcount) == ([3, 4], 2)
                updated = await tx.execute("UPDATE things SET number = number + $1", (10,))
                assert updated.rowcount == 4
        await outbox.close()

    asyncio.run(scenario())


def test_two_statements_at_once_are_refused_with_asyncpg(postgres_url: str) -> None:
    """The second could end the transaction unseen."""

    async def scenario() -> None:
        outbox = AsyncOutbox(postgres_url.replace("postgresql://", "postgresql+asyncpg://", 1), create_schema=True)
        with pytest.raises(asyncpg.PostgresSyntaxError):
            async with outbox.transaction() as tx:
                await tx.execute("DELETE FROM outbox_event; COMMIT")
        await outbox.close()

    asyncio.run(scenario())


def test_what_a_user_sets_on_the_connection_counts_for_the_next_statement(postgres_url: str) -> None:
    outbox = Outbox(postgres_url, create_schema=True)
    with outbox.transaction() as tx:
        tx.execute("CREATE TEMPORARY TABLE things (number integer) ON COMMIT DROP")
        assert tx.execute("SELECT 1 AS number").rows == [(1,)]
        tx.execute("INSERT INTO things (number) VALUES (%s)", (1,))
        tx.connection.row_factory = dict_row
        assert tx.execute("SELECT number FROM things").rows == [{"number": 1}]
    outbox.close()


#: As they stand in JSON: what an array would have to escape, and what stands between texts that are sent as one.
AWKWARD = ['{"a": "\\"b\\" \\\\ {}"}', '"null"', "null", '"\\u001f"', '["é", "{}", ","]', " [ 1,\n2 ]\t", '""']


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+asyncpg"])
def test_texts_of_many_events_are_stored_as_they_are(postgres_url: str, scheme: str) -> None:
    async def scenario() -> None:
        outbox = AsyncOutbox(postgres_url.replace("postgresql://", f"{scheme}://", 1), create_schema=True)
        keys = [None, "NULL", '"', "\\\\'", "{}", "a,b", None]
        events = [EventEnvelope("T", payload_json=text, key=key) for text, key in zip(AWKWARD, keys, strict=True)]
        async with outbox.transaction():
            ids = await outbox.write_all(events)
        found = [await outbox.records.find(event_id) for event_id in ids]
        assert [each[0].payload for each in found] == AWKWARD
        assert [each[0].key for each in found] == keys
        assert [each[0].position for each in found] == sorted(each[0].position for each in found)
        await outbox.close()

    asyncio.run(scenario())
