"""What happened, counted: for stats() here, and for the user's exporter, whose errors harm nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from aftercommit.events.log import Log
from aftercommit.events.redact import error_text
from aftercommit.hooks import MetricsExporter
from aftercommit.ports import Runtime

log = Log("aftercommit.metrics")

#: Seconds between two WARNINGs about the same thing.
QUIET = 10.0


class Meter:
    """Counters of one outbox. Safe from any thread."""

    def __init__(self, runtime: Runtime, exporter: MetricsExporter, store: str = "") -> None:
        """`store` names the table that is counted for, where one exporter serves several."""
        self._runtime = runtime
        self._exporter = exporter
        # The default exporter does nothing, so nothing is called for it.
        self.exports = type(exporter) is not MetricsExporter
        self._lock = runtime.lock()
        self._counts: Counter[str] = Counter()
        self._last_said: dict[str, float] = {}
        if self.exports and hasattr(exporter, "for_store"):  # which one that only has the methods need not have
            self._export(lambda: setattr(self, "_exporter", exporter.for_store(store)))

    def count(self, name: str, times: int = 1) -> None:
        """Raise a counter; the exporter has a method `increment_<name>`."""
        with self._lock:
            self._counts[name] += times
        if self.exports:
            method = getattr(self._exporter, f"increment_{name}", None)
            for _ in range(times):
                self._export(method)

    def record(self, name: str, *values: float) -> None:
        """Set a gauge; the exporter has a method `record_<name>`."""
        if self.exports:
            self._export(getattr(self._exporter, f"record_{name}", None), *values)

    def lost(self, event_type: str, handler_id: str) -> None:
        """A lease was lost."""
        self.count("lease_lost")
        self.tell("lease_lost", event_type, handler_id)

    def tell(self, name: str, *values: object) -> None:
        """Pass on what only exporters have a use for; the exporter has a method of that name."""
        if self.exports:
            self._export(getattr(self._exporter, name, None), *values)

    def _export(self, method: Callable[..., object] | None, *values: object) -> None:
        if method is None:
            return
        try:
            method(*values)
        except Exception as error:
            if self.may_say("exporter"):
                log.warning("the metrics exporter failed and is ignored: %s", error_text(error), error=error)

    def may_say(self, topic: str) -> bool:
        """Whether a repeated WARNING is due again."""
        now = self._runtime.clock()
        with self._lock:
            if now - self._last_said.get(topic, float("-inf")) < QUIET:
                return False
            self._last_said[topic] = now
        return True

    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)
