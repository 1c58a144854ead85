"""The specification's in-flight tracker, for those who wire by hand. The outbox itself holds one copy of each row."""

from __future__ import annotations

from aftercommit.events.durations import Duration, seconds_of
from aftercommit.ports import Runtime


class DefaultInFlightTracker:
    """Ids that are being handled. With a `ttl` an id that was never released is free again after it."""

    def __init__(self, runtime: Runtime, ttl: Duration = 0) -> None:
        self._clock = runtime.clock
        self._lock = runtime.lock()
        self._ttl = seconds_of(ttl, name="ttl")
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
