"""A shop on every database and driver, and a world for every driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conftest import WAYS as SERVER_WAYS
from tests.conftest import ways
from tests.support import World
from tests.transactions.sqlalchemy_kit import WAYS, Shop


@pytest.fixture(params=ways(*WAYS))
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """Either runtime over each database and driver that SQLAlchemy is used with, with empty tables. Its sessions meet
    the same events of psycopg in either colour, and of PyMySQL as of asyncmy."""
    database = WAYS[request.param][0]
    urls = {"sqlite": None, "postgres": "postgres_url", "mariadb": "mysql_url"}
    name = urls[database]
    made = Shop(request.param, tmp_path, None if name is None else request.getfixturevalue(name))
    if database != "sqlite":
        made.world.somebody.clear()
    yield made
    if database != "sqlite":
        made.world.somebody.clear()  # its tables are in nobody else's way
    made.world.somebody.close()


@pytest.fixture(params=["sqlite-threads", "sqlite-asyncio", *SERVER_WAYS])
def any_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Every driver."""
    if request.param.startswith("sqlite"):
        yield World(request.param.removeprefix("sqlite-"), tmp_path)
        return
    database, runtime, scheme = SERVER_WAYS[request.param]
    url: str = request.getfixturevalue("postgres_url" if database == "postgres" else "mysql_url")
    made = World(runtime, tmp_path, database, urlsplit(url)._replace(scheme=scheme).geturl())
    made.somebody.clear()
    yield made
    made.somebody.close()
