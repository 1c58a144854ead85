"""What a write costs in the caller's transaction on a server, with one client and with many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.results import Goal, Line, compared
from bench.rounds import Rival, Sample, in_turn
from bench.servers import teams
from bench.servers.clients import WARM_UP, tasks, threads
from bench.servers.places import Mysql, Place, Postgres
from bench.sizes import Sizes

#: By the name of the team.
_POSTGRES: Final = {"transaction()": 0.92, "transaction(), the user's pool": 0.92, "tx=connection": 0.95}
_MYSQL: Final = {"transaction()": 0.90, "tx=connection": 0.90}


@dataclass(frozen=True, slots=True)
class Contest:
    """On one driver: the teams by name, each made for a number of clients, and who is set beside whom."""

    driver: str
    is_async: bool
    teams: dict[str, Callable[[int], Any]]
    #: What a team of each name should reach.
    targets: dict[str, float]
    #: The hand-written team that another team is set beside, where it is not "hand".
    rivals: dict[str, str] = field(default_factory=dict)


def postgres_write(sizes: Sizes, workshop: Path) -> list[Line]:
    """One business row and one event in a transaction, beside the same two inserts by hand."""
    with Postgres.opened() as place:
        return _lines("postgres_write", _on_postgres(place), place, sizes, workshop)


def _on_postgres(place: Postgres) -> list[Contest]:
    from bench.servers import hand_postgres as by  # noqa: PLC0415  (drivers are extras)

    url, asyncpg_url, targets = place.url, place.asyncpg_url, _POSTGRES
    blocking, awaited = partial(by.PsycopgHand, url), partial(by.AsyncPsycopgHand, url)
    cached, uncached = partial(by.AsyncpgHand, url), partial(by.AsyncpgHand, url, has_cache=False)
    numbered = by.AsyncpgHand.BUSINESS
    return [
        Contest(
            "psycopg",
            False,
            {
                "hand": lambda _: teams.by_hand(blocking),
                "transaction()": lambda _: teams.owned(url, by.BUSINESS),
                "tx=connection": lambda _: teams.joining(url, blocking),
            },
            targets,
        ),
        Contest(
            "psycopg async",
            True,
            {
                "hand": lambda _: teams.by_hand_async(awaited),
                "transaction()": lambda _: teams.owned_async(url, by.BUSINESS),
                "tx=connection": lambda _: teams.joining_async(url, awaited),
            },
            targets,
        ),
        Contest(
            "asyncpg",
            True,
            {
                "hand": lambda _: teams.by_hand_async(cached),
                "hand without a cache": lambda _: teams.by_hand_async(uncached),
                "hand, the user's pool": lambda size: teams.by_hand_in_asyncpg_pool(cached, url, size),
                "transaction()": lambda _: teams.owned_async(asyncpg_url, numbered),
                "transaction(), the user's pool": lambda size: teams.owned_in_asyncpg_pool(url, numbered, size),
                "tx=connection": lambda _: teams.joining_async(asyncpg_url, cached),
            },
            targets,
            # The outbox's own connections keep no statements, so that a pooler may stand between.
            {"transaction()": "hand without a cache", "transaction(), the user's pool": "hand, the user's pool"},
        ),
    ]


def mysql_write(sizes: Sizes, workshop: Path) -> list[Line]:
    """The same on MySQL or MariaDB."""
    with Mysql.opened() as place:
        return _lines("mysql_write", _on_mysql(place), place, sizes, workshop)


def _on_mysql(place: Mysql) -> list[Contest]:
    from bench.servers import hand_mysql as by  # noqa: PLC0415

    url, targets = place.url, _MYSQL
    blocking, awaited = partial(by.PymysqlHand, url), partial(by.AsyncmyHand, url)
    return [
        Contest(
            "PyMySQL",
            False,
            {
                "hand": lambda _: teams.by_hand(blocking),
                "transaction()": lambda _: teams.owned(url, by.BUSINESS),
                "tx=connection": lambda _: teams.joining(url, blocking),
            },
            targets,
        ),
        Contest(
            "asyncmy",
            True,
            {
                "hand": lambda _: teams.by_hand_async(awaited),
                "transaction()": lambda _: teams.owned_async(url, by.BUSINESS),
                "tx=connection": lambda _: teams.joining_async(url, awaited),
            },
            targets,
        ),
    ]


def _lines(measure: str, contests: list[Contest], place: Place, sizes: Sizes, workshop: Path) -> list[Line]:
    lines = []
    for contest in contests:
        # A middle number is for the first driver of PostgreSQL: the others take their time.
        is_first = contest is contests[0] and isinstance(place, Postgres)
        for clients in sizes.clients if is_first else (sizes.clients[0], sizes.clients[-1]):
            rivals = _rounds(contest, place, clients, sizes.server_transactions)
            samples = in_turn(rivals, sizes.rounds, workshop)
            lines += [_line(measure, contest, name, clients, samples) for name in samples if "hand" not in name]
    return lines


def _line(measure: str, contest: Contest, name: str, clients: int, samples: dict[str, list[Sample]]) -> Line:
    rival = contest.rivals.get(name, "hand")
    return compared(
        measure,
        f"{contest.driver}, {name}, {clients} client{'s' * (clients > 1)}",
        samples[name],
        samples[rival],
        rival="two inserts" + rival.removeprefix("hand"),
        unit="tx/s",
        goals=_goals(measure, contest.targets.get(name)),
    )


def _goals(measure: str, target: float | None) -> list[Goal]:
    if target is None:
        return []
    return [Goal("P12" if measure.startswith("mysql") else "P1", "ratio", target), Goal("P15", "cpu", 1.2)]


def _rounds(contest: Contest, place: Place, clients: int, transactions: int) -> dict[str, Rival[Sample]]:
    def in_threads(team: Callable[[int], Any], _: Path) -> Sample:
        place.clear()
        with team(clients) as opens:
            watch = threads(opens, clients, transactions)
        assert place.count("1 = 1") == clients * WARM_UP + transactions
        return watch.sample(transactions)

    async def in_tasks(team: Callable[[int], Any]) -> Sample:
        place.clear()
        async with team(clients) as opens:
            watch = await tasks(opens, clients, transactions)
        assert place.count("1 = 1") == clients * WARM_UP + transactions
        return watch.sample(transactions)

    def in_loop(team: Callable[[int], Any], _: Path) -> Sample:
        return asyncio.run(in_tasks(team))

    return {name: partial(in_loop if contest.is_async else in_threads, team) for name, team in contest.teams.items()}
