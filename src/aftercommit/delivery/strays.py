"""Rows that nobody in this process can handle, as far as it has met them."""

from __future__ import annotations

import logging
from typing import Final

from aftercommit.errors import UnroutableEvent
from aftercommit.events.claims import Claimed, RowKey
from aftercommit.ports import Runtime

log = logging.getLogger("aftercommit.delivery")

#: Enough to see that something is wrong; the rest is not counted.
_COUNTED_AT_MOST: Final = 1000


class Strays:
    """Counts rows by the handler that they were written for, or by their route. Safe from any thread."""

    def __init__(self, runtime: Runtime) -> None:
        self._lock = runtime.lock()
        self._rows: dict[str, set[RowKey]] = {}

    def met(self, claimed: Claimed, error: UnroutableEvent) -> None:
        """Another one; the first of its kind is said aloud."""
        event, key = claimed.event, claimed.lease.key
        name = key.handler_id or f"{event.aggregate_type}/{event.event_type}"
        with self._lock:
            is_new = name not in self._rows
            rows = self._rows.setdefault(name, set())
            if len(rows) < _COUNTED_AT_MOST:
                rows.add(key)
        if is_new:
            log.warning("rows wait for %s, which this process does not have: %s", name, error)

    def counts(self) -> dict[str, int]:
        """How many rows were met, by name."""
        with self._lock:
            return {name: len(rows) for name, rows in self._rows.items()}
