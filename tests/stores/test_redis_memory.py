"""An outbox on Redis takes memory for what waits, and gives it back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aftercommit import EventEnvelope
from tests.redis_database import RedisDatabase
from tests.redis_servers import PrivateRedis, connected
from tests.support import World

#: Events of one turn: as many as wait at once.
TURN = 1000

#: What tables that shrink late may still have, in bytes.
SLACK = 400_000


def used(server: PrivateRedis) -> int:
    """What all keys take. The server's own figure for its data is of no use: it takes off what its clients had when it
    looked at them last."""
    with connected(server.url) as client:
        questions = client.pipeline(transaction=False)
        for key in client.keys("*"):
            questions.memory_usage(key, samples=0)
        return sum(answer or 0 for answer in questions.execute())


@pytest.mark.parametrize("runtime", ["threads", "asyncio"])
@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "purged"])
@pytest.mark.parametrize(
    "turns", [4, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(3000)])], ids=["short", "a-million"]
)
def test_memory_is_back_at_its_start_when_all_is_done(
    private_redis: PrivateRedis, tmp_path: Path, runtime: str, turns: int, is_deleted: bool
) -> None:
    """Rows are deleted when they are done, or purged later; some of them have keys, some failed before."""
    world = World(runtime, tmp_path, "redis", private_redis.url)

    async def scenario() -> None:
        outbox = world.outbox(delete_completed=is_deleted, batch_size=500)
        outbox.register("Placed", lambda event: None)
        await turn(outbox)
        nonlocal start
        start = used(private_redis)
        for number in range(turns):
            waiting = await turn(outbox, is_measured=number % 20 == 0)
            if waiting is not None:
                most.append(waiting)

    async def turn(outbox: Any, *, is_measured: bool = False) -> int | None:
        for _ in range(TURN // 100):
            await outbox.write_all(
                [
                    EventEnvelope("Placed", payload_json='{"text":"%s"}' % ("x" * 500), key=f"k{n % 7}")
                    for n in range(100)
                ]
            )
        waiting = used(private_redis) if is_measured else None
        result = await outbox.drain(60)
        assert result.delivered == TURN
        if not is_deleted:
            assert await outbox.purge(0) == TURN
        return waiting

    start, most = 0, list[int]()
    world.run(scenario)
    assert min(most) > start + TURN * 500, "what waits takes memory"
    assert used(private_redis) < start + SLACK
    assert isinstance(world.somebody, RedisDatabase)
    assert world.rows() == []
    world.somebody.check()
    world.somebody.close()
