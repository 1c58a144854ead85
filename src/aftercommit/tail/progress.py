"""What was read of the log and is not delivered yet, and how far all before it is. Pure, but for a mutex."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from aftercommit.events.claims import Claimed, RowKey, Undecodable
from aftercommit.events.order import OrderKey
from aftercommit.ports.replication import Began, Change, Ended, Wrote


@dataclass(slots=True, eq=False)
class Entry:
    """An event of the log that is the tail's to deliver."""

    key: RowKey
    row: Claimed | Undecodable
    values: Mapping[str, str | None]
    #: In the order of reading.
    number: int
    #: It may have been delivered before: by an earlier reader, or from the table.
    is_old: bool
    #: On the runtime's clock; None while it waits to be given to the workers.
    given_at: float | None = None
    #: Its row is being leased in the table, which goes on should it be delivered meanwhile.
    is_moving: bool = False

    @property
    def order_key(self) -> OrderKey | None:
        return self.row.order_key


@dataclass(slots=True, eq=False)
class _Step:
    """One change of the log, until everything up to it is delivered."""

    is_over: bool
    #: It brought an event of ours.
    is_row: bool = False
    #: Where the log goes on behind a transaction.
    ends_at: int | None = None
    committed_at: datetime | None = None


class Passed(NamedTuple):
    """Everything up to here is delivered, or has a place in the table."""

    #: Where the last transaction ended that is through.
    place: int
    #: Changes behind that which are through, too.
    changes: int
    committed_at: datetime | None


class Progress:
    """From what is confirmed to what was read last. From any thread."""

    def __init__(self, lock: AbstractContextManager[Any], passed: Passed, *, old_until: int) -> None:
        """What was committed up to `old_until` may have been delivered before."""
        self._lock = lock
        self._passed = passed
        #: Changes of transactions that are through, and of which the slot has not been told.
        self._untold = 0
        self._old_until = old_until
        self._steps: deque[_Step] = deque()
        self._entries: dict[RowKey, Entry] = {}
        self._step_of: dict[RowKey, _Step] = {}
        self._given: Counter[OrderKey] = Counter()
        self._is_old = True
        self._since: datetime | None = None
        self._numbers = self._rows_passed = self._last_begun = self._last_finished = 0
        #: Delivered while their rows were being leased.
        self._late: set[RowKey] = set()

    # ------------------------------------------------------------ reading

    @property
    def skip(self) -> int:
        """So many changes were read behind what the slot was told of."""
        with self._lock:
            return self._untold + self._passed.changes + len(self._steps)

    def read(self, change: Change) -> Entry | None:
        """The event that it brings; None where there is none for us, or we have it."""
        with self._lock:
            match change:
                case Began(commit_at, committed_at):
                    self._is_old, self._since = commit_at <= self._old_until, committed_at
                    self._steps.append(_Step(is_over=True))
                case Ended(ends_at, committed_at):
                    self._is_old, self._since = True, None
                    self._steps.append(_Step(is_over=True, ends_at=ends_at, committed_at=committed_at))
                case Wrote():
                    return self._written(change)
        return None

    def _written(self, change: Wrote) -> Entry | None:
        is_ours = change.is_captured and change.key not in self._entries
        self._steps.append(step := _Step(not is_ours, is_ours, committed_at=self._since))
        if not is_ours:
            return None
        self._numbers += 1
        entry = Entry(change.key, change.row, change.values, self._numbers, self._is_old)
        self._entries[change.key], self._step_of[change.key] = entry, step
        return entry

    # ------------------------------------------------------------ delivering

    def give(self, entry: Entry, now: float) -> None:
        """One that is the table's by now is the log's business no more."""
        with self._lock:
            if self._entries.get(entry.key) is not entry:
                return
            entry.given_at = now
            self._last_begun = max(self._last_begun, entry.number)
            if entry.order_key is not None:
                self._given[entry.order_key] += 1

    def take_back(self, entry: Entry) -> None:
        """There was no room for it."""
        with self._lock:
            if entry.given_at is not None and entry.key in self._entries:
                self._free(entry)
                entry.given_at = None

    def _free(self, entry: Entry) -> None:
        if (key := entry.order_key) is not None:
            self._given[key] -= 1
            if not self._given[key]:
                del self._given[key]

    def busy(self) -> Collection[OrderKey]:
        """The keys of which events are with the workers."""
        with self._lock:
            return frozenset(self._given)

    def of(self, key: RowKey) -> Entry | None:
        """The event, if it is still to be delivered from the log."""
        with self._lock:
            return self._entries.get(key)

    def finish(self, key: RowKey) -> bool:
        """It is delivered, or has a place in the table. False when it was so before, or nobody knows it."""
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is None:
                return False
            self._step_of.pop(key).is_over = True
            self._last_finished = max(self._last_finished, entry.number)
            if entry.is_moving:
                self._late.add(key)
            if entry.given_at is not None:
                self._free(entry)
            return True

    def move(self, keys: Collection[RowKey]) -> list[Entry]:
        """Those whose rows are to be leased in the table from here on."""
        with self._lock:
            moving = [entry for key in keys if (entry := self._entries.get(key)) is not None]
            for entry in moving:
                entry.is_moving = True
            return moving

    def moved(self, entries: Collection[Entry]) -> list[RowKey]:
        """They are; those of them that were delivered meanwhile."""
        with self._lock:
            late = [entry.key for entry in entries if entry.key in self._late]
            self._late.difference_update(late)
            for entry in entries:
                entry.is_moving = False
        for entry in entries:
            self.finish(entry.key)
        return late

    # ------------------------------------------------------------ looking

    def pass_by(self) -> Passed:
        """How far everything is through by now."""
        with self._lock:
            place, changes, at = self._passed
            while self._steps and self._steps[0].is_over:
                step = self._steps.popleft()
                changes += 1
                self._rows_passed += step.is_row
                if step.ends_at is not None:
                    self._untold += changes
                    place, changes, at = step.ends_at, 0, step.committed_at
            self._passed = Passed(place, changes, at)
            return self._passed

    def told(self) -> None:
        """The slot knows of the last transaction that is through."""
        with self._lock:
            self._untold = 0

    def jump(self, place: int) -> None:
        """There was nothing for us up to there, and the slot knows of it."""
        with self._lock:
            self._passed, self._untold = Passed(place, 0, self._passed.committed_at), 0

    def __len__(self) -> int:
        """Events that are still to be delivered."""
        return len(self._entries)

    @property
    def is_empty(self) -> bool:
        """Nothing was read that is not confirmed."""
        return not self._steps

    @property
    def begun(self) -> int:
        """So many rows behind what is passed may have been begun."""
        with self._lock:
            return max(0, max(self._last_begun, self._last_finished) - self._rows_passed)

    def since(self) -> datetime | None:
        """When the transaction was committed that is being read."""
        return self._since

    def oldest(self) -> datetime | None:
        """When the first one was committed that is not delivered."""
        with self._lock:
            return next((step.committed_at for step in self._steps if not step.is_over), None)

    def left_behind(self) -> list[Entry]:
        """Those that were passed by others, which would come again with them."""
        with self._lock:
            return [entry for entry in self._entries.values() if entry.number < self._last_finished]

    def given_before(self, time: float) -> bool:
        """Whether an event is with the workers since then."""
        with self._lock:
            return any(each.given_at is not None and each.given_at < time for each in self._entries.values())
