"""AsyncOutbox.write() is checked when it is called and done when it is awaited; a forgotten await is loud."""

from __future__ import annotations

import asyncio
import gc
import logging
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from aftercommit import InvalidPayload, NotAwaited, NotInTransaction
from tests.support import World
from tests.transactions.kit import Deliberate, Fates, free_slots, listening, payloads


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World("asyncio", tmp_path)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    gc.collect()
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("way", ["leave", "commit", "by hand", "inner", "write_all"])
def test_an_unawaited_write_rolls_the_block_back(world: World, caplog: pytest.LogCaptureFixture, way: str) -> None:
    """The awaited one goes with it: the caller believed that both were saved."""

    async def scenario() -> None:
        outbox, _ = listening(world, hot_queue_capacity=5)
        fates = Fates()

        async def forget() -> None:
            if way == "write_all":
                outbox.write_all([])
            else:
                outbox.write("Forgotten", {})

        async with outbox:
            with pytest.raises(NotAwaited, match=r"(Forgotten|0 events)(.|\n)*Fix: await outbox\.write"):
                if way == "by hand":
                    tx = await outbox.begin()
                    await outbox.write("T", {})
                    fates.follow(tx, "it")
                    await forget()
                    await tx.commit()
                else:
                    async with outbox.transaction() as tx:
                        await outbox.write("T", {})
                        fates.follow(tx, "it")
                        if way == "inner":
                            async with outbox.transaction():
                                await forget()
                        else:
                            await forget()
                        if way == "commit":
                            await tx.commit()
            assert (fates.committed, fates.rolled_back) == ([], ["it"])
            assert free_slots(outbox) == 5
            with pytest.raises(NotInTransaction):
                outbox.write("T", {})
            async with outbox.transaction():  # the connection is free
                pass
        assert world.rows() == []
        assert errors(caplog) == [], "said once is enough"

    world.run(scenario)


@pytest.mark.parametrize("way", ["raise", "rollback"])
def test_an_unawaited_write_in_a_block_that_is_rolled_back_anyway_says_nothing(
    world: World, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        async with outbox.transaction():
            try:
                async with outbox.transaction() as inner:
                    outbox.write("Forgotten", {})
                    if way == "raise":
                        raise Deliberate
                    await inner.rollback()
            except Deliberate:
                pass
            await outbox.write("T", '"kept"')
        assert [row["payload"] for row in world.rows()] == ['"kept"']
        assert errors(caplog) == []

    world.run(scenario)


def test_an_unawaited_write_on_a_plain_connection_is_logged_as_an_error(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        await outbox.create_schema()
        connection = sqlite3.connect(world.path)
        outbox.write("Forgotten", {}, tx=connection)
        connection.commit()
        connection.close()
        assert world.rows() == []
        assert len(errors(caplog)) == 1
        assert "[AC003] write() of Forgotten was never awaited" in errors(caplog)[0]

    world.run(scenario)


def test_what_is_wrong_is_said_when_it_is_called(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        with pytest.raises(NotInTransaction):
            outbox.write("T", {})
        async with outbox.transaction():
            with pytest.raises(InvalidPayload):
                outbox.write("T", None)
        assert world.rows() == []

    world.run(scenario)


def test_a_payload_that_changes_before_the_await_is_written_as_it_was(world: World) -> None:
    """TC-473, TC-008: it was encoded when write() was called."""

    async def scenario() -> None:
        outbox = world.outbox()
        mapping, buffer = {"number": 1}, bytearray(b"before")
        async with outbox.transaction():
            first, second = outbox.write("T", mapping), outbox.write("T", buffer)
            mapping["number"], buffer[:] = 2, b"behind"
            await first
            await second
        rows = world.rows()
        assert (rows[0]["payload"], rows[1]["payload_bytes"]) == ('{"number":1}', b"before")

    world.run(scenario)


def test_a_write_is_awaited_once(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        async with outbox.transaction():
            pending = outbox.write("T", {})
            await pending
            with pytest.raises(RuntimeError, match="awaited before"):
                await pending
        assert len(world.rows()) == 1

    world.run(scenario)


def test_writes_may_be_awaited_in_any_order_and_later_in_the_block(world: World) -> None:
    async def scenario() -> None:
        outbox, seen = listening(world)
        async with outbox:
            async with outbox.transaction():
                pending = [outbox.write("T", str(number)) for number in range(3)]
                for write in reversed(pending):
                    await write
            await seen.reach(3)
        assert payloads(seen) == ["0", "1", "2"]
        assert [row["payload"] for row in world.rows()] == ["2", "1", "0"]

    world.run(scenario)


def test_a_write_that_another_task_was_to_await_does_not_slip_through(world: World) -> None:
    """ensure_future() makes a task of it, which has no right to the transaction; the block does not commit without."""

    async def scenario() -> None:
        outbox = world.outbox()
        task: Any = None
        with pytest.raises(NotAwaited):
            async with outbox.transaction():
                task = asyncio.ensure_future(outbox.write("T", {}))
        with pytest.raises(NotInTransaction):
            await task
        assert world.rows() == []

    world.run(scenario)
