"""Where the processes of a test work: a runtime, a database and a driver, and the folder that they share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import World

#: Every database with every runtime and driver; `asyncpg` is asyncio over that driver.
EMBEDDED = [("sqlite", "threads"), ("sqlite", "asyncio")]
SQL_SERVERS = [
    ("postgres", "threads"),
    ("postgres", "asyncio"),
    ("postgres", "asyncpg"),
    ("mariadb", "threads"),
    ("mariadb", "asyncio"),
]
SERVERS = [*SQL_SERVERS, ("redis", "threads"), ("redis", "asyncio")]

#: What a process is killed, stopped or asked to end in makes no difference to a driver: of those, each server has one
#: in every run, and PostgreSQL one of each runtime.
SELDOM = {("postgres", "asyncio"), ("mariadb", "threads"), ("redis", "asyncio")}


def places(*found: tuple[str, ...]) -> list[Any]:
    return [pytest.param(*each, marks=pytest.mark.slow if each[:2] in SELDOM else ()) for each in found]


#: A test of `fleet` and `runtime` runs there instead of on SQLite alone.
on_servers = pytest.mark.parametrize(("fleet", "runtime"), places(*SERVERS), indirect=["fleet"])
everywhere = pytest.mark.parametrize(("fleet", "runtime"), places(*EMBEDDED, *SERVERS), indirect=["fleet"])

#: Through every driver, for what drivers have a part in: sessions, and what becomes of them.
through_drivers = pytest.mark.parametrize(("fleet", "runtime"), SERVERS, indirect=["fleet"])
through_sql_drivers = pytest.mark.parametrize(("fleet", "runtime"), SQL_SERVERS, indirect=["fleet"])

#: The same with a `colour` of the handler: both on SQLite, on servers the one that the runtime is made for.
everywhere_in_colour = pytest.mark.parametrize(
    ("fleet", "runtime", "colour"),
    places(
        *((*place, colour) for place in EMBEDDED for colour in ("sync", "async")),
        *((*place, "sync" if place[1] == "threads" else "async") for place in SERVERS),
    ),
    indirect=["fleet"],
)


def world_of(place: dict[str, Any]) -> World:
    """The world of a process, as it was written down for it."""
    return World(place["world"], Path(place["folder"]), place["database"], place["url"], place["table"])
