"""The in-flight tracker of the specification, for those who wire by hand or want a time limit."""

from __future__ import annotations

import threading

from aftercommit.events.durations import Duration, seconds_of
from aftercommit.runtime.process import boottime


class DefaultInFlightTracker:
    """Ids that are being handled. The outbox itself holds one copy of each row without it. With a `ttl` an id that was
    never released is free again after it."""

    def __init__(self, ttl: Duration = 0) -> None:
        self._ttl = seconds_of(ttl, name="ttl")
        self._clock = boottime
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}

    def try_acquire(self, event_id: str) -> bool:
        now = self._clock()
        with self._lock:
            since = self._since.get(event_id)
            if since is not None and (not self._ttl or now - since < self._ttl):
                return False
            self._since[event_id] = now
            return True

    def release(self, event_id: str) -> None:
        with self._lock:
            self._since.pop(event_id, None)
