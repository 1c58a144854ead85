"""Kills processes at random moments. The parent forks them one after the other; it has one thread and no outbox, so
each child starts as if it were new."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

from aftercommit import EventEnvelope
from tests.promises.journal import Journal
from tests.promises.listener import EVENT, Listener
from tests.promises.places import world_of
from tests.support import World


class Deliberate(Exception):
    """Raised to roll back."""


async def work(world: World, journal: Journal, options: dict[str, Any]) -> None:
    """Write, roll back every fourth time, and deliver, as long as there is somebody to end it."""
    outbox = world.outbox(**options)
    outbox.register(EVENT, Listener(journal).sync)
    async with outbox:
        number, parent = 0, os.getppid()
        while os.getppid() == parent:
            number += 1
            await write(outbox, journal, number, fails=number % 4 == 0)


async def write(outbox: Any, journal: Journal, number: int, *, fails: bool) -> None:
    event = EventEnvelope(EVENT, payload_json=json.dumps({"n": number}))
    journal.say("begin", event.event_id)
    try:
        async with outbox.transaction():
            await outbox.write(event)
            if fails:
                raise Deliberate
        journal.say("ok", event.event_id)
    except Deliberate:
        journal.say("fail", event.event_id)


def child(spec: dict[str, Any]) -> None:
    world, journal = world_of(spec), Journal(Path(spec["folder"]) / "journal")
    world.run(lambda: work(world, journal, spec["options"]))


def until_it_writes(journal: Journal, pid: int, count: int, watch: threading.Event) -> None:
    while journal.count("begin", pid) < count:
        watch.wait(0.002)


def main(spec: dict[str, Any]) -> None:
    """Every other process is killed while it starts, or soon after; the rest when they have begun to write."""
    chance, watch, killed = random.Random(spec["seed"]), threading.Event(), 0
    journal = Journal(Path(spec["folder"]) / "journal")
    for number in range(spec["kills"]):
        pid = os.fork()
        if pid == 0:
            child(spec)
            os._exit(1)  # it never ends by itself
        try:
            if number % 2:
                until_it_writes(journal, pid, chance.randint(1, 12), watch)
            watch.wait(chance.uniform(0.0, 0.05))
        finally:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        killed += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    print(json.dumps({"answer": killed}), flush=True)
