"""Kills processes at random moments: `python -m tests.promises.storm SPEC` forks them one after the other.

The parent has one thread and no outbox, so each child starts as if it were new, without a new interpreter's delay.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from aftercommit import EventEnvelope
from tests.promises.journal import Journal
from tests.promises.listener import EVENT, Listener
from tests.support import World


class Deliberate(Exception):
    """Raised to roll back."""


async def work(world: World, journal: Journal, chance: random.Random, options: dict[str, Any]) -> None:
    """Write, roll back and deliver, for ever."""
    outbox = world.outbox(**options)
    outbox.register(EVENT, Listener(journal).sync)
    async with outbox:
        number = 0
        while True:
            number += 1
            await write(outbox, journal, number, fails=chance.random() < 0.25)


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


def child(spec: dict[str, Any], seed: int) -> None:
    world, journal = World(spec["world"], Path(spec["folder"])), Journal(Path(spec["folder"]) / "journal")
    world.run(lambda: work(world, journal, random.Random(seed), spec["options"]))


def until_it_writes(journal: Journal, pid: int, watch: threading.Event) -> None:
    while pid not in {line.pid for line in journal.lines("begin")}:
        watch.wait(0.002)


def main(spec: dict[str, Any]) -> None:
    """Every other process is killed while it starts, or soon after; the rest when they have begun to write."""
    chance, watch, killed = random.Random(spec["seed"]), threading.Event(), 0
    journal = Journal(Path(spec["folder"]) / "journal")
    for number in range(spec["kills"]):
        pid = os.fork()
        if pid == 0:
            child(spec, number)
            os._exit(1)  # it never ends by itself
        if number % 2:
            until_it_writes(journal, pid, watch)
        watch.wait(chance.uniform(0.0, 0.1))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        killed += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    print(json.dumps({"answer": killed}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
