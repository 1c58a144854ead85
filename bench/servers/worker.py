"""A process that drains: `python -m bench.servers.worker hand|outbox|ordered DRIVER INSTANCES`.

The database's URL is its first line.

It says `ready`, begins when a line comes, ends when another one comes, and says how much processor time it took.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any, Final

from aftercommit import AsyncOutbox, Cluster, Outbox
from aftercommit.events.claims import PARTITION_COUNT
from bench.servers import drivers
from bench.servers.drivers import Driver
from bench.servers.places import Postgres
from bench.writes import nothing, nothing_async

_BATCH = 500

#: Seconds that a handler waits for something else.
WAIT = 0.005


def main(who: str, name: str, number: str) -> None:
    driver = drivers.named(Postgres(sys.stdin.readline().strip()), name)
    if who == "ordered":
        asyncio.run(_ordered_async(driver, int(number))) if driver.is_async else _ordered(driver, int(number))
        print(time.process_time(), flush=True)
        return
    if driver.is_async:
        asyncio.run((_hand_async if who == "hand" else _outbox_async)(driver))
    else:
        (_hand if who == "hand" else _outbox)(driver)
    print(time.process_time(), flush=True)


def _go() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def _hand(driver: Driver) -> None:
    by_hand = driver.hand().open()
    _go()
    by_hand.drain(_BATCH, nothing)
    sys.stdin.readline()
    by_hand.close()


async def _hand_async(driver: Driver) -> None:
    by_hand = await driver.hand().open()
    _go()
    await by_hand.drain(_BATCH, nothing_async)
    await asyncio.to_thread(sys.stdin.readline)
    await by_hand.close()


def _outbox(driver: Driver) -> None:
    outbox = Outbox(driver.url, batch_size=_BATCH).register("OrderPlaced", nothing)
    outbox.stats()
    _go()
    with outbox:
        sys.stdin.readline()


async def _outbox_async(driver: Driver) -> None:
    outbox = AsyncOutbox(driver.url, batch_size=_BATCH).register("OrderPlaced", nothing_async)
    await outbox.stats()
    _go()
    async with outbox:
        await asyncio.to_thread(sys.stdin.readline)


#: Instances find each other quickly, so that each has its share before the clock starts.
_FLEET: Final[dict[str, Any]] = {"ordered": True, "heartbeat_interval": "100ms", "rebalance_interval": "100ms"}


def _ordered(driver: Driver, instances: int) -> None:
    """Without a handler it claims nothing."""
    with Outbox(driver.url, **_FLEET) as outbox:
        while not _is_shared(outbox.cluster(), instances):
            time.sleep(0.01)
        _go()
        outbox.register("OrderPlaced", lambda _: time.sleep(WAIT))
        sys.stdin.readline()


async def _ordered_async(driver: Driver, instances: int) -> None:
    async def wait(_: object) -> None:
        await asyncio.sleep(WAIT)

    async with AsyncOutbox(driver.url, **_FLEET) as outbox:
        while not _is_shared(await outbox.cluster(), instances):  # noqa: ASYNC110  (the table is the only witness)
            await asyncio.sleep(0.01)
        _go()
        outbox.register("OrderPlaced", wait)
        await asyncio.to_thread(sys.stdin.readline)


def _is_shared(cluster: Cluster, instances: int) -> bool:
    return len(cluster.members) == instances and all(
        len(member.partitions) == PARTITION_COUNT // instances for member in cluster.members
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
