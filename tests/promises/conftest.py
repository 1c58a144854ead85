"""Fleets of real processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.promises.harness import Fleet
from tests.promises.nursery import Nursery
from tests.promises.ordered import OrderedFleet


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """These tests stop, kill and fork processes, which only POSIX systems can."""
    here = Path(__file__).parent
    if not hasattr(os, "fork"):
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="needs fork and signals"))


URLS = {"postgres": "postgres_url", "mariadb": "mysql_url", "redis": "redis_url"}


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def fleet(request: pytest.FixtureRequest, nursery: Nursery, tmp_path: Path) -> Iterator[Fleet]:
    """Processes on one database: a SQLite file, or an empty table on the server that the test asks for."""
    database = getattr(request, "param", "sqlite")
    url = None if database == "sqlite" else request.getfixturevalue(URLS[database])
    fleet = Fleet(nursery, tmp_path, database, url)
    if url is not None:
        fleet.table.somebody.clear()
    yield fleet
    if database == "redis":
        fleet.end_processes()
        fleet.table.somebody.clear()
    fleet.close()


@pytest.fixture
def ordered(request: pytest.FixtureRequest, fleet: Fleet) -> Iterator[OrderedFleet]:
    """A fleet that keeps order, on the server that the test asks for; with another `on_dead` if it asks for that."""
    ordered = OrderedFleet(fleet, on_dead=getattr(request, "param", "block"))
    yield ordered
    ordered.close()


@pytest.fixture(params=["threads", "asyncio"])
def runtime(request: pytest.FixtureRequest) -> str:
    """In which runtime the processes of a test work."""
    return str(request.param)
