"""A cancelled task ends, wherever in a transaction on a server the cancellation meets it."""

from __future__ import annotations

import asyncio

import pytest

from tests.support import PATIENCE, Collector, World

WRITERS = 16


def test_writers_that_are_cancelled_end(server_world: World) -> None:
    """An error of the clean-up, or a result that comes at the same moment, must not take the cancellation's place."""
    if not server_world.is_async:
        pytest.skip("threads are not cancelled")

    async def scenario() -> None:
        outbox, written = server_world.outbox(), Collector()
        await outbox.start()

        async def write() -> None:
            while True:
                async with outbox.transaction():
                    await outbox.write("A", {})
                written.add(1)

        for target in (1, 40):  # while connections are opened, and when all are
            already = len(written)
            writers = [asyncio.create_task(write()) for _ in range(WRITERS)]
            await written.reach(already + target)
            for _ in range(2):  # as asyncio.run() does after Ctrl-C: the second one hits the clean-up of the first
                for writer in writers:
                    writer.cancel()
                await asyncio.sleep(0)
            done, pending = await asyncio.wait(writers, timeout=PATIENCE)
            assert not pending
            assert all(writer.cancelled() for writer in done)
        async with outbox.transaction():
            await outbox.write("A", {})

    server_world.run(scenario)
