"""Transactions on Redis: a write by itself, a block that takes commands along, and a pipeline of the user's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
from redis import asyncio as aioredis

from aftercommit import AsyncOutbox, InvalidEvent, NotInTransaction, UnsupportedTransaction
from aftercommit.events.envelope import EventEnvelope
from aftercommit.stores.redis.transaction import Commands
from tests.stores.redis_kit import Keys, pause
from tests.support import Collector, Signal, World


def outbox_of(world: World, keys: Keys, **options: Any) -> Any:
    return world.outbox(keys.url, table=keys.table, **options)


def client_of(world: World, url: str, **options: Any) -> Any:
    return (aioredis.Redis if world.is_async else redis.Redis).from_url(url, **options)


async def closed(client: Any) -> None:
    if isinstance(client, aioredis.Redis):
        await client.aclose()
    else:
        client.close()


async def executed(pipeline: Any) -> Any:
    done = pipeline.execute()
    return await done if asyncio.iscoroutine(done) else done


# ---------------------------------------------------------------- by itself


def test_a_write_outside_of_any_block_is_delivered_from_memory(world: World, redis_keys: Keys) -> None:
    """TC-472: the whole flow without a transaction, the hot path included. The poller never looks."""

    async def scenario() -> None:
        seen = Collector()
        outbox = outbox_of(world, redis_keys, poller_enabled=False)
        outbox.register("OrderPlaced", lambda event: seen.add(event.payload_json))
        async with outbox:
            event_id = await outbox.write("OrderPlaced", {"order": 7})
            await outbox.write_all(
                [EventEnvelope.of_json("OrderPlaced", "8"), EventEnvelope.of_json("OrderPlaced", "9")]
            )
            await seen.reach(3)
            assert isinstance(event_id, str)
            while redis_keys.rows():  # what is done is deleted; a settle follows its handler
                await (asyncio.sleep(0.001) if world.is_async else pause())
            counters = (await outbox.stats()).counters
        assert sorted(seen) == ["8", "9", '{"order":7}']
        assert counters["hot_enqueued"] == 3

    world.run(scenario)


def test_a_row_that_was_written_by_itself_is_born_leased(world: World, redis_keys: Keys) -> None:
    async def scenario() -> None:
        entered, leave = Signal(), Signal()

        def slow(_: Any) -> None:
            entered.set()
            leave.wait_here()

        outbox = outbox_of(world, redis_keys)
        outbox.register("Slow", slow)
        async with outbox:
            await outbox.write("Slow", {})
            await entered.wait()
            (row,) = redis_keys.rows()
            assert (row["locked_by"], row["lease_epoch"]) == (outbox._engine.owner, 1)
            leave.set()

    world.run(scenario)


def test_done_rows_are_kept_when_asked_to(world: World, redis_keys: Keys) -> None:
    async def scenario() -> None:
        outbox = outbox_of(world, redis_keys, delete_completed=False)
        outbox.register("Happened", lambda _: None)
        await outbox.write("Happened", {})
        await outbox.drain()
        assert [row["status"] for row in redis_keys.rows()] == [1]

    world.run(scenario)


def test_a_caller_who_changes_its_buffer_changes_no_event(world: World, redis_keys: Keys) -> None:
    """TC-473"""

    async def scenario() -> None:
        outbox = outbox_of(world, redis_keys)
        buffer = bytearray(b"first")
        async with outbox.transaction():
            await outbox.write(EventEnvelope("Happened", payload_bytes=buffer))
            buffer[:] = b"other"
        assert redis_keys.rows()[0]["payload_bytes"] == b"first"

    world.run(scenario)


# ---------------------------------------------------------------- blocks


def test_commands_and_events_of_a_block_are_committed_together(world: World, redis_keys: Keys) -> None:
    async def scenario() -> None:
        outbox, name = outbox_of(world, redis_keys), redis_keys.named("order:7")
        async with outbox.transaction() as tx:
            await tx.set(name, "placed")
            await tx.hset(redis_keys.named("orders"), mapping={"7": 1})
            await outbox.write("OrderPlaced", {"order": 7})
            await outbox.write("OrderPaid", {"order": 7})
            assert redis_keys.client.get(name) is None, "nobody sees it before the commit"
            assert redis_keys.rows() == []
        assert redis_keys.client.get(name) == b"placed"
        assert redis_keys.client.hget(redis_keys.named("orders"), "7") == b"1"
        assert [row["event_type"] for row in redis_keys.rows()] == ["OrderPlaced", "OrderPaid"]

    world.run(scenario)


def test_a_block_without_events_runs_its_commands(world: World, redis_keys: Keys) -> None:
    async def scenario() -> None:
        outbox, name = outbox_of(world, redis_keys), redis_keys.named("count")
        async with outbox.transaction() as tx:
            await tx.incr(name)
            await tx.incrby(name, 41)
        assert redis_keys.client.get(name) == b"42"

    world.run(scenario)


def test_a_rollback_drops_commands_and_events(world: World, redis_keys: Keys) -> None:
    async def scenario() -> None:
        seen = Collector()
        outbox, name = outbox_of(world, redis_keys), redis_keys.named("order:7")
        outbox.register("OrderPlaced", lambda event: seen.add(event.payload_json))
        async with outbox:
            with pytest.raises(ZeroDivisionError):
                async with outbox.transaction() as tx:
                    await tx.set(name, "placed")
                    await outbox.write("OrderPlaced", {"order": 7})
                    raise ZeroDivisionError
            await outbox.write("OrderPlaced", {"order": 8})
            await seen.reach(1)
        assert redis_keys.client.get(name) is None
        assert seen == ['{"order":8}']

    world.run(scenario)


def test_a_command_that_fails_keeps_the_events_from_being_written(world: World, redis_keys: Keys) -> None:
    """Redis takes nothing back: what ran before it stays, and the error says so."""

    async def scenario() -> None:
        outbox, first, text = outbox_of(world, redis_keys), redis_keys.named("first"), redis_keys.named("text")
        last = redis_keys.named("last")
        redis_keys.client.set(text, "no list")
        with pytest.raises(UnsupportedTransaction, match=r"command 2 of the transaction failed: WRONGTYPE") as caught:
            async with outbox.transaction() as tx:
                await tx.set(first, 1)
                await tx.rpush(text, 1)
                await tx.set(last, 1)
                await outbox.write("Happened", {})
        assert "those before it have run" in str(caught.value)
        assert redis_keys.rows() == []
        assert (redis_keys.client.get(first), redis_keys.client.get(last)) == (b"1", None)

    world.run(scenario)


@pytest.mark.parametrize("read", ["get", "hgetall", "exists", "ttl", "type"])
def test_a_read_in_a_block_is_refused_and_says_what_to_do(world: World, redis_keys: Keys, read: str) -> None:
    async def scenario() -> None:
        outbox = outbox_of(world, redis_keys)
        async with outbox.transaction() as tx:
            with pytest.raises(UnsupportedTransaction, match="only reads") as caught:
                await getattr(tx, read)("anything")
            assert "before the block" in caught.value.fix
            await outbox.write("Happened", {})
        assert len(redis_keys.rows()) == 1, "the block goes on"

    world.run(scenario)


def test_what_no_script_can_do_is_refused_in_a_block(world: World, redis_keys: Keys) -> None:
    async def scenario() -> None:
        outbox = outbox_of(world, redis_keys)
        async with outbox.transaction() as tx:
            with pytest.raises(UnsupportedTransaction, match="EVAL cannot be part of a transaction"):
                await tx.eval("return 1", 0)
            with pytest.raises(UnsupportedTransaction, match="Redis runs no SQL"):
                await tx.execute("SELECT 1")
            with pytest.raises(UnsupportedTransaction, match="no savepoints"):
                async with outbox.transaction():
                    pytest.fail("nobody comes here")

    world.run(scenario)


def test_a_key_in_another_slot_of_a_cluster_is_refused_when_it_is_named() -> None:
    commands = Commands("shop")
    commands.set("{shop}order:7", 1)
    commands.publish("news", "any channel")
    with pytest.raises(UnsupportedTransaction, match="SET has the key 'order:7'") as caught:
        commands.set("order:7", 1)
    assert "{shop}order:7" in caught.value.fix
    assert commands.collected == [(b"SET", b"{shop}order:7", b"1"), (b"PUBLISH", b"news", b"any channel")]


def test_a_name_that_is_no_command_is_no_attribute(world: World, redis_keys: Keys) -> None:
    async def scenario() -> None:
        outbox = outbox_of(world, redis_keys)
        async with outbox.transaction() as tx:
            assert not hasattr(tx, "sett")
        with pytest.raises(NotInTransaction):
            await tx.set(redis_keys.named("late"), 1)

    world.run(scenario)


def test_transactions_of_sql_take_no_commands(world: World) -> None:
    async def scenario() -> None:
        async with world.outbox().transaction() as tx:
            assert not hasattr(tx, "set")

    world.run(scenario)


def test_a_task_of_its_own_cannot_write_past_the_block_around_it(redis_keys: Keys) -> None:
    """Its event would be saved although the block is rolled back."""

    async def scenario() -> None:
        outbox = AsyncOutbox(redis_keys.url, table=redis_keys.table)

        async def elsewhere() -> None:
            await outbox.write("Happened", {})

        async with outbox.transaction():
            with pytest.raises(NotInTransaction):
                await asyncio.create_task(elsewhere())
        assert redis_keys.rows() == []
        await outbox.close()

    asyncio.run(scenario())


def test_an_event_that_is_there_already_is_refused_and_nothing_is_written(world: World, redis_keys: Keys) -> None:
    async def scenario() -> None:
        outbox, twice = outbox_of(world, redis_keys), EventEnvelope.of_json("Happened", "1")
        await outbox.write(twice)
        with pytest.raises(InvalidEvent, match=f"event {twice.event_id} is a duplicate"):
            async with outbox.transaction() as tx:
                await tx.set(redis_keys.named("order"), 1)
                await outbox.write("Other", {})
                await outbox.write(twice)
        assert [row["event_type"] for row in redis_keys.rows()] == ["Happened"]
        assert redis_keys.client.get(redis_keys.named("order")) is None

    world.run(scenario)


# ---------------------------------------------------------------- pipelines of the user's


@pytest.mark.parametrize("decodes", [False, True], ids=["bytes", "decoded"])
def test_a_pipeline_takes_events_along(world: World, redis_keys: Keys, decodes: bool) -> None:
    """Its commit cannot be seen, so rows are born free and the poller looks soon."""

    async def scenario() -> None:
        seen = Collector()
        outbox, client = outbox_of(world, redis_keys), client_of(world, redis_keys.url, decode_responses=decodes)
        outbox.register("OrderPlaced", lambda event: seen.add(event.payload_json))
        try:
            async with outbox:
                pipeline = client.pipeline()
                pipeline.set(redis_keys.named("order:7"), "placed")
                await outbox.write("OrderPlaced", {"order": 7}, tx=pipeline)
                assert redis_keys.rows() == []
                replies = await executed(pipeline)
                assert len(replies) == 2
                await seen.reach(1)
        finally:
            await closed(client)
        assert redis_keys.client.get(redis_keys.named("order:7")) == b"placed"

    world.run(scenario)


def test_a_pipeline_that_is_dropped_takes_its_events_with_it(world: World, redis_keys: Keys) -> None:
    async def scenario() -> None:
        outbox, client = outbox_of(world, redis_keys), client_of(world, redis_keys.url)
        try:
            pipeline = client.pipeline()
            await outbox.write("OrderPlaced", {"order": 7}, tx=pipeline)
            reset = pipeline.reset()
            if asyncio.iscoroutine(reset):
                await reset
        finally:
            await closed(client)
        assert redis_keys.rows() == []

    world.run(scenario)


def test_a_duplicate_in_a_pipeline_is_an_error_of_its_execution(world: World, redis_keys: Keys) -> None:
    async def scenario() -> None:
        outbox, client = outbox_of(world, redis_keys), client_of(world, redis_keys.url)
        twice = EventEnvelope.of_json("Happened", "1")
        await outbox.write(twice)
        try:
            pipeline = client.pipeline()
            await outbox.write(twice, tx=pipeline)
            with pytest.raises(redis.ResponseError, match="DUPLICATE"):
                await executed(pipeline)
        finally:
            await closed(client)

    world.run(scenario)


def test_a_pipeline_without_multi_is_no_transaction(world: World, redis_keys: Keys) -> None:
    async def scenario() -> None:
        outbox, client = outbox_of(world, redis_keys), client_of(world, redis_keys.url)
        try:
            with pytest.raises(NotInTransaction):
                await outbox.write("Happened", {}, tx=client.pipeline(transaction=False))
            with pytest.raises(UnsupportedTransaction, match="tx is a redis"):
                await outbox.write("Happened", {}, tx=client)
        finally:
            await closed(client)
        assert redis_keys.rows() == []

    world.run(scenario)


def test_a_pipeline_to_another_database_is_refused(world: World, redis_keys: Keys) -> None:
    async def scenario() -> None:
        outbox = outbox_of(world, redis_keys)
        client = client_of(world, redis_keys.url, db=9)
        pipeline = client.pipeline()
        try:
            with pytest.raises(UnsupportedTransaction, match="another server or database"):
                await outbox.write("Happened", {}, tx=pipeline)
            assert len(pipeline) == 0
        finally:
            await closed(client)

    world.run(scenario)
