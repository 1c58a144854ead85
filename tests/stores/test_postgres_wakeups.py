"""LISTEN and NOTIFY: one connection that only listens, noticed when it dies, and none of the user's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from aftercommit.errors import SchemaMissing, StoreUnavailable
from aftercommit.execution import Colour
from aftercommit.ports import WakeupsUnavailable
from aftercommit.runtime.threads import run
from aftercommit.stores.detect import open_store
from aftercommit.stores.postgres import bell, wakeups, wakeups_psycopg
from aftercommit.stores.postgres.wakeups import PostgresWakeups, channel_of
from tests.promises.forks import Child
from tests.servers import Pgbouncer
from tests.stores.postgres_kit import TARGETS, Table, Way
from tests.stores.postgres_proxy import Proxy
from tests.stores.test_postgres_claims import Beside
from tests.support import PATIENCE

#: What listens has this in its last statement.
LISTENING = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%%LISTEN%%' AND pid <> "


def listeners(table: Table) -> set[int]:
    return {row["pid"] for row in table.read(LISTENING + "pg_backend_pid()")}


def until_sessions(table: Table, mark: str, count: int) -> None:
    """The server takes a moment to see that a session has ended."""
    watch = threading.Event()
    for _ in range(int(PATIENCE / 0.005)):
        if len(table.sessions(mark)) == count:
            return
        watch.wait(0.005)
    raise AssertionError(f"{table.sessions(mark)} instead of {count}")


async def heard(ear: Any, count: int) -> list[str]:
    """So many messages."""
    messages: list[str] = []
    while len(messages) < count:
        messages += await within(ear.receive())
    return messages


async def within(work: Any) -> Any:
    """A loop gives up on what hangs; a thread is left to the limit of the suite."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return await work
    return await asyncio.wait_for(work, PATIENCE)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is short, and so is the time to answer."""
    monkeypatch.setattr(wakeups, "SILENCE", 0.05)
    for each in (wakeups_psycopg, bell):
        monkeypatch.setattr(each, "ANSWER", 0.3)


@pytest.fixture
def somebody(postgres_table: Table) -> Iterator[Any]:
    """Another process, as far as the database knows: sends from a blocking store of its own."""
    store = open_store(postgres_table.url, Colour.BLOCKING)
    lent = store.wakeups

    def say(message: str) -> None:
        run(lent.send(message))

    yield say
    run(store.close())


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
            ear = store.wakeups
            await ear.receive()
            opened = await store.begin()
            await ear.send("sent")
            assert await heard(ear, 1) == ["sent"]
            await opened.end()
            somebody("after the rollback")
            assert await heard(ear, 1) == ["after the rollback"]

    way.run(scenario)


def test_a_message_does_not_wait_for_the_disk(way: Way, postgres_table: Table) -> None:
    async def scenario() -> None:
        async with way.opened() as store:
            statement = store._sql["notify"]
            shown = f"SELECT current_setting('synchronous_commit') FROM ({statement.sql}) AS sent"
            ((setting,),) = await store.executor.fetch(shown, statement.bind(channel="c", message="m"))
            assert setting == "off"
            postgres_table.execute("SET synchronous_commit TO on")
            assert await store.executor.fetch("SHOW synchronous_commit") == [("off",)], "of this database in tests"

    way.run(scenario)


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
            ear = store.wakeups
            await ear.receive()
            somebody("found by the search path")
            assert await heard(ear, 1) == ["found by the search path"]

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


@pytest.mark.parametrize("kind", ["pool", "engine"])
def test_a_users_pool_of_one_is_not_used_up(way: Way, kind: str, postgres_table: Table, somebody: Any) -> None:
    async def scenario() -> None:
        async with way.target(kind, size=1) as target, way.opened(target) as store:
            ear = store.wakeups
            await ear._named()
            held = await store.executor.begin()
            await ear.receive()
            somebody("all are in use")
            assert await heard(ear, 1) == ["all are in use"]
            await held.end()
            until_sessions(postgres_table, way.mark, 2)
            await store.records.backlog()
            await ear.close()
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
            ear = store.wakeups
            await ear.receive()
            somebody("heard")
            assert await heard(ear, 1) == ["heard"]
            assert len(postgres_table.sessions("of a function")) == 2

    way.run(scenario)


# ---------------------------------------------------------------- interrupting


def test_another_thread_interrupts_a_receive_that_waits(way: Way, somebody: Any) -> None:
    async def scenario() -> None:
        async with way.opened() as store:
            ear = store.wakeups
            await ear.receive()
            waits = threading.Event()
            wait = ear._ear.wait

            async def watched(seconds: float) -> bool:
                waits.set()
                return bool(await wait(seconds))

            ear._ear.wait = watched
            thread = threading.Thread(target=lambda: (waits.wait(PATIENCE), ear.interrupt()))
            thread.start()
            assert await within(ear.receive()) == []
            thread.join(PATIENCE)
            somebody("still listens")
            assert await heard(ear, 1) == ["still listens"]

    way.run(scenario)


def test_an_interrupt_is_not_lost_before_the_receive(way: Way, somebody: Any) -> None:
    async def scenario() -> None:
        async with way.opened() as store:
            ear = store.wakeups
            ear.interrupt()
            assert await ear.receive() == []
            assert await within(ear.receive()) == [], "it began first"
            ear.interrupt()
            ear.interrupt()
            assert await within(ear.receive()) == []
            somebody("after it")
            assert await heard(ear, 1) == ["after it"]

    way.run(scenario)


# ---------------------------------------------------------------- dying


def test_a_session_that_was_ended_is_noticed_at_once_and_renewed(
    way: Way, postgres_table: Table, somebody: Any
) -> None:
    async def scenario() -> None:
        async with way.opened() as store:
            ear = store.wakeups
            await ear.receive()
            (before,) = listeners(postgres_table)
            assert postgres_table.value("SELECT pg_terminate_backend(%s, 5000)", before)
            with pytest.raises((OSError, psycopg.OperationalError)):
                await within(ear.receive())
            assert await ear.receive() == []
            assert before not in listeners(postgres_table)
            somebody("again")
            assert await heard(ear, 1) == ["again"]

    way.run(scenario)


@asynccontextmanager
async def behind(way: Way, proxy: Proxy) -> AsyncIterator[PostgresWakeups]:
    """Listens through the wire, and sends beside it."""
    async with way.opened() as store:
        through = way.store(way.at(proxy.url))
        ear = PostgresWakeups(through.executor, store.executor, store._sql, store.names, set())
        await ear.receive()
        yield ear
        await ear.close()


@pytest.mark.usefixtures("impatient")
def test_a_session_that_died_in_silence_is_noticed_and_renewed(way: Way, postgres_table: Table, somebody: Any) -> None:
    async def scenario(proxy: Proxy) -> None:
        async with behind(way, proxy) as ear:
            await ear.send("before")
            assert await heard(ear, 1) == ["before"]
            assert proxy.freeze() == 1
            somebody("lost")
            with pytest.raises(StoreUnavailable, match="said nothing"):
                await within(ear.receive())
            assert proxy.unheard, "it was asked"
            assert await ear.receive() == []
            somebody("again")
            assert await heard(ear, 1) == ["again"]

    with Proxy(postgres_table.url) as proxy:
        way.run(lambda: scenario(proxy))


def test_a_quiet_session_is_asked_and_kept_and_hears_all(
    way: Way, postgres_table: Table, somebody: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked all the time, so that messages come together with answers."""
    monkeypatch.setattr(wakeups, "SILENCE", 0.0)
    texts = [str(number) for number in range(200)]

    async def scenario() -> None:
        async with way.opened() as store:
            ear = store.wakeups
            await ear.receive()
            (before,) = listeners(postgres_table)
            asked: list[bool] = []
            ask = ear._ear.is_direct

            async def watched() -> bool:
                asked.append(await ask())
                return asked[-1]

            ear._ear.is_direct = watched
            others = threading.Thread(target=lambda: [somebody(text) for text in texts])
            others.start()
            assert await heard(ear, len(texts)) == texts
            others.join(PATIENCE)
            assert asked
            assert all(asked)
            assert ear._ear is not None

    way.run(scenario)


def test_a_pooler_is_known_and_nothing_is_left_listening_behind_it(
    way: Way, pgbouncer: Pgbouncer, postgres_table: Table, somebody: Any
) -> None:
    async def scenario() -> None:
        async with way.opened() as direct, way.opened(way.at(pgbouncer.url)) as store:
            through, ear = store.wakeups, direct.wakeups
            for _ in range(3):
                with pytest.raises(WakeupsUnavailable, match="pooler"):
                    await through.receive()
            assert not listeners(postgres_table)
            await ear.receive()
            await through.send("it can be said")
            assert await heard(ear, 1) == ["it can be said"]

    way.run(scenario)


# ---------------------------------------------------------------- ending


@pytest.mark.parametrize("which", ["wakeups", "store"])
def test_closing_ends_the_session_and_the_next_receive_begins_anew(
    way: Way, which: str, postgres_table: Table, somebody: Any
) -> None:
    async def scenario() -> None:
        async with way.opened() as store:
            ear = store.wakeups
            await ear.close()
            await ear.receive()
            assert len(listeners(postgres_table)) == 1
            for _ in range(2):
                await (ear if which == "wakeups" else store).close()
            assert ear._ear is None
            assert not store._listening
            assert await ear.receive() == []
            somebody("again")
            assert await heard(ear, 1) == ["again"]

    way.run(scenario)
    until_sessions(postgres_table, way.mark, 0)


def test_closing_from_elsewhere_ends_a_receive_that_waits(way: Way) -> None:
    async def scenario() -> None:
        async with way.opened() as store:
            ear = store.wakeups
            await ear.receive()
            if way.is_async:
                waiting = asyncio.create_task(ear.receive())
                await asyncio.sleep(0)
                await store.close()
                assert await within(waiting) == []
            else:
                beside = Beside(way, ear.receive)
                await store.close()
                assert beside.result() == []

    way.run(scenario)
