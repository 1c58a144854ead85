"""What it costs to enqueue with other libraries in the caller's transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.peers import Guests
from bench.results import Line, compared
from bench.rounds import Rival, Sample, in_turn
from bench.servers import teams
from bench.servers.clients import tasks
from bench.servers.hand_postgres import AsyncpgHand
from bench.servers.places import Postgres
from bench.sizes import Sizes


def postgres_peers_write(sizes: Sizes, workshop: Path) -> list[Line]:
    """One client, a business row and an event in a transaction; ours is `tx=connection` with asyncpg."""
    with Postgres.opened() as place:
        guests, by_hand = Guests(place), partial(AsyncpgHand, place.url)
        sides: dict[str, Callable[[], Any]] = {
            "ours": lambda: teams.joining_async(place.asyncpg_url, by_hand),
            "by hand": lambda: teams.by_hand_async(by_hand),
        }
        rivals: dict[str, Rival[Any]] = {
            name: partial(_round, place, team, sizes.server_transactions) for name, team in sides.items()
        }
        for name, each in guests.here.items():
            rivals[name] = guests.guarded(name, partial(_round, place, partial(_team, each), sizes.server_transactions))
        samples = in_turn(rivals, sizes.rounds, workshop)
    return guests.noted(
        [
            compared(
                "postgres_peers_write",
                "asyncpg, tx=connection, 1 client",
                samples["ours"],
                samples[name],
                rival=name,
                unit="tx/s",
            )
            for name in ("by hand", *guests.whole())
        ]
    )


def _team(library: Any) -> Any:
    return teams.by_hand_async(lambda: _Opens(library))


class _Opens:
    """What a team opens for each of its clients."""

    def __init__(self, library: Any) -> None:
        self._library = library

    async def open(self) -> Any:
        return await self._library.writer()


def _round(place: Postgres, team: Callable[[], Any], transactions: int, _: Path) -> Sample:
    async def whole() -> Sample:
        async with team() as opens:
            watch = await tasks(opens, 1, transactions)
        return watch.sample(transactions)

    place.clear()
    return asyncio.run(whole())
