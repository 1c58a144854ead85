"""`unique_key=`: an event is not written while another one that is not done has its key; nothing of it is in memory."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from aftercommit import EventEnvelope, Fixed, InvalidName, UniqueKeyUnsupported, WriterHook
from tests.conftest import in_transactions
from tests.support import Collector, Signal, World
from tests.transactions.kit import Deliberate, beside, free_slots, hot_count, listening

CAPACITY = 10


def json_event(number: int, **fields: Any) -> EventEnvelope:
    return EventEnvelope("T", payload_json=str(number), **fields)


def stored(world: World) -> list[tuple[str, str | None]]:
    return [(row["payload"], row["unique_key"]) for row in world.rows()]


def test_what_is_not_written_is_in_nobodys_way(any_world: World, caplog: pytest.LogCaptureFixture) -> None:
    """None instead of an id, no slot, no delivery; and told of."""

    async def scenario() -> None:
        outbox, seen = listening(any_world, hot_queue_capacity=CAPACITY)
        async with outbox:
            async with outbox.transaction():
                first = await outbox.write("T", "1", unique_key="k")
                with caplog.at_level(logging.DEBUG, "aftercommit.writer"):
                    assert await outbox.write("T", "2", unique_key="k") is None
                batch = [json_event(3), json_event(4, unique_key="k"), json_event(5, unique_key=7)]
                written = await outbox.write_all([*batch, json_event(6, unique_key="7")])
                assert written == [batch[0].event_id, batch[2].event_id]
            await seen.reach(3)
            await any_world.until_settled(3)
            assert free_slots(outbox) == CAPACITY
            assert hot_count(outbox) == 3
            assert (await outbox.stats()).counters["write_duplicates"] == 3
            async with outbox.transaction():
                assert await outbox.write("T", "8", unique_key="k") is not None, "it is done"
            await seen.reach(4)
        assert first is not None
        assert [event.unique_key for event in seen if event.payload_json in "158"] == ["k", "7", "k"]
        assert stored(any_world) == [("1", "k"), ("3", None), ("5", "7"), ("8", "k")]

    any_world.run(scenario)
    assert "is not written: an event with its unique key 'k' is not done" in caplog.text


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_write_waits_for_the_one_that_may_have_its_key(any_world: World, ends: str) -> None:
    """The second is suppressed when the first is committed, and written when it is rolled back."""

    async def scenario() -> None:
        outbox, answers, begun = any_world.outbox(poller_enabled=False), Collector(), Signal()
        await outbox.create_schema()

        async def second() -> None:
            async with outbox.transaction():
                begun.set()
                answers.add(await outbox.write("T", "2", unique_key="k"))

        tx = await outbox.begin()
        first = await outbox.write("T", "1", unique_key="k", tx=tx)
        join = beside(any_world, second)
        if any_world.database != "sqlite":  # where the whole transaction waits
            await begun.wait()
            await until_somebody_waits(any_world)
        assert answers == []
        await getattr(tx, ends)()
        await join()
        assert [answer is None for answer in answers] == [ends == "commit"]
        assert first is not None
        assert stored(any_world) == [("1" if ends == "commit" else "2", "k")]

    any_world.run(scenario)


async def until_somebody_waits(world: World) -> None:
    """For a lock, in this database."""
    if world.database == "postgres":
        sql = (
            "SELECT count(*) > 0 AS it FROM pg_stat_activity WHERE datname = current_database() "
            "AND wait_event_type = 'Lock'"
        )
    else:  # the tables of InnoDB's locks are old for as long as somebody looks again and again
        sql = (
            "SELECT count(*) > 0 AS it FROM information_schema.processlist "
            "WHERE db = DATABASE() AND command = 'Query' AND info LIKE 'INSERT INTO `outbox_event`%'"
        )
    await world.until(sql)


def test_a_savepoint_gives_its_keys_back(any_world: World) -> None:
    async def scenario() -> None:
        outbox = any_world.outbox()
        async with outbox.transaction() as tx:
            with pytest.raises(Deliberate):
                async with tx.savepoint("risky"):
                    assert await outbox.write("T", "1", unique_key="k") is not None
                    raise Deliberate
            assert await outbox.write("T", "2", unique_key="k") is not None
        assert stored(any_world) == [("2", "k")]

    any_world.run(scenario)


@in_transactions
def test_an_event_is_not_done_before_all_its_handlers_are(
    every_world: World, colour: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    """They share one row, also on the hot path: what is done of them is written down in it."""

    async def scenario() -> None:
        world, outbox, calls = every_world, every_world.outbox(delete_completed=False), Collector()
        may_end = Signal()

        def second(event: Any) -> None:
            calls.add("second")
            if not may_end.is_set:
                raise Deliberate

        outbox.handler("T", id="first")(colour(lambda event: calls.add("first")))
        outbox.handler("T", id="second", retry=Fixed("1h"))(colour(second))

        async def again() -> str | None:
            async with outbox.transaction():
                return await outbox.write("T", "2", unique_key="k")

        async with outbox:
            async with outbox.transaction():
                await outbox.write("T", "1", unique_key="k")
            await calls.reach(2)
            await world.until("SELECT status = 2 FROM outbox_event")
            assert [(row["handler_id"], row["done_handlers"]) for row in world.rows()] == [("", '["first"]')]
            assert hot_count(outbox) == 1
            assert await again() is None
            may_end.set()
            world.change("UPDATE outbox_event SET available_at = 0")
            await outbox.poll()
            await world.until_settled(1)
            assert await again() is not None
            await world.until_settled(2)
        assert calls == ["first", "second", "second", "first", "second"]

    every_world.run(scenario)


@in_transactions
def test_a_replay_that_finds_its_key_taken_says_so(every_world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        outbox = every_world.outbox(delete_completed=False)
        async with outbox.transaction():
            dead = await outbox.write("T", "1", unique_key="k")
            done = await outbox.write("T", "2", unique_key="other")
        every_world.change("UPDATE outbox_event SET status = 3, done_at = created_at WHERE event_id = ?", dead)
        every_world.change("UPDATE outbox_event SET status = 1, done_at = created_at WHERE event_id = ?", done)
        async with outbox.transaction():
            holder = await outbox.write("T", "3", unique_key="k")
            await outbox.write("T", "4", unique_key="other")
        assert await outbox.dead.replay(dead) is False
        assert await outbox.dead.replay_all() == 0
        assert await outbox.replay_done(done) is False
        assert f"{dead} is not replayed: 'k', its unique key, is that of {holder}, which is not done" in caplog.text
        assert [(each.event_id, each.unique_key) for each in await outbox.dead.query()] == [(dead, "k")]
        assert await outbox.cancel(holder) is True
        assert await outbox.dead.replay_all() == 1

    every_world.run(scenario)


def test_hooks_hear_of_what_was_written_alone(world: World) -> None:
    class Hook(WriterHook):
        def __init__(self) -> None:
            self.heard: list[tuple[str, list[str]]] = []

        def before_write(self, events: list[EventEnvelope]) -> list[EventEnvelope]:
            return [event.replace(unique_key="k") for event in events]

        def after_write(self, events: list[EventEnvelope]) -> None:
            self.heard.append(("after_write", [event.payload_json for event in events]))

        def after_commit(self, events: list[EventEnvelope]) -> None:
            self.heard.append(("after_commit", [event.payload_json for event in events]))

    async def scenario() -> None:
        hook = Hook()
        outbox = world.outbox(writer_hook=hook)
        async with outbox.transaction():
            assert len(await outbox.write_all([json_event(1), json_event(2)])) == 1
            assert await outbox.write("T", "3") is None
        assert hook.heard == [("after_write", ["1"]), ("after_commit", ["1"])]

    world.run(scenario)


@pytest.mark.parametrize("wrong", ["", "x" * 256, b"k", 1.5, "a\x00"])
def test_what_is_no_key_is_refused_before_the_transaction_is_touched(world: World, wrong: Any) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        async with outbox.transaction():
            with pytest.raises(InvalidName, match="unique_key"):
                await outbox.write("T", "1", unique_key=wrong)
        assert world.rows() == []

    world.run(scenario)


@pytest.mark.parametrize("every_world", ["redis"], indirect=True)
def test_a_store_that_keeps_no_keys_refuses_them_by_name(every_world: World) -> None:
    async def scenario() -> None:
        outbox = every_world.outbox()
        with pytest.raises(UniqueKeyUnsupported, match="unique_key 'k', and Redis") as caught:
            await outbox.write("T", "1", unique_key="k")
        assert caught.value.code == "AC075"
        async with outbox.transaction() as tx:
            with pytest.raises(UniqueKeyUnsupported):
                await outbox.write("T", "1", unique_key="k", tx=tx)
        assert every_world.rows() == []

    every_world.run(scenario)
