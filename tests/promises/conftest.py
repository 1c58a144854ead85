"""Fleets of real processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.promises.harness import Fleet
from tests.promises.nursery import Nursery
from tests.promises.ordered import OrderedFleet
from tests.promises.sessions import kill_sessions, sessions
from tests.promises.waiting import until


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
    if url is None:
        yield fleet
    else:
        fleet.table.somebody.clear()
        yield from leaving_nothing(fleet)
    fleet.close()


def leaving_nothing(fleet: Fleet) -> Iterator[Fleet]:
    """Behind a process that was killed, a server goes on with what it was last asked for, and the claim of one would
    take the rows of the next test."""
    before = sessions(fleet.table)
    yield fleet
    fleet.end_processes()
    until(lambda: not kill_sessions(fleet.table, but=before), what="the end of all that they asked for")
    if fleet.database == "redis":
        fleet.table.somebody.clear()


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
