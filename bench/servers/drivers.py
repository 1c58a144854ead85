"""The drivers of each server: where an outbox finds the database, and who does the same by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.servers.places import Mysql, Place, Postgres


@dataclass(frozen=True, slots=True)
class Driver:
    """`hand()` opens one connection; its methods are awaited when the driver is async."""

    name: str
    is_async: bool
    url: str
    hand: Callable[[], Any]


def of(place: Place) -> list[Driver]:
    return _of_postgres(place) if isinstance(place, Postgres) else _of_mysql(place)


def named(place: Place, name: str) -> Driver:
    return next(driver for driver in of(place) if driver.name == name)


def _of_postgres(place: Postgres) -> list[Driver]:
    from bench.servers import hand_postgres as by  # noqa: PLC0415  (drivers are extras)

    url = place.url
    return [
        Driver("psycopg", False, url, partial(by.PsycopgHand, url)),
        Driver("psycopg async", True, url, partial(by.AsyncPsycopgHand, url)),
        Driver("asyncpg", True, place.asyncpg_url, partial(by.AsyncpgHand, url)),
    ]


def _of_mysql(place: Place) -> list[Driver]:
    from bench.servers import hand_mysql as by  # noqa: PLC0415

    assert isinstance(place, Mysql)
    url = place.url
    return [
        Driver("PyMySQL", False, url, partial(by.PymysqlHand, url)),
        Driver("asyncmy", True, url, partial(by.AsyncmyHand, url)),
    ]
