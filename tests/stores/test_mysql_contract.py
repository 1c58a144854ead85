"""MySQL and MariaDB keep the contract of stores, through each driver."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from aftercommit.testing import SqlConformance, SqlHooks, StoreConformance
from aftercommit.testing.claiming import ClaimingContract
from aftercommit.testing.fidelity import FidelityContract
from aftercommit.testing.fleet import FleetContract
from aftercommit.testing.heads import HeadsContract
from aftercommit.testing.settling import SettlingContract
from aftercommit.testing.writing import WritingContract
from tests.stores.kit import run_in
from tests.stores.mysql_kit import DRIVERS, Table, made, prepared, store_at


def through(*pairs: Any) -> Any:
    """A server, and a driver to it."""
    return pytest.mark.parametrize(("mysql_url", "driver"), pairs, indirect=["mysql_url"], scope="session")


def seldom(*pair: str) -> Any:
    return pytest.param(*pair, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def table(mysql_url: str) -> Iterator[Table]:
    found = made(mysql_url)
    yield found
    found.close()


class MysqlHooks(SqlHooks):
    """A store in this worker's database."""

    @pytest.fixture(autouse=True)
    def database(self, driver: str, table: Table) -> Iterator[None]:
        self.colour = DRIVERS[driver]
        self.table = table
        table.clear()
        self.schemas: list[str] = []
        yield
        for name in self.schemas:
            table.execute(f"DROP DATABASE `{name}`")
            table.value("SELECT RELEASE_LOCK(%s)", f"aftercommit-test-{name}")

    def make_store(self, **options: Any) -> Any:
        return store_at(self.table.url, self.colour, **options)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return run_in(self.colour, coroutine)

    def rows(self) -> list[dict[str, Any]]:
        return self.table.rows()

    def change(self, event_id: str | None = None, **columns: Any) -> None:
        self.table.change(event_id, **columns)

    def now(self) -> int:
        return self.table.now()

    def make_store_in_zone(self, zone: str) -> Any:
        return prepared(self.make_store(), f"SET time_zone = '{zone}'")

    def make_schema(self, name: str) -> None:
        # A schema is a database here, and its name is the whole server's: one test process at a time.
        assert self.table.value("SELECT GET_LOCK(%s, 60)", f"aftercommit-test-{name}")
        self.table.execute(f"DROP DATABASE IF EXISTS `{name}`")
        self.table.execute(f"CREATE DATABASE `{name}`")
        self.schemas.append(name)


#: Each server, and each driver. What a driver makes of values is the same on both, so all pairs are slow.
@through(("mysql", "pymysql"), ("real_mysql", "asyncmy"), seldom("mysql", "asyncmy"), seldom("real_mysql", "pymysql"))
class TestMysql(MysqlHooks, SqlConformance, StoreConformance):
    """The contract, and what only MySQL can do."""


@through(("mysql", "asyncmy"))
class TestAsyncmyOnMariadb(
    MysqlHooks, WritingContract, FidelityContract, ClaimingContract, SettlingContract, HeadsContract, FleetContract
):
    """Where there is no MySQL itself it is tried all the same: what it makes of values, and of sessions."""
