"""PostgreSQL keeps the contract of stores, through each driver."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any
from urllib.parse import quote

import pytest

from aftercommit.stores.detect import open_store
from aftercommit.testing import SqlConformance, SqlHooks, StoreConformance
from aftercommit.testing.claiming import ClaimingContract
from aftercommit.testing.fidelity import FidelityContract
from aftercommit.testing.fleet import FleetContract
from aftercommit.testing.heads import HeadsContract
from aftercommit.testing.sharing import SharingContract
from aftercommit.testing.writing import WritingContract
from tests.stores.kit import run_in
from tests.stores.postgres_kit import DRIVERS, Table


class PostgresHooks(SqlHooks):
    """A store in this worker's database."""

    @pytest.fixture(autouse=True)
    def database(self, driver: str, postgres_table: Table) -> None:
        scheme, self.colour = DRIVERS[driver]
        self.table = postgres_table
        self.url = scheme + "://" + postgres_table.url.partition("://")[2]

    def make_store(self, **options: Any) -> Any:
        return open_store(self.url, self.colour, **{"create_schema": True, **options})

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return run_in(self.colour, coroutine)

    def rows(self) -> list[dict[str, Any]]:
        return self.table.rows()

    def change(self, event_id: str | None = None, **columns: Any) -> None:
        self.table.change(event_id, **columns)

    def now(self) -> int:
        return self.table.now()

    def make_store_in_zone(self, zone: str) -> Any:
        glue = "&" if "?" in self.url else "?"
        setting = (
            f"timezone={zone}"
            if self.url.startswith("postgresql+asyncpg")
            else f"options={quote(f'-c timezone={zone}')}"
        )
        return open_store(f"{self.url}{glue}{setting}", self.colour, create_schema=True)

    def make_schema(self, name: str) -> None:
        self.table.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')
        self.table.execute(f'CREATE SCHEMA "{name}"')


@pytest.mark.parametrize(
    "driver", ["psycopg", "asyncpg", pytest.param("psycopg-async", marks=pytest.mark.slow)], scope="class"
)
class TestPostgres(PostgresHooks, SqlConformance, StoreConformance):
    """The contract, and what only PostgreSQL can do."""


@pytest.mark.parametrize("driver", ["psycopg-async"], scope="class")
class TestPsycopgAsync(
    PostgresHooks, WritingContract, FidelityContract, ClaimingContract, SharingContract, HeadsContract, FleetContract
):
    """It sends and reads values as psycopg does in threads, so in every run it shows its own way of waiting."""
