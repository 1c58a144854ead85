"""A PostgreSQL with wal_level=logical for all tests of a worker, and worlds with a database of their own on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from tests.conftest import other_database, started
from tests.servers import PrivatePostgres
from tests.tail.kit import TailWorld

WAYS = {
    "psycopg-threads": ("threads", "postgresql"),
    "psycopg-asyncio": ("asyncio", "postgresql"),
    "asyncpg-asyncio": ("asyncio", "postgresql+asyncpg"),
}


def logical() -> PrivatePostgres:
    return PrivatePostgres(wal_level="logical", max_replication_slots="40", max_wal_senders="5")


@pytest.fixture(scope="session")
def logical_postgres() -> Iterator[PrivatePostgres]:
    """For all tests of a worker."""
    yield from started(logical)


@pytest.fixture
def own_logical_postgres() -> Iterator[PrivatePostgres]:
    """One that the test may stop and start."""
    yield from started(logical)


@pytest.fixture(params=WAYS)
def tail_world(
    request: pytest.FixtureRequest, logical_postgres: PrivatePostgres, tmp_path: Path
) -> Iterator[TailWorld]:
    """Either runtime over each driver."""
    yield from world_on(logical_postgres, *WAYS[request.param], tmp_path)


@pytest.fixture
def threads_world(logical_postgres: PrivatePostgres, tmp_path: Path) -> Iterator[TailWorld]:
    """Where one way is as good as another."""
    yield from world_on(logical_postgres, "threads", "postgresql", tmp_path)


def world_on(server: PrivatePostgres, runtime: str, scheme: str, folder: Path) -> Iterator[TailWorld]:
    name = f"aftercommit_{uuid4().hex[:12]}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = other_database(server.url, name).replace("postgresql://", f"{scheme}://", 1)
    made = TailWorld(runtime, folder, url, f"tail_{name[-12:]}")
    yield made
    made.somebody.close()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s", (name,)
        )
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
