"""A process whose transactional handler is killed at one point."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from aftercommit.transactions.of_handlers import OwnTx
from tests.handlers.effects_kit import Place, Say
from tests.support import Signal, World

#: Between the handler's statements and the mark, between the mark and the commit, and right after the commit.
POINTS = ("statements", "mark", "commit")


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying_after(step: str) -> None:
    """Let the process end when this step is done."""
    original = getattr(OwnTx, step)

    async def fatal(self: OwnTx, *arguments: Any) -> Any:
        await original(self, *arguments)
        die()

    setattr(OwnTx, step, fatal)


def main(spec: dict[str, Any]) -> None:
    world = World(spec["runtime"], Path(spec["folder"]), spec["database"], spec["url"])
    place = Place(world, "own")
    if spec["point"] != "statements":
        dying_after(spec["point"])

    async def handle(event: Any, say: Say) -> None:
        await say.insert(int(event.payload_json))
        await outbox.write("Next", {"of": int(event.payload_json)})
        if spec["point"] == "statements":
            die()

    outbox = place.outbox()
    place.handler(outbox, handle)

    async def scenario() -> None:
        async with outbox:
            async with outbox.transaction():
                await outbox.write("A", str(spec["number"]))
            await Signal().wait()

    world.run(scenario)
