"""A shop on every database and driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transactions.sqlalchemy_kit import WAYS, Shop


@pytest.fixture(params=WAYS)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """Either runtime over each database and driver that SQLAlchemy is used with, with empty tables."""
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
