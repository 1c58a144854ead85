"""Fleets of real processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.promises.harness import Fleet


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """These tests stop, kill and fork processes, which only POSIX systems can."""
    here = Path(__file__).parent
    if not hasattr(os, "fork"):
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="needs fork and signals"))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.close()


@pytest.fixture(params=["threads", "asyncio"])
def runtime(request: pytest.FixtureRequest) -> str:
    """In which runtime the processes of a test work."""
    return str(request.param)
