"""A process that relays: `python -m bench.relays.worker`, told by a line what to do (a `RelayJob`)."""

from __future__ import annotations

import asyncio
import sys
from typing import Literal

import msgspec

from aftercommit import AsyncOutbox, Outbox
from bench.relays.brokers import BROKERS, Broker
from bench.servers.hand_postgres import AsyncpgHand
from bench.servers.worker import Talk

#: Rows of one claim by hand.
_BATCH = 500


class RelayJob(msgspec.Struct, frozen=True):
    """Where from, where to, and who does it: a loop by hand, or an outbox of a colour."""

    url: str
    broker: str
    place: str
    who: Literal["hand", "asyncio", "threads"]


def _do(job: RelayJob) -> None:
    broker, talk = BROKERS[job.broker](job.place), Talk()
    match job.who:
        case "hand":
            asyncio.run(_hand(job, broker, talk))
        case "asyncio":
            asyncio.run(_asyncio(job, broker, talk))
        case _:
            _threads(job, broker, talk)


async def _hand(job: RelayJob, broker: Broker, talk: Talk) -> None:
    by_hand = await AsyncpgHand(job.url).open()
    async with broker.connected() as client:
        talk.go()
        await by_hand.drain_together(_BATCH, lambda messages: broker.publish(client, messages))
        await asyncio.to_thread(talk.answer)
    await by_hand.close()


async def _asyncio(job: RelayJob, broker: Broker, talk: Talk) -> None:
    outbox = AsyncOutbox(job.url.replace("postgresql://", "postgresql+asyncpg://"))
    outbox.relay(broker.relay, to=broker.to)
    await outbox.stats()
    talk.go()
    async with outbox:
        await asyncio.to_thread(talk.answer)


def _threads(job: RelayJob, broker: Broker, talk: Talk) -> None:
    outbox = Outbox(job.url)
    outbox.relay(broker.relay, to=broker.to)
    outbox.stats()
    talk.go()
    with outbox:
        talk.answer()


if __name__ == "__main__":
    while line := sys.stdin.readline():
        _do(msgspec.json.decode(line, type=RelayJob))
