"""What the instances of a fleet that keeps order do with an event."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aftercommit import EventEnvelope
from tests.promises.effects import Effects
from tests.promises.journal import Journal
from tests.promises.waiting import pause

#: The events of a key alternate: one for a handler that is `def`, one for a handler that is `async def`.
SYNC, ASYNC = "Walked", "Flown"


def type_of(number: int) -> str:
    return ASYNC if number % 2 else SYNC


class KeyListener:
    """Has one effect per event. What else it does, the event's payload says, and how often calls shall fail."""

    def __init__(
        self, journal: Journal, effects: Effects, folder: Path, *, failures: float, obeys: bool, slow: float
    ) -> None:
        self._journal = journal
        self._effects = effects
        self._gate = folder / "gate"
        self._ice = folder / "ice"
        self._failures = failures
        self._obeys = obeys
        self._slow = slow

    def sync(self, event: EventEnvelope) -> None:
        with self._delivery(event) as order:
            match order.get("does") if self._obeys else None:
                case "hang":
                    threading.Event().wait()
                case "freeze":
                    hold_the_interpreter(self._ice)
            if self._slow:
                pause(random.uniform(0.0, self._slow))
            self._effects.add(event.key, order["n"])

    async def coloured(self, event: EventEnvelope) -> None:
        with self._delivery(event) as order:
            match order.get("does") if self._obeys else None:
                case "hang":
                    await asyncio.Event().wait()
                case "freeze":
                    os.close(os.open(self._ice, os.O_RDONLY))  # the loop stands as long as nobody opens the other end
            if self._slow:
                await asyncio.sleep(random.uniform(0.0, self._slow))
            await asyncio.to_thread(self._effects.add, event.key, order["n"])

    @contextmanager
    def _delivery(self, event: EventEnvelope) -> Iterator[dict[str, Any]]:
        """From its first line in the journal to its last; of the calls that fail half do so before their effect."""
        order: dict[str, Any] = json.loads(event.payload_json)
        chance = random.random()
        self._journal.say("enter", str(event.key), order["n"])
        try:
            if chance < self._failures / 2 or (order.get("does") == "fail" and not self._gate.exists()):
                raise RuntimeError("told to fail")
            yield order
            if chance < self._failures:
                raise RuntimeError("told to fail after its effect")
        finally:
            self._journal.say("leave", str(event.key), order["n"])


def hold_the_interpreter(ice: Path) -> None:
    """Keep the GIL in a call of C until somebody opens the other end of the pipe: no thread of this process runs."""
    here = ctypes.PyDLL(None)
    here.close(here.open(os.fsencode(ice), os.O_RDONLY))
