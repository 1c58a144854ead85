"""What a store inherits to be tested, in one place."""

from __future__ import annotations

from aftercommit.testing.conformance import CoreConformance, OrderConformance, SqlConformance, StoreConformance
from aftercommit.testing.hooks import StoreHooks, played
from aftercommit.testing.sql import SqlHooks

__all__ = [
    "CoreConformance",
    "OrderConformance",
    "SqlConformance",
    "SqlHooks",
    "StoreConformance",
    "StoreHooks",
    "played",
]
