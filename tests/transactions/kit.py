"""What the tests of transactions share: looking at slots, running elsewhere, seeing the order of events."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Coroutine
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

from aftercommit.runtime.threads import run
from tests.support import PATIENCE, Collector, World

Work = Callable[[], Coroutine[Any, Any, Any]]


class Deliberate(Exception):
    """Raised to roll back."""


def engine_of(outbox: Any) -> Any:
    return outbox._engine


def free_slots(outbox: Any) -> int:
    """How many hot slots could be reserved now."""
    channel = engine_of(outbox).dispatcher.lanes
    free = channel.reserve(10**6)
    channel.cancel(free)
    return free


def hot_count(outbox: Any) -> int:
    """Events that went from a commit into the hot lane."""
    return engine_of(outbox).meter.counts().get("hot_enqueued", 0)


def cold_count(outbox: Any) -> int:
    """Events that a claim brought into the cold lane."""
    return engine_of(outbox).meter.counts().get("cold_enqueued", 0)


def payloads(events: list[Any]) -> list[str]:
    return sorted(event.payload_json for event in events)


def listening(world: World, target: Any = None, **options: Any) -> tuple[Any, Collector]:
    """An outbox, not started, whose only way to deliver is the hot path, and what its handler of "T" saw."""
    seen = Collector()
    outbox = world.outbox(target, **({"poller_enabled": False} | options))
    outbox.register("T", seen.add)
    return outbox, seen


def beside(world: World, work: Work) -> Work:
    """Start it in another thread or task, in a copy of this context; call and await what is returned to join it."""
    if world.is_async:
        task = asyncio.create_task(work())
        return lambda: asyncio.wait_for(task, PATIENCE)
    outcome: list[tuple[Any, BaseException | None]] = []

    def main() -> None:
        try:
            outcome.append((run(work()), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=copy_context().run, args=(main,))
    thread.start()

    async def join() -> Any:
        thread.join(PATIENCE)
        assert outcome, "the thread did not end"
        value, error = outcome[0]
        if error is not None:
            raise error
        return value

    return join


async def elsewhere(world: World, work: Work) -> Any:
    """Run it in another thread or task and wait for it."""
    return await beside(world, work)()


async def all_at_once(world: World, works: list[Work]) -> None:
    """Run all of them beside each other; raise the first error."""
    for join in [beside(world, work) for work in works]:
        await join()


async def step_aside(world: World) -> None:
    """Let others go on, where the world has a loop to do it on; threads are switched without being asked."""
    if world.is_async:
        ready = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(ready.set_result, None)
        await ready


async def until_clock(world: World, milliseconds: int) -> None:
    """Wait until the database's clock has moved on by that much."""
    now = "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"
    start = world.rows(f"SELECT {now}")[0][0]
    await world.until(f"SELECT {now} > ?", start + milliseconds)


@contextmanager
def watched(connection: sqlite3.Connection) -> Any:
    """The statements that run on a connection meanwhile."""
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    try:
        yield statements
    finally:
        connection.set_trace_callback(None)


class Fates:
    """Which callbacks of which name have fired."""

    def __init__(self) -> None:
        self.committed: list[str] = []
        self.rolled_back: list[str] = []

    def follow(self, tx: Any, name: str) -> None:
        tx.after_commit(lambda: self.committed.append(name))
        tx.after_rollback(lambda: self.rolled_back.append(name))


async def write_followed(outbox: Any, followed: Any, fates: Fates, name: str, **keywords: Any) -> None:
    """Write an event whose payload is its name, with callbacks of the same name."""
    await outbox.write("T", f'"{name}"', **keywords)
    fates.follow(followed, name)
