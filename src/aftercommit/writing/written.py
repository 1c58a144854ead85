"""The rows of one write, from their INSERT to the end of their transaction, and what is told of them on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from inspect import isawaitable, iscoroutine

from msgspec.structs import replace

from aftercommit.errors import InvalidOption
from aftercommit.events.claims import Claimed, Lease, NewEvent, RowKey
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.log import Log
from aftercommit.events.redact import error_text
from aftercommit.hooks import WriterHook
from aftercommit.meter import Meter
from aftercommit.writing.borders import HotPath

log = Log("aftercommit.writer")


@dataclass(slots=True, eq=False)
class Written:
    """The rows of one write, from their INSERT to the end of their transaction."""

    rows: list[NewEvent]
    #: Of the leases: counted from before the INSERT was sent.
    deadline: float
    _hot_path: HotPath | None
    _hook: WriterHook | None
    #: Counts what is committed; None where nobody wants to know.
    _meter: Meter | None = None
    #: Rows that were born leased as the first of their keys, and those of which nobody knows whether they were.
    _firsts: dict[RowKey, EventEnvelope] = field(default_factory=dict)
    _doubtful: list[NewEvent] = field(default_factory=list)
    #: Whether some of the events have a unique key.
    has_unique: bool = False

    @property
    def keys(self) -> list[RowKey]:
        return [_key_of(row) for row in self.rows]

    def leased_but(self, free: Collection[RowKey]) -> None:
        """The store has leased these rows as they were asked for, but for some that are free."""
        refused = [row for row in self.rows if row.owner is not None and _key_of(row) in free]
        self.cancel(refused)
        if refused:
            self.rows = [replace(row, owner=None) if _key_of(row) in free else row for row in self.rows]
        self._firsts = {_key_of(row): row.event for row in self.rows if _is_first(row)}
        if self._firsts and self._hot_path is not None:
            self._hot_path.expect(list(self._firsts.values()))

    def doubt(self) -> None:
        """The store did not say which rows it has leased: those that it asks about are not delivered from memory."""
        self._doubtful = [row for row in self.rows if _is_first(row)]
        self.cancel(self._doubtful)
        self.rows = [replace(row, owner=None) if row in self._doubtful else row for row in self.rows]

    def lose(self, keys: Collection[RowKey]) -> list[NewEvent]:
        """Rows that are gone are no part of it any more."""
        lost = [row for row in self.rows if _key_of(row) in keys]
        self.rows = [row for row in self.rows if _key_of(row) not in keys]
        return lost

    def undone(self, keys: Collection[RowKey]) -> None:
        """Some rows are gone again although their transaction goes on."""
        self._rolled_back(self.lose(keys))

    def rolled_back(self) -> None:
        self._rolled_back(self.rows)

    def committed(self) -> None:
        """Never raises: the caller's commit has happened, and the rows are in the table."""
        path = self._hot_path
        try:
            if path is not None:
                hot = self._claimed(self.rows)
                try:
                    if hot:
                        path.fill(hot)
                finally:
                    if self._firsts:
                        path.not_expected(list(self._firsts.values()))
                if self._doubtful:
                    path.give_back(self._claimed(self._doubtful))
                if len(hot) < len(self.rows):
                    path.left_in_table([row.event for row in self.rows if row.owner is None])
        except Exception as error:
            log.error("committed events are left to the poller: %s", error_text(error), error=error)
        if self._meter is not None:
            tell_written(self._meter, self.rows)
        if self._hook is not None:
            guarded(self._hook, "after_commit", events_of(self.rows))

    def _claimed(self, rows: Sequence[NewEvent]) -> list[Claimed]:
        """Those that were born leased."""
        return [
            Claimed(row.event, Lease(_key_of(row), row.owner, 1, self.deadline), 0, None)
            for row in rows
            if row.owner is not None
        ]

    def cancel(self, rows: Sequence[NewEvent]) -> None:
        """Give back the slots of rows that will not be committed, or not leased."""
        count = sum(row.owner is not None for row in rows)
        if count and self._hot_path is not None:
            self._hot_path.cancel(count)
            if gone := [self._firsts.pop(key) for row in rows if (key := _key_of(row)) in self._firsts]:
                self._hot_path.not_expected(gone)

    def _rolled_back(self, rows: Sequence[NewEvent]) -> None:
        self.cancel(rows)
        if self._hook is not None:
            guarded(self._hook, "after_rollback", events_of(rows))


def _key_of(row: NewEvent) -> RowKey:
    return RowKey(row.event.event_id, row.handler_id)


def _is_first(row: NewEvent) -> bool:
    return row.owner is not None and row.event.key is not None


def events_of(rows: Sequence[NewEvent]) -> list[EventEnvelope]:
    """The events of rows, each once."""
    return list({row.event.event_id: row.event for row in rows}.values())


def tell_written(meter: Meter, rows: Sequence[NewEvent]) -> None:
    """Events by their types, each once, however many handlers have a row of it."""
    for event_type, count in Counter(event.event_type for event in events_of(rows)).items():
        meter.tell("written", event_type, count)


def guarded(hook: WriterHook, phase: str, events: Sequence[EventEnvelope], *more: object) -> None:
    """Run a phase of the hook that must not reach the caller."""
    if not events:
        return
    work: Callable[..., object] | None = getattr(hook, phase, None)  # one that derives from nothing has what it needs
    if work is None:
        return
    try:
        # A list of its own: what a hook does to it is not done to the batch.
        refuse_async(phase, work(list(events), *more))
    except Exception as error:
        log.error("%s of the writer hook failed and is ignored: %s", phase, error_text(error), error=error)


def refuse_async(phase: str, returned: object) -> None:
    if isawaitable(returned):
        if iscoroutine(returned):
            returned.close()
        raise InvalidOption(
            f"{phase} of the writer hook is async, so nothing of it has run", fix="write it as plain def"
        )
