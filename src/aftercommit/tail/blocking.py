"""The tail for threads and blocking drivers."""

from __future__ import annotations

from datetime import datetime

from aftercommit.events.durations import Duration, seconds_of
from aftercommit.outbox import Outbox
from aftercommit.polling.manual import DrainResult
from aftercommit.runtime.threads import run
from aftercommit.tail.base import TailBase
from aftercommit.tail.engine import Lag


class ReplicationTail(TailBase, Outbox):
    """Delivers what is committed from PostgreSQL's log, in the order of commits: nobody polls the table for it, and no
    row is changed for an event that is delivered. One process reads a slot at a time; others stand by.

    It has what an outbox has: handlers, retries, dead letters, order, statistics.
    """

    def drain(self, timeout: Duration | None = None) -> DrainResult:
        """Deliver what was committed before this call, and what is due in the table. Not started, it is started for
        that."""
        limit = None if timeout is None else seconds_of(timeout, name="timeout")
        if self.is_started:
            return run(self._tail().drain(limit))
        with self:
            return run(self._tail().drain(limit))

    def lag(self) -> Lag:
        """How far the slot is behind the database."""
        return run(self._tail().lag())

    def drop_slot(self) -> int:
        """Take slot, publication and trigger away. What was not read is in the table then, for any outbox; how many
        events that are."""
        return run(self._drop_slot())

    def recover(self, *, since: datetime | None = None) -> int:
        """Begin anew after the slot was lost. What was written since then is delivered from the table, be it once more;
        by default since ten minutes before the last event that is known to be delivered. How many events that are."""
        return run(self._recover(since))
