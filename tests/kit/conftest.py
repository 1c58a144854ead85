"""Every way to write a test with the kit."""

from __future__ import annotations

import pytest

from tests.kit.ways import WAYS, Way


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    return Way(request.param)
