"""A process with a tail: writes down what it delivers, until somebody kills it. `python -m tests.tail.worker …`"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from aftercommit import AsyncReplicationTail, EventEnvelope, ReplicationTail


def main(runtime: str, url: str, slot: str, journal: str) -> None:
    written = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(event: EventEnvelope) -> None:
        """One line in one write: it is there whole, or not at all."""
        os.write(written, f"{event.key} {event.payload_json}\n".encode())

    kind: Any = ReplicationTail if runtime == "threads" else AsyncReplicationTail
    # It is the test that kills: no event is to blame.
    tail = kind(url, slot=slot, ordered=True, lock_timeout="2s", max_abandoned=1000, interval="50ms")
    tail.handler("Happened", id="h")(note)
    if runtime == "threads":
        tail.start()
        sys.stdin.read()
    else:
        asyncio.run(forever(tail))


async def forever(tail: AsyncReplicationTail) -> None:
    async with tail:
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    main(*sys.argv[1:])
