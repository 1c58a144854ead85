"""A process with an outbox in it. It does what it is told on stdin, a JSON line each, and answers on stdout.

SIGTERM ends it through close(), as it would end a
program that was written with care.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import select
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.promises import skew

skew.apply_from_environment()  # before the library reads a clock

from aftercommit import EventEnvelope, Fixed, StoreBusy  # noqa: E402
from aftercommit.runtime.threads import run  # noqa: E402
from tests.promises import faults  # noqa: E402
from tests.promises.journal import Journal  # noqa: E402
from tests.promises.listener import EVENT, Listener  # noqa: E402
from tests.promises.places import world_of  # noqa: E402
from tests.promises.waiting import pause  # noqa: E402
from tests.support import _blocking  # noqa: E402


class Worker:
    """The commands, each a method; what one returns is the answer."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.world = world_of(spec)
        self.journal = Journal(self.world.folder / "journal")
        self.gate = self.world.folder / "gate"
        self.outbox = self.world.outbox(retry_policy=Fixed("20ms"), **spec["options"])
        faults.install(self.outbox._store, self.journal)
        if spec["handler"]:
            self._register(spec)

    def _register(self, spec: dict[str, Any]) -> None:
        listener = Listener(self.journal, Path(spec["gate"]) if spec["gate"] else None)
        self.outbox.register(EVENT, listener.sync if spec["handler"] == "sync" else listener.coloured)

    async def start(self) -> str:
        await self.outbox.start()
        return str(self.outbox._engine.owner)

    async def close(self) -> None:
        await self.outbox.close()

    async def write(self, count: int, first: int = 0, how: dict[str, Any] | None = None) -> list[str]:
        """Each event in a transaction of its own."""
        return [(await self.write_together(1, number, how))[0] for number in range(first, first + count)]

    async def write_together(self, count: int, first: int = 0, how: dict[str, Any] | None = None) -> list[str]:
        """All events in one transaction. `how` holds what the handler shall do, and `options` of the envelope."""
        order = dict(how or {})
        options = order.pop("options", {})
        for name in {"available_at", "occurred_at"} & options.keys():
            options[name] = datetime.fromisoformat(options[name])
        events = [
            EventEnvelope(EVENT, payload_json=json.dumps({"n": number, **order}), **options)
            for number in range(first, first + count)
        ]
        self._say_all("begin", events)
        while not await self._committed(events):
            pass
        self._say_all("ok", events)
        return [event.event_id for event in events]

    async def write_on(self, count: int | None = None) -> list[str]:
        """Until that many commits were reported, or until the gate is open, whatever comes in between. The errors that
        did, by their names."""
        errors: list[str] = []
        reported = 0
        while reported < count if count is not None else not self.gate.exists():
            event = EventEnvelope(EVENT, payload_json=json.dumps({"n": reported}))
            self.journal.say("begin", event.event_id)
            try:
                async with self.outbox.transaction():
                    await self.outbox.write(event)
            except Exception as error:
                errors.append(f"{type(error).__module__}.{type(error).__qualname__}")
                await self._pause(0.01)
            else:
                self.journal.say("ok", event.event_id)
                reported += 1
                if count is None:
                    await self._pause(0.002)
        return errors

    async def write_slowly(self, seconds: float) -> str:
        """One event, that long before its commit."""
        event = EventEnvelope(EVENT, payload_json='{"n": 0}')
        async with self.outbox.transaction():
            await self.outbox.write(event)
            await self._pause(seconds)
        self.journal.say("ok", event.event_id)
        return event.event_id

    async def _pause(self, seconds: float) -> None:
        await _blocking(lambda: pause(seconds))

    async def _committed(self, events: list[EventEnvelope]) -> bool:
        """False when other processes were faster for so long that SQLite gave up waiting: nothing was begun."""
        try:
            async with self.outbox.transaction():
                await self.outbox.write_all(events)
        except StoreBusy:
            return False
        return True

    def _say_all(self, kind: str, events: list[EventEnvelope]) -> None:
        for event in events:
            self.journal.say(kind, event.event_id, json.loads(event.payload_json)["n"])

    async def poll(self) -> int:
        claimed: int = await self.outbox.poll()
        return claimed

    async def stats(self) -> dict[str, int]:
        stats = await self.outbox.stats()
        return {"held": stats.held, "unsettled": stats.unsettled, **stats.counters}

    async def health(self) -> list[str]:
        """What stands still."""
        return list(self.outbox.health().problems)

    async def purge(self, older_than: str) -> int:
        purged: int = await self.outbox.purge(older_than)
        return purged

    async def replay(self, event_id: str) -> bool:
        replayed: bool = await self.outbox.dead.replay(event_id)
        return replayed

    async def replay_all(self) -> int:
        replayed: int = await self.outbox.dead.replay_all()
        return replayed

    async def clocks(self) -> dict[str, float]:
        """What this process takes the time to be, and what its database does."""
        return skew.clocks()

    async def serve(self, read: Callable[[], Awaitable[bytes]]) -> None:
        """Until stdin ends or SIGTERM comes."""
        try:
            while line := await read():
                order = json.loads(line)
                answer = await getattr(self, order.pop("do"))(**order)
                print(json.dumps({"answer": answer}), flush=True)
        finally:
            await self.outbox.close()


def serve_in_threads(worker: Worker) -> None:
    """A signal ends it between two orders, never inside one: an exception out of nowhere could tear anything.

    It is heard by a socket. A handler in Python would run late: a signal that comes just before the process begins to
    wait for its next order would be heard after that order."""
    bell, rope = socket.socketpair()
    rope.setblocking(False)
    signal.set_wakeup_fd(rope.fileno())
    signal.signal(signal.SIGTERM, lambda *_: None)
    orders = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115  (what select() waits for must not be in a buffer)

    async def read() -> bytes:
        ready, _, _ = select.select([orders, bell], [], [])
        return b"" if bell in ready else orders.readline()

    run(worker.serve(read))


async def serve_in_asyncio(worker: Worker) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    task = asyncio.create_task(worker.serve(reader.readline))
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def main(spec: dict[str, Any], kind: type[Worker] = Worker) -> None:
    worker = kind(spec)
    if worker.world.is_async:
        asyncio.run(serve_in_asyncio(worker))
    else:
        serve_in_threads(worker)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
