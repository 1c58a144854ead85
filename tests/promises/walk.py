"""Kills one process at every point of an event's walk, one after the other, all on the same table.

Each is forked, does what leads to its point, and dies there; what it leaves behind the next ones meet.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aftercommit import EventEnvelope, Fixed
from tests.promises import faults
from tests.promises.journal import Journal
from tests.promises.listener import EVENT, Listener
from tests.promises.places import world_of
from tests.promises.waiting import pause
from tests.support import World, _blocking

#: A process that has not met its point by then never does.
PATIENCE = 15.0

Walk = Callable[[Any, Any], Awaitable[None]]


async def hot(outbox: Any, write: Any) -> None:
    await outbox.start()
    for _ in range(5):
        await write(1)


async def cold(outbox: Any, write: Any) -> None:
    await write(5)
    await outbox.start()


async def suspect(outbox: Any, write: Any) -> None:
    """Those before it have left rows whose leases run out."""
    await outbox.start()


async def slow(outbox: Any, write: Any) -> None:
    await outbox.start()
    await write(5, waits=True)


async def failing(outbox: Any, write: Any) -> None:
    await outbox.start()
    await write(5, fails=1)


async def closing(outbox: Any, write: Any) -> None:
    await slow(outbox, write)
    await outbox.close()


async def purging(outbox: Any, write: Any) -> None:
    await outbox.purge("1h")


async def replaying(outbox: Any, write: Any) -> None:
    (dead,) = await outbox.dead.query(limit=1)
    await outbox.dead.replay(dead.event_id)


WALKS: dict[str, Walk] = {
    "before commit:3": hot,
    "after commit:3": hot,
    "before enqueue:3": hot,
    "after enqueue:3": hot,
    "before handler:3": hot,
    "in handler:3": hot,
    "after handler:3": hot,
    "in settle": hot,
    "after settle": hot,
    "in claim": cold,
    "after claim": cold,
    "in suspect mark": suspect,
    "after suspect mark": suspect,
    "in retry": failing,
    "in release": closing,
    "in renewal": slow,
    "after renewal:2": slow,
    "in purge": purging,
    "after purge": purging,
    "in replay": replaying,
    "after replay": replaying,
}


async def go(world: World, point: str, options: dict[str, Any]) -> None:
    """Up to the point; a process that gets past it has not met it."""
    journal = Journal(world.folder / "journal")
    outbox = world.outbox(retry_policy=Fixed("20ms"), worker_count=1, drain_timeout=0, **options)
    outbox.register(EVENT, Listener(journal, world.folder / "gate").sync)
    faults.install(outbox._store, journal)

    async def write(count: int, **order: Any) -> None:
        events = [EventEnvelope(EVENT, payload_json=json.dumps({"n": 0, **order})) for _ in range(count)]
        for event in events:
            journal.say("begin", event.event_id)
        async with outbox.transaction():
            await outbox.write_all(events)
        for event in events:
            journal.say("ok", event.event_id)

    await WALKS[point](outbox, write)
    await _blocking(lambda: pause(PATIENCE))


def ended(pid: int) -> int:
    """How it ended; it is given its time."""
    watch, limit = threading.Event(), time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        watch.wait(0.002)
    os.kill(pid, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(spec: dict[str, Any]) -> None:
    """Says of each point how its process ended."""
    ends = {}
    for point in spec["points"]:
        pid = os.fork()
        if pid == 0:
            os.environ[faults.VARIABLE] = point
            world = world_of(spec)
            world.run(lambda world=world, point=point: go(world, point, spec["options"]))
            os._exit(1)
        ends[point] = ended(pid)
    print(json.dumps({"answer": ends}), flush=True)
