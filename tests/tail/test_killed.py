"""kill -9 of the process that reads, again and again, while others write: nothing is lost, order per key is kept, and
what comes twice was under way when a process was killed."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from aftercommit import EventEnvelope
from tests.promises.waiting import until
from tests.servers import PrivatePostgres
from tests.support import PATIENCE
from tests.tail.conftest import WAYS, world_on

KEYS, EVENTS, KILLS = 20, 3000, 4


@pytest.mark.parametrize("way", ["psycopg-threads", "asyncpg-asyncio"])
def test_a_tail_that_is_killed_again_and_again_loses_nothing(
    logical_postgres: PrivatePostgres, tmp_path: Path, way: str
) -> None:
    journal = tmp_path / "journal"
    journal.touch()
    made = world_on(logical_postgres, *WAYS[way], tmp_path)
    world = next(made)

    def start() -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "tests.tail.worker", world.name, world.url, world.slot, str(journal)]
        return subprocess.Popen(words, stdin=subprocess.PIPE)

    def lines() -> list[tuple[str, int]]:
        return [(key, int(number)) for key, number in map(str.split, journal.read_text().splitlines())]

    async def scenario() -> None:
        await world.tail(ordered=True).create_schema()
        writer = world.writer(ordered=True)
        async with writer:
            for part in range(KILLS + 1):
                size = EVENTS // (KILLS + 1)
                for first in range(part * size, (part + 1) * size, 50):
                    async with writer.transaction():
                        await writer.write_all(
                            [
                                EventEnvelope.of_json("Happened", str(n)).replace(key=f"k{n % KEYS}")
                                for n in range(first, first + 50)
                            ]
                        )
                before, process = len(lines()), start()
                try:
                    if part < KILLS:  # in the middle of it
                        until(lambda: len(lines()) > before + size // 2, what="half of it", timeout=PATIENCE)  # noqa: B023
                    else:
                        done = lambda: len(set(lines())) == EVENTS  # noqa: E731
                        until(done, what=f"all of it: {len(set(lines()))}", timeout=3 * PATIENCE)
                finally:
                    process.kill()
                    process.wait()
                    process.stdin.close()

    try:
        world.run(scenario)
        delivered = lines()
        assert {number for _, number in delivered} == set(range(EVENTS))
        firsts: dict[str, list[int]] = defaultdict(list)
        for key, number in dict.fromkeys(delivered):
            firsts[key].append(number)
        for key, numbers in firsts.items():
            assert numbers == sorted(numbers), key
        # What was delivered and not yet told: of a tenth of a second, and of what ran.
        twice = sum(count - 1 for count in Counter(delivered).values())
        assert twice <= KILLS * 1000
    finally:
        made.close()
