"""Every database that Django and the outbox share, and an outbox on it that is closed in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db import connections

from tests.conftest import execute_mysql, execute_postgres, other_database
from tests.databases import Database, MysqlDatabase, PostgresDatabase, SqliteDatabase
from tests.django import kit

kit.set_up()

URLS = {"postgres": "django_postgres_url", "mariadb": "django_mysql_url"}


@pytest.fixture(scope="session")
def django_postgres_url(postgres_url: str) -> Iterator[str]:
    """Not the one of other tests: they drop tables that are not theirs, and migrations are remembered."""
    yield from new_database(postgres_url, execute_postgres, "DROP DATABASE {} WITH (FORCE)")


@pytest.fixture(scope="session")
def django_mysql_url(mysql_url: str) -> Iterator[str]:
    yield from new_database(mysql_url, execute_mysql, "DROP DATABASE {}")


def new_database(url: str, execute: Callable[[str, str], None], drop: str) -> Iterator[str]:
    name = f"aftercommit_{uuid4().hex[:12]}"
    execute(url, f"CREATE DATABASE {name}")
    yield other_database(url, name)
    execute(url, drop.format(name))


@pytest.fixture(params=["sqlite", *URLS])
def alias(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of this name, with empty tables."""
    name: str = request.param
    yield from _database(name, request, tmp_path)


@pytest.fixture
def file_alias(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A SQLite file, for what is the same everywhere."""
    yield from _database("sqlite", request, tmp_path)


@pytest.fixture
def postgres_alias(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield from _database("postgres", request, tmp_path)


def _database(name: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    if name == "sqlite":
        kit.add_database(name, kit.sqlite_settings(folder / "shop.sqlite3"))
    else:
        kit.add_database(name, kit.server_settings(request.getfixturevalue(URLS[name])))
    kit.make_tables(name)
    kit.clear_tables(name)
    yield name
    kit.remove_database(name)


@pytest.fixture
def memory_alias() -> Iterator[str]:
    """SQLite in memory, as Django's test runner makes it."""
    kit.add_database("memory", kit.sqlite_settings("file:memorydb_memory?mode=memory&cache=shared"))
    kit.make_tables("memory")
    kit.clear_tables("memory")
    yield "memory"
    connection = connections["memory"].connection
    kit.remove_database("memory")
    if connection is not None:
        connection.close()  # Django keeps it open, for the data in it


@pytest.fixture
def make_outbox() -> Iterator[Callable[..., Any]]:
    """`make_outbox(alias, **options)`: an outbox of this test alone."""
    from aftercommit.django import DjangoOutbox

    made = []

    def make(alias: str, **options: Any) -> Any:
        made.append(DjangoOutbox(alias, **options))
        return made[-1]

    yield make
    for outbox in made:
        outbox.close()


@pytest.fixture
def somebody(alias: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Who sees only what is committed."""
    if alias == "sqlite":
        database: Database = SqliteDatabase(tmp_path / "shop.sqlite3")
    else:
        kind = PostgresDatabase if alias == "postgres" else MysqlDatabase
        database = kind(request.getfixturevalue(URLS[alias]))
    yield database
    database.close()


@pytest.fixture
def settings_of() -> Any:
    """`with settings_of(NAME=value):` other settings for a while."""
    from django.test import override_settings

    return override_settings
