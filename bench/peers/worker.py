"""A process in which another library delivers: `python -m bench.peers.worker`. It talks as the outbox's worker does."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec

from bench.peers import peer, strict
from bench.servers.places import Postgres
from bench.servers.worker import Talk


class PeerJob(msgspec.Struct, frozen=True):
    url: str
    name: str
    is_strict: bool = False


def main() -> None:
    while line := sys.stdin.readline():
        asyncio.run(_do(msgspec.json.decode(line, type=PeerJob)))


async def _do(job: PeerJob) -> None:
    place, talk = Postgres(job.url), Talk()
    library = strict(place) if job.is_strict else peer(job.name, place)
    talk.go()
    async with library.serving(_nothing):
        await asyncio.to_thread(talk.answer)


def _nothing(payload: dict[str, Any]) -> None:
    """It has been parsed."""


if __name__ == "__main__":
    main()
