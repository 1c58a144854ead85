"""The slot itself: made on request, refused where it cannot be, watched, lost with a clear word, and taken away."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from aftercommit import (
    AsyncReplicationTail,
    InvalidOption,
    Outbox,
    ReplicationRefused,
    ReplicationTail,
    SlotLost,
    StoreUnavailable,
)
from aftercommit.runtime.threads import run
from tests.conftest import other_database
from tests.servers import PrivatePostgres
from tests.support import Collector
from tests.tail.kit import TailWorld, write


def execute(url: str, statement: str, *parameters: object) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement, parameters or None)
        return cursor.fetchall() if cursor.description else []


def drop(world: TailWorld) -> None:
    """Between two looks of whoever reads it."""
    for _ in range(1000):
        with suppress(psycopg.errors.ObjectInUse):
            execute(world.plain_url, "SELECT pg_drop_replication_slot(%s)", world.slot)
            return
    raise AssertionError("the slot is in use all the time")


def made_in(url: str) -> tuple[int, int, int]:
    """Slots, publications and triggers."""
    ((slots, publications, triggers),) = execute(
        url,
        "SELECT (SELECT count(*) FROM pg_replication_slots WHERE database = current_database()),"
        " (SELECT count(*) FROM pg_publication), (SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal)",
    )
    return int(str(slots)), int(str(publications)), int(str(triggers))


def test_a_server_that_does_not_replicate_logically_is_refused_before_anything_is_made(postgres_url: str) -> None:
    tail = ReplicationTail(postgres_url, slot="never", table="never_event")
    with pytest.raises(ReplicationRefused, match="wal_level = replica") as refused:
        tail.create_schema()
    assert "wal_level = logical" in refused.value.fix
    assert execute(postgres_url, "SELECT 1 FROM pg_publication WHERE pubname = 'never'") == []
    with pytest.raises(ReplicationRefused, match="no replication slot never"):
        tail.start()
    run(tail._store.drop_schema())
    tail.close()


def test_a_tail_without_its_slot_says_how_to_make_it(tail_world: TailWorld) -> None:
    async def scenario() -> None:
        await tail_world.outbox().create_schema()
        with pytest.raises(ReplicationRefused, match="call create_schema"):
            await tail_world.tail(create_schema=False).start()

    tail_world.run(scenario)


def test_what_makes_no_sense_is_refused_when_it_is_built(tmp_path: Path) -> None:
    for target in ("sqlite://", "mysql://root@127.0.0.1/test", "redis://127.0.0.1"):
        with pytest.raises(InvalidOption, match="has none"):
            ReplicationTail(target)
    with pytest.raises(InvalidOption, match="has none"):
        Outbox.writer_only("sqlite://", replication="outbox_tail")
    for options in ({"hot_path": True}, {"poller_enabled": False}, {"replication": "x"}, {"slot": "With Blanks"}):
        with pytest.raises(InvalidOption):
            ReplicationTail("postgresql://127.0.0.1/test", **options)
    for wiring in ("single_node", "multi_node", "writer_only"):
        with pytest.raises(InvalidOption, match="a wiring of its own"):
            getattr(ReplicationTail, wiring)("postgresql://127.0.0.1/test")
    assert ReplicationTail.ordered("postgresql://127.0.0.1/test").config.ordered
    with pytest.raises(InvalidOption, match="CockroachDB"):
        AsyncReplicationTail("cockroachdb://127.0.0.1/test")


def test_a_user_without_the_right_hears_which_one(threads_world: TailWorld) -> None:
    role = f"role_{threads_world.slot}"
    url = threads_world.plain_url
    execute(url, f"CREATE ROLE {role} LOGIN")
    try:
        execute(url, f"GRANT CREATE ON SCHEMA public TO {role}")
        tail = ReplicationTail(url.replace("postgres@", f"{role}@"), slot=threads_world.slot)
        with pytest.raises(ReplicationRefused, match="does not let this user") as refused:
            tail.create_schema()
        assert "REPLICATION" in refused.value.fix
        tail.close()
    finally:
        execute(url, f"DROP OWNED BY {role} CASCADE")
        execute(url, f"DROP ROLE {role}")


def test_a_slot_of_somebody_else_is_left_alone(threads_world: TailWorld) -> None:
    execute(
        threads_world.plain_url, "SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", threads_world.slot
    )
    tail = ReplicationTail(threads_world.plain_url, slot=threads_world.slot)
    with pytest.raises(ReplicationRefused, match="test_decoding"):
        tail.create_schema()
    tail.close()


def test_the_script_makes_what_create_schema_makes(threads_world: TailWorld) -> None:
    url = threads_world.plain_url
    tail = ReplicationTail(url, slot=threads_world.slot)
    for statement in tail.schema_sql().split(";\n\n"):  # a slot is made in a transaction that has changed nothing
        execute(url, statement)
    assert made_in(url) == (1, 1, 1)
    tail.create_schema()  # finds nothing to do
    assert made_in(url) == (1, 1, 1)
    assert tail.drop_slot() == 0
    assert made_in(url) == (0, 0, 0)
    tail.close()


def test_a_dropped_slot_is_a_clear_error_and_no_event_is_lost(tail_world: TailWorld) -> None:
    seen = Collector()

    async def scenario() -> None:
        tail, writer = tail_world.tail(interval="20ms"), tail_world.writer()
        tail.handler("Happened", id="h")(lambda event: seen.add(event.payload_json))
        async with tail, writer:
            await write(writer, 1)
            await tail.drain("20s")
            await tail.close()
            await write(writer, 2)  # born done for a slot that nobody will read
            drop(tail_world)
            await write(writer, 3)  # born new: without a slot the table takes over by itself
            assert [row["status"] for row in tail_world.rows()] == [1, 1, 0]
            with pytest.raises(SlotLost, match="not there any more") as lost:
                await tail.start()
            assert "recover()" in lost.value.fix
            with pytest.raises(SlotLost):
                await tail.create_schema()  # a new slot would hide that events are missing
            assert await tail.recover() == 2  # 1 and 2: nobody knows which of them was delivered
            await tail.start()
            await write(writer, 4)
            await seen.reach(5)
            await tail.drain("20s")
        assert sorted(seen) == ["1", "1", "2", "3", "4"]

    tail_world.run(scenario)


def test_a_slot_that_is_dropped_under_a_running_tail_makes_it_ill(tail_world: TailWorld) -> None:
    """And what is written meanwhile is delivered from the table."""
    seen = Collector()

    async def scenario() -> None:
        tail, writer = tail_world.tail(interval="20ms"), tail_world.writer()
        tail.handler("Happened", id="h")(lambda event: seen.add(event.payload_json))
        async with tail, writer:
            await write(writer, 1)
            await tail.drain("20s")
            drop(tail_world)
            engine = tail._engine
            await engine._slot_watch.work()
            assert any("is lost" in each for each in tail.health().problems)
            await writer._engine._slot_watch.work()
            assert any("is lost" in each for each in writer.health().problems)
            await write(writer, 2)
            await seen.reach(2)
            assert not (await tail.drain("20s")).is_complete
            assert not tail.health().is_ready
            with pytest.raises(ReplicationRefused, match="nothing to recover"):
                await tail.recover()
                await tail.recover()
            await engine._slot_watch.work()
            assert (await tail.drain("60s")).is_complete

    tail_world.run(scenario)


def test_a_slot_that_nobody_reads_is_named_before_the_disk_is_full(
    tail_world: TailWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aftercommit.health.UNREAD", 1000)

    async def scenario() -> None:
        tail, writer = tail_world.tail(), tail_world.writer()
        await tail.create_schema()
        tail.handler("Happened", id="h")(lambda event: None)
        async with writer:
            await write(writer, *range(20))
            watch = writer._engine._slot_watch
            await watch.work()
            (problem,) = writer.health().problems
            assert problem.startswith(f"nobody reads the slot {tail_world.slot}, and the server keeps")
            assert writer.health().is_ready  # it writes as well as ever
            assert any(each.code == "AC112" and tail_world.slot in each.what for each in await writer.diagnose())
            async with tail:
                await tail.drain("20s")
                await watch.work()
                assert writer.health().problems == ()
                assert not any(each.is_problem for each in await writer.diagnose() if tail_world.slot in each.what)
                monkeypatch.setattr("aftercommit.health.BEHIND", 1)
                await watch.work()
                assert "is behind" in writer.health().problems[0]

    tail_world.run(scenario)


def test_a_tail_tells_its_lag(tail_world: TailWorld) -> None:
    async def scenario() -> None:
        tail, writer = tail_world.tail(), tail_world.writer()
        tail.handler("Happened", id="h")(lambda event: None)
        async with writer:
            await tail.create_schema()
            before = await tail.lag()
            await write(writer, *range(20))
            lag = await tail.lag()
            assert lag.bytes > before.bytes + 2000
            assert (lag.seconds, lag.waiting, lag.is_read) == (None, 0, False)
            async with tail:
                await tail.drain("20s")
                lag = await tail.lag()
                assert (lag.seconds, lag.waiting, lag.is_read) == (0.0, 0, True)

    tail_world.run(scenario)


def test_a_slot_that_is_taken_away_leaves_what_was_not_read_to_the_table(tail_world: TailWorld) -> None:
    seen = Collector()

    async def scenario() -> None:
        tail, writer = tail_world.tail(), tail_world.writer()
        tail.handler("Happened", id="h")(lambda event: seen.add(event.payload_json))
        await write(writer, 1)
        await tail.drain("20s")
        await write(writer, 2, 3)
        async with tail_world.tail() as other:
            await other.drain("20s")  # without handlers it reads nothing
            if other._engine.reader.is_reading:
                with pytest.raises(ReplicationRefused, match="close it first"):
                    await tail.drop_slot()
        assert await tail.drop_slot() == 2
        assert made_in(tail_world.plain_url) == (0, 0, 0)
        outbox = tail_world.outbox()
        outbox.handler("Happened", id="h")(lambda event: seen.add(event.payload_json))
        await write(outbox, 4)
        await outbox.drain("20s")
        assert sorted(seen) == ["1", "2", "3", "4"]

    tail_world.run(scenario)


def test_a_server_that_has_thrown_away_what_was_not_read_has_lost_the_slot(
    own_logical_postgres: PrivatePostgres, tmp_path: Path
) -> None:
    server = own_logical_postgres
    world = TailWorld("threads", tmp_path, other_database(server.url, "postgres"), "own_tail")
    execute(server.url, "ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
    execute(server.url, "SELECT pg_reload_conf()")

    async def scenario() -> None:
        tail, writer = world.tail(), world.writer()
        await tail.create_schema()
        await write(writer, 1)
        for _ in range(4):
            execute(server.url, "SELECT pg_switch_wal(), pg_logical_emit_message(true, 'x', 'x')")
        execute(server.url, "CHECKPOINT")
        assert execute(server.url, "SELECT wal_status FROM pg_replication_slots") == [("lost",)]
        await write(writer, 2)
        assert [row["status"] for row in world.rows()] == [1, 0]
        with pytest.raises(SlotLost, match="thrown away"):
            await tail.start()
        assert await tail.recover() == 1
        world.somebody.close()

    world.run(scenario)


def test_a_database_that_is_away_is_an_error_of_the_store() -> None:
    with pytest.raises(StoreUnavailable):
        ReplicationTail("postgresql://127.0.0.1:1/nowhere").lag()
