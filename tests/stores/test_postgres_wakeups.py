"""LISTEN and NOTIFY: one connection that only listens, none of the user's; messages in a transaction of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from aftercommit.errors import SchemaMissing
from aftercommit.stores.postgres import wakeups
from aftercommit.stores.postgres.wakeups import PostgresWakeups, channel_of
from tests.stores.postgres_kit import TARGETS, Table, Way
from tests.stores.wakeups_kit import heard, speaker, until_sessions, within
from tests.support import PATIENCE


@pytest.fixture
def somebody(postgres_table: Table) -> Iterator[Any]:
    with speaker(postgres_table) as say:
        yield say


# ---------------------------------------------------------------- hearing


@pytest.mark.parametrize("kind", TARGETS)
def test_a_message_reaches_all_who_listen(way: Way, kind: str, postgres_table: Table, somebody: Any) -> None:
    async def scenario() -> None:
        async with way.target(kind) as target, way.opened(target) as store:
            first, second = store.wakeups, store.wakeups
            assert [await first.receive(), await second.receive()] == [[], []], "it begins, and says so"
            somebody("from another process: é €")
            await first.send("from here")
            for each in (first, second):
                assert await heard(each, 2) == ["from another process: é €", "from here"]

    way.run(scenario)
    until_sessions(postgres_table, way.mark, 0)


def test_messages_are_not_part_of_a_transaction_that_is_open(way: Way, somebody: Any) -> None:
    async def scenario() -> None:
        async with way.opened() as store:
            listener = store.wakeups
            await listener.receive()
            opened = await store.begin()
            await listener.send("sent")
            assert await heard(listener, 1) == ["sent"]
            await opened.end()
            somebody("after the rollback")
            assert await heard(listener, 1) == ["after the rollback"]

    way.run(scenario)


def test_a_message_does_not_wait_for_the_disk_and_what_comes_after_it_does(postgres_table: Table) -> None:
    statement = Way("psycopg", postgres_table).store()._sql["notify"]
    values = statement.bind(channel="c", message="m")
    with psycopg.connect(postgres_table.url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit TO on")
        with connection.transaction():
            connection.execute(statement.sql, values)
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("off",)
        connection.execute(statement.sql, values)
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",), "a pooler would pass it on"


def test_two_tables_do_not_hear_each_other(way: Way, postgres_table: Table, somebody: Any) -> None:
    async def scenario() -> None:
        async with way.opened(table="other_table", create_schema=True) as other, way.opened() as store:
            here, there = store.wakeups, other.wakeups
            await here.receive()
            await there.receive()
            await there.send("there")
            somebody("here")
            assert await heard(here, 1) == ["here"]
            assert await heard(there, 1) == ["there"]

    way.run(scenario)


def test_one_table_is_one_channel_whether_its_schema_is_named_or_found(way: Way, somebody: Any) -> None:
    async def scenario() -> None:
        async with way.opened(schema="public") as store:
            listener = store.wakeups
            await listener.receive()
            somebody("found by the search path")
            assert await heard(listener, 1) == ["found by the search path"]

    way.run(scenario)


def test_channels_have_names_that_postgresql_takes_whole() -> None:
    assert channel_of("public", "outbox_event") == "aftercommit:public.outbox_event"
    odd = {channel_of("s" * 48, "t" * 48), channel_of("s" * 48, "t" * 47), channel_of("schön", "t")}
    assert len(odd) == 3
    assert all(len(name.encode()) <= 63 and name.isascii() for name in odd)


@pytest.mark.parametrize("schema", ['we"ird; x', "schön", "s" * 60])
def test_any_schema_of_a_search_path_can_be_listened_for(way: Way, schema: str, postgres_table: Table) -> None:
    quoted = '"{}"'.format(schema.replace('"', '""'))
    postgres_table.execute(f"CREATE SCHEMA {quoted}")
    postgres_table.execute(f"CREATE TABLE {quoted}.odd (n integer)")

    async def scenario() -> None:
        async with way.opened() as store:
            odd = PostgresWakeups(store.executor, store.executor, store._sql, store.names, set())
            odd._channel = channel_of(schema, "odd")
            await odd.receive()
            await odd.send("heard")
            assert await heard(odd, 1) == ["heard"]
            await odd.close()

    try:
        way.run(scenario)
    finally:
        postgres_table.execute(f"DROP SCHEMA {quoted} CASCADE")


def test_without_a_table_there_is_nothing_to_listen_for(way: Way) -> None:
    async def scenario() -> None:
        store = way.store(table="nowhere")
        try:
            with pytest.raises(SchemaMissing):
                await store.wakeups.receive()
        finally:
            await store.close()

    way.run(scenario)


def test_messages_are_read_as_they_were_written_whatever_a_session_speaks(way: Way, somebody: Any) -> None:
    if way.driver == "asyncpg":
        pytest.skip("asyncpg speaks nothing but UTF-8")

    async def scenario() -> None:
        async with way.opened(f"{way.url}&client_encoding=latin1") as store:
            listener = store.wakeups
            await listener.receive()
            await listener.send("é")
            somebody("€")
            assert await heard(listener, 2) == ["é", "€"]

    way.run(scenario)


@pytest.mark.parametrize("kind", ["pool", "engine"])
def test_a_users_pool_of_one_is_not_used_up(way: Way, kind: str, postgres_table: Table, somebody: Any) -> None:
    async def scenario() -> None:
        async with way.target(kind, size=1) as target, way.opened(target) as store:
            listener = store.wakeups
            await listener._named(store.executor)
            held = await store.executor.begin()
            await listener.receive()
            somebody("all are in use")
            assert await heard(listener, 1) == ["all are in use"]
            await held.end()
            until_sessions(postgres_table, way.mark, 2)
            await store.records.backlog()
            await listener.close()
            await store.records.backlog()
            until_sessions(postgres_table, way.mark, 1)

    way.run(scenario)


def test_parameters_of_a_psycopg_pool_may_be_functions(way: Way, postgres_table: Table, somebody: Any) -> None:
    if way.driver == "asyncpg":
        pytest.skip("asyncpg's pools keep theirs")

    async def awaited() -> dict[str, Any]:
        return {"application_name": "of a function"}

    async def scenario() -> None:
        kwargs = awaited if way.is_async else lambda: {"application_name": "of a function"}
        async with way.pool(1, kwargs=kwargs) as pool, way.opened(pool) as store:
            pool.conninfo = lambda: way.plain
            listener = store.wakeups
            await listener.receive()
            somebody("heard")
            assert await heard(listener, 1) == ["heard"]
            assert len(postgres_table.sessions("of a function")) == 2

    way.run(scenario)


# ---------------------------------------------------------------- interrupting


def test_another_thread_interrupts_a_receive_that_waits(
    way: Way, somebody: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "SILENCE", 10 * PATIENCE)

    async def scenario() -> None:
        async with way.opened() as store:
            listener = store.wakeups
            await listener.receive()
            waits = threading.Event()
            wait = listener._connection.wait

            async def watched(seconds: float) -> bool:
                waits.set()
                return bool(await wait(seconds))

            listener._connection.wait = watched
            thread = threading.Thread(target=lambda: (waits.wait(PATIENCE), listener.interrupt()))
            thread.start()
            assert await within(listener.receive()) == []
            thread.join(PATIENCE)
            somebody("still listens")
            assert await heard(listener, 1) == ["still listens"]

    way.run(scenario)


def test_an_interrupt_is_not_lost_before_the_receive(way: Way, somebody: Any) -> None:
    async def scenario() -> None:
        async with way.opened() as store:
            listener = store.wakeups
            listener.interrupt()
            assert await listener.receive() == []
            assert await within(listener.receive()) == [], "it began first"
            listener.interrupt()
            listener.interrupt()
            assert await within(listener.receive()) == []
            somebody("after it")
            assert await heard(listener, 1) == ["after it"]

    way.run(scenario)
