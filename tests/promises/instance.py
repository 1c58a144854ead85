"""A process of a fleet that keeps order: a worker whose events have keys and leave their effects in the database."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import random
import signal
import sys
from contextlib import suppress
from typing import Any

from tests.promises import worker  # first: it sets the clocks before the library reads one

from aftercommit import EventEnvelope, StoreUnavailable  # isort: skip
from tests.promises.effects import effects_of
from tests.promises.key_listener import ASYNC, SYNC, KeyListener, type_of


class Instance(worker.Worker):
    """More commands."""

    def _register(self, spec: dict[str, Any]) -> None:
        self.effects = effects_of(self.world)
        listener = KeyListener(
            self.journal,
            self.effects,
            self.world.folder,
            failures=spec["failures"],
            obeys=spec["obeys"],
            slow=spec["slow"],
        )
        self.outbox.register(SYNC, listener.sync)
        self.outbox.register(ASYNC, listener.coloured)

    async def write_key(self, key: str, numbers: list[int], does: dict[str, str] | None = None) -> list[str]:
        """Events of one key in one transaction; what handlers shall do, by number."""
        events = [event_of(key, number, (does or {}).get(str(number))) for number in numbers]
        async with self.outbox.transaction():
            await self.outbox.write_all(events)
        return [event.event_id for event in events]

    async def write_keys(
        self, keys: list[str], at_least: int, seed: int, together: int, pause: float, is_even: bool = False
    ) -> dict[str, int]:
        """That many events, and then on until the gate is open; a few keys get most of them, unless all get the same.
        How many each has got."""
        chance, written = random.Random(seed), dict.fromkeys(keys, 0)
        weights = [1 if is_even else 1 / rank for rank in range(1, len(keys) + 1)]
        while sum(written.values()) < at_least or not self.gate.exists():
            events = []
            for key in chance.choices(keys, weights, k=chance.randint(1, together)):
                events.append(event_of(key, written[key]))
                written[key] += 1
            async with self.outbox.transaction():
                await self.outbox.write_all(events)
            if pause:
                await self._pause(pause)
        return written

    async def discard(self, event_id: str) -> bool:
        discarded: bool = await self.outbox.dead.discard(event_id, reason="not needed any more")
        return discarded

    async def start_at_last(self) -> Any:
        """Again and again, as a supervisor would: who is stopped while it starts is cut off by the server."""
        while True:
            with suppress(StoreUnavailable):
                return await self.start()

    async def hog(self, seconds: float) -> None:
        """Keep the GIL for so long, in a call of C: nothing of this process runs."""
        ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))

    async def fork(self) -> int:
        """Another instance, with all that this one has in memory and open; SIGTERM ends it. Its pid."""
        if pid := os.fork():
            return pid
        signal.alarm(300)  # whatever becomes of the test
        signal.set_wakeup_fd(-1)
        self._parents = self.world.__dict__.pop("somebody")  # a connection that is the parent's
        self.effects.in_child(self.world)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        await self.outbox.start()
        self.journal.say("fault", "forked", os.getpid())
        signal.sigwait([signal.SIGTERM])
        await self.outbox.close()
        os._exit(0)

    async def blocked(self) -> list[str]:
        """Keys that stand still."""
        return [blocked.key for blocked in (await self.outbox.stats()).blocked]


def event_of(key: str, number: int, does: str | None = None) -> EventEnvelope:
    order = {"n": number} | ({"does": does} if does else {})
    return EventEnvelope(type_of(number), payload_json=json.dumps(order), key=key)


def main(spec: dict[str, Any]) -> None:
    faulthandler.register(signal.SIGUSR1)  # shows where its threads are
    worker.main(spec, Instance)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
