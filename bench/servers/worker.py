"""A process that drains: `python -m bench.servers.worker hand|outbox DRIVER`, the database's URL on its first line.

It says `ready`, begins when a line comes, ends when another one comes, and says how much processor time it took.
"""

from __future__ import annotations

import asyncio
import sys
import time

from aftercommit import AsyncOutbox, Outbox
from bench.servers import drivers
from bench.servers.drivers import Driver
from bench.servers.places import Postgres
from bench.writes import nothing, nothing_async

_BATCH = 500


def main(who: str, name: str) -> None:
    driver = drivers.named(Postgres(sys.stdin.readline().strip()), name)
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


if __name__ == "__main__":
    main(*sys.argv[1:])
