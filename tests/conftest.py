"""Worlds and colours for every test that wants them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support import World, painted

# A busy machine is no reason to call a property false.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")


@pytest.fixture(params=["threads", "asyncio"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """Either runtime, over a SQLite file of its own."""
    return World(request.param, tmp_path)


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Either colour of handler: `colour(function)`."""
    return lambda function: painted(request.param, function)
