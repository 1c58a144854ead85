"""Rows that nobody in this process can handle: said aloud once for each kind, and counted."""

from __future__ import annotations

from typing import Final

from aftercommit.errors import UnroutableEvent
from aftercommit.events.claims import Claimed, RowKey
from aftercommit.events.log import Log
from aftercommit.events.names import route_name
from aftercommit.ports import Runtime

log = Log("aftercommit.delivery")

#: Enough rows to see that something is wrong; the rest is not counted.
_COUNTED_AT_MOST: Final = 1000


class Strangers:
    """What was met since start, by the handler or route that it waits for."""

    def __init__(self, runtime: Runtime) -> None:
        self._lock = runtime.lock()
        self._rows: dict[str, set[RowKey]] = {}

    def met(self, claimed: Claimed, error: UnroutableEvent) -> None:
        event, key = claimed.event, claimed.lease.key
        name = key.handler_id or route_name(event.aggregate_type, event.event_type)
        with self._lock:
            is_new = name not in self._rows
            rows = self._rows.setdefault(name, set())
            if len(rows) < _COUNTED_AT_MOST:
                rows.add(key)
        if is_new:
            log.warning("rows wait for %s, which this process does not have: %s", name, error)

    def counts(self) -> dict[str, int]:
        with self._lock:
            return {name: len(rows) for name, rows in self._rows.items()}
