"""The handler of the demo, a mailer with a moody server and a bug; and the log of every call that it got."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable

from aftercommit import EventEnvelope, EventInterceptor


class Mailer:
    """Confirms orders. An error that it raises is a failed attempt; the outbox decides when to call again."""

    def __init__(self) -> None:
        #: How often the mail server will still time out, by order number.
        self.timeouts: Counter[int] = Counter()
        self.has_bug = True

    def confirm(self, event: EventEnvelope) -> None:
        order = json.loads(event.payload_json)
        if self.timeouts[order["number"]] > 0:
            self.timeouts[order["number"]] -= 1
            raise TimeoutError
        if self.has_bug:
            _ = 100 // order["items"]  # postage per item


class CallLog(EventInterceptor):
    """Records every call of a handler: how long after the commit it came, and how it ended."""

    def __init__(self, record: Callable[[tuple[object, ...]], None], *, note: Callable[[str], None]) -> None:
        self._record = record
        self._note = note
        self._committed: dict[str, float] = {}
        self._waits: dict[str, float | None] = {}
        self._calls: Counter[str] = Counter()

    def committed(self, number: int) -> None:
        self._committed[str(number)] = time.perf_counter()

    def before_dispatch(self, event: EventEnvelope) -> None:
        """Take the time now: what the handler does with the event is its own."""
        number = str(event.aggregate_id)
        committed = self._committed.pop(number, None)
        self._waits[number] = None if committed is None else (time.perf_counter() - committed) * 1000
        self._calls[number] += 1

    def after_dispatch(self, event: EventEnvelope, error: BaseException | None) -> None:
        number = str(event.aggregate_id)
        wait = self._waits.pop(number)
        self._record((int(number), event.event_id, error and repr(error), wait, os.getpid()))
        if error is None:
            self._note(f"order {number} delivered{self._when(number, wait)}")

    def _when(self, number: str, wait: float | None) -> str:
        if wait is not None:
            return f" {wait:.2f} ms after its commit"
        return f" at call {self._calls[number]}" if self._calls[number] > 1 else ""
