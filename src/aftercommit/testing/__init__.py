"""Tests for people who extend the outbox: the suite that every event store passes. Needs pytest.

class TestMyStore(StoreConformance):
    ...  # five hooks, see `hooks.StoreHooks` and docs/writing-a-store.md; a store over SQL has SqlConformance beside it
"""

from __future__ import annotations

import pytest

# Before they are imported: a failed assert of the suite is then explained like one in a test file.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in (
            *("kit", "hooks", "writing", "scheduling", "fidelity", "claiming", "sharing", "settling", "fencing"),
            *("records", "purging", "heads", "ordering", "passing", "runs", "fleet", "naming", "sql", "conformance"),
        )
    )
)

from aftercommit.testing.conformance import (  # noqa: E402
    CoreConformance,
    OrderConformance,
    SqlConformance,
    StoreConformance,
)
from aftercommit.testing.hooks import StoreHooks, played  # noqa: E402
from aftercommit.testing.sql import SqlHooks  # noqa: E402

__all__ = [
    "CoreConformance",
    "OrderConformance",
    "SqlConformance",
    "SqlHooks",
    "StoreConformance",
    "StoreHooks",
    "played",
]
