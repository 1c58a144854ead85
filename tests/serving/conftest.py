"""Servers, each on a database of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.conftest import execute_postgres, other_database
from tests.databases import Database, PostgresDatabase, SqliteDatabase
from tests.serving.kit import COMMANDS, Server
from tests.serving.orders import ORDERS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """gunicorn forks, and all are ended by signals, which only POSIX systems have."""
    here = Path(__file__).parent
    if not hasattr(os, "fork"):
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="needs fork and signals"))


#: What SQLAlchemy calls the drivers, in each colour; Django has its own words.
SCHEMES = {
    ("sqlite", "flask"): "sqlite",
    ("sqlite", "fastapi"): "sqlite+aiosqlite",
    ("sqlite", "django"): "sqlite",
    ("postgres", "flask"): "postgresql+psycopg",
    ("postgres", "fastapi"): "postgresql+asyncpg",
    ("postgres", "django"): "postgresql",
}


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """`(shop, command, database)`; a shop may name a place of its own: `django/async`."""
    shop, command, database = request.param
    folder, name = tmp_path, f"aftercommit_{uuid4().hex[:12]}"
    if database == "sqlite":
        yield from _served(shop, command, folder, f"sqlite:///{folder / 'shop.db'}", SqliteDatabase(folder / "shop.db"))
        return
    postgres = request.getfixturevalue("postgres_url")
    execute_postgres(postgres, f"CREATE DATABASE {name}")
    url = other_database(postgres, name)
    try:
        yield from _served(shop, command, folder, url, PostgresDatabase(url))
    finally:
        execute_postgres(postgres, f"DROP DATABASE {name} WITH (FORCE)")


def _served(shop: str, command: str, folder: Path, url: str, table: Database) -> Iterator[Server]:
    table.write(ORDERS)
    framework, _, at = shop.partition("/")
    database = "sqlite" if url.startswith("sqlite") else "postgres"
    program, *options = command.split()
    application = f"tests.serving.{framework}_shop:{'asgi' if 'uvicorn' in command else 'wsgi'}"
    address = f"{SCHEMES[database, framework]}:{url.partition(':')[2]}"
    server = Server([*COMMANDS[program], *options, application], folder, address, table, at)
    try:
        server.until_ready()
        yield server
    finally:
        server.close()
