"""What the processes of these tests do with an event."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

from aftercommit import EventEnvelope
from tests.promises.journal import Journal

EVENT = "Happened"


class Listener:
    """Writes one line per effect. What else it does, the event's payload says."""

    def __init__(self, journal: Journal, gate: Path | None = None) -> None:
        self._journal = journal
        self._gate = gate

    def sync(self, event: EventEnvelope) -> None:
        order = self._enter(event)
        while self._must_wait(order):
            threading.Event().wait(0.005)
        self._journal.say("effect", event.event_id, order["n"])

    async def coloured(self, event: EventEnvelope) -> None:
        order = self._enter(event)
        while self._must_wait(order):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 0.005)
        self._journal.say("effect", event.event_id, order["n"])

    def _enter(self, event: EventEnvelope) -> dict[str, Any]:
        order: dict[str, Any] = json.loads(event.payload_json)
        self._journal.say("enter", event.event_id, order["n"])
        if order.get("kills"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self._gate is not None and self._entered(event) <= order.get("fails", 0):
            raise RuntimeError("told to fail")
        return order

    def _entered(self, event: EventEnvelope) -> int:
        return self._journal.counts("enter")[event.event_id]

    def _must_wait(self, order: dict[str, Any]) -> bool:
        """Only in a process that has a gate, and until somebody makes that file, or for ever."""
        if self._gate is None or not order.get("waits"):
            return False
        return order["waits"] == "for ever" or not self._gate.exists()
