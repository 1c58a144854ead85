"""Worlds for the inbox: every driver, with a table of bills."""

from __future__ import annotations

from tests.transactions.conftest import any_world, shop

__all__ = ["any_world", "shop"]
