"""Writes events in the caller's transaction, and hands them to the hot path once it is committed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from aftercommit.errors import NotInTransaction
from aftercommit.events.claims import PARTITION_BITS, Claimed, Lease, NewEvent, RowKey, deadline_of, hash_of
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.log import Log
from aftercommit.events.redact import error_text
from aftercommit.handlers.routing import OfKind
from aftercommit.hooks import WriterHook, at_work
from aftercommit.meter import Meter
from aftercommit.ports import EventStore, Runtime, TxContext
from aftercommit.writing.borders import HotPath, TakesRows
from aftercommit.writing.hooked import events_of, guarded, refuse_async, tell_written
from aftercommit.writing.uniques import refuse_unique, suppressed

log = Log("aftercommit.writer")

_NO_TIME: Final = timedelta(0)

#: One row, which serves all handlers.
_FOR_ALL: Final = ("",)

#: Before anybody was asked who receives an event.
_NOT_ASKED: Final[Sequence[str]] = ()


class OutboxWriter:
    """Inserts rows on the connection of the transaction that it is given. Without a hot path rows are born free."""

    def __init__(
        self,
        runtime: Runtime,
        store: EventStore,
        meter: Meter,
        *,
        hook: WriterHook | None = None,
        hot_path: HotPath | None = None,
        rows_of: Callable[[EventEnvelope], Sequence[str]] = lambda _: _FOR_ALL,
    ) -> None:
        """`rows_of` says for which handlers an event gets rows of their own. `[""]` is one row for all; so is `[]`,
        when nobody in this process receives the event. `OfKind` is the answer for all events of the same type."""
        self._runtime = runtime
        self._store = store
        self._meter = meter
        self._hook = at_work(hook)
        self._hot_path = hot_path
        #: Seconds for which a lease of this process may be used.
        self._usable = 0.0 if hot_path is None else deadline_of(0.0, hot_path.lock_timeout)
        self._rows_of = rows_of

    async def write(self, event: EventEnvelope, context: TxContext) -> str | None:
        """The event's id; None when a hook suppressed it."""
        ids = await self.write_all([event], context)
        return ids[0] if ids else None

    async def write_all(self, events: Sequence[EventEnvelope], context: TxContext) -> list[str]:
        """The ids of what was written, in order. The caller's transaction is touched only by the INSERT."""
        if not context.is_transaction_active():
            refuse_without_transaction(context, self._store)
        batch = events if self._hook is None else self._before(events)
        if batch:
            written = self._written(batch, context)
            try:
                if written.has_unique:
                    free, refused = await self._store.insert_unique(context.tx, written.rows)
                else:
                    free, refused = await self._store.insert(context.tx, written.rows), ()
            except Exception as error:
                written.cancel(written.rows)
                self._failed(batch, error)
                raise
            except BaseException as error:
                await self._runtime.shielded(self._find_out(written, context))
                self._failed(batch, error)
                raise
            if refused or free is not None:
                batch = self._parted(batch, written, refused, free)
            self._follow(batch, written, context)
        return [batch[0].event_id] if len(batch) == 1 else [event.event_id for event in batch]

    def join(self, events: Sequence[EventEnvelope], context: TakesRows) -> list[str]:
        """Like `write_all`, on a transaction that takes the rows. Awaits nothing."""
        refuse_without_transaction(context, self._store)
        batch = events if self._hook is None else self._before(events)
        if batch:
            written = self._written(batch, context, with_firsts=False)
            try:
                refused = (context.add_unique if written.has_unique else context.add)(written.rows)
            except BaseException as error:
                written.cancel(written.rows)
                self._failed(batch, error)
                raise
            if refused:
                batch = self._parted(batch, written, refused)
            self._follow(batch, written, context)
        return [event.event_id for event in batch]

    def _parted(
        self,
        batch: Sequence[EventEnvelope],
        written: Written,
        refused: Collection[RowKey],
        free: Collection[RowKey] | None = None,
    ) -> Sequence[EventEnvelope]:
        """The events that are in the transaction now, but for those that were refused. Some rows may be free although
        they were to be leased."""
        if refused:
            written.cancel(written.lose(refused))
            batch = suppressed(batch, refused, self._meter)
        if free is not None:
            written.leased_but(free)
        return batch

    def _before(self, events: Sequence[EventEnvelope]) -> list[EventEnvelope]:
        if self._hook is None or not events:
            return list(events)
        changed = self._hook.before_write(list(events))
        refuse_async("before_write", changed)
        return list(changed or ())

    def _failed(self, events: Sequence[EventEnvelope], error: BaseException) -> None:
        if self._hook is not None:
            guarded(self._hook, "write_failed", events, error)

    def _written(self, events: Sequence[EventEnvelope], context: TxContext, *, with_firsts: bool = True) -> Written:
        """The rows to write: one for each event, or for each of its handlers. What has a hot slot is born leased; an
        event that has to be the first of its key for that, only if the store finds that it is."""
        everybody, has_unique, receivers = list[Sequence[str]](), False, _NOT_ASKED
        event_type = aggregate_type = ""
        for event in events:
            if event.unique_key is not None:
                has_unique = True
                refuse_unique(event, self._store)
            elif (
                type(receivers) is OfKind and event.event_type is event_type and event.aggregate_type is aggregate_type
            ):  # asked once for many of a kind
                everybody.append(receivers)
                continue
            event_type, aggregate_type = event.event_type, event.aggregate_type
            try:
                receivers = self._rows_of(event)
            except Exception as error:
                # A predicate or registry of the user's has failed. It is asked again when the row is delivered.
                receivers = ()
                if self._meter.may_say("rows_of"):
                    log.warning("who receives %r is left to its delivery: %s", event, error_text(error), error=error)
            if receivers and event.unique_key is not None:
                receivers = _FOR_ALL  # it is not done before all of them are, which an index can tell of one row only
            everybody.append(receivers)
        path, deadline, owner, lock_timeout = self._hot_path, 0.0, None, _NO_TIME
        slots: Iterator[bool] = iter(())
        if path is not None and path.is_active and context.observes_commit:
            received = [event for event, receivers in zip(events, everybody, strict=True) for _ in receivers]
            slots = iter(path.reserve(received, with_firsts=with_firsts))
            owner, lock_timeout, deadline = path.owner, path.lock_timeout, self._runtime.clock() + self._usable
        rows = []
        for event, receivers in zip(events, everybody, strict=True):
            # Not partition_of(), which would be a call for each event.
            partition = hash_of(event.event_id if event.key is None else event.key) & PARTITION_BITS
            for handler_id in receivers or _FOR_ALL:
                is_hot = len(receivers) > 0 and next(slots, False)
                rows.append(NewEvent(event, partition, owner if is_hot else None, lock_timeout, handler_id))
        return Written(rows, deadline, path, self._hook, has_unique, self._meter if self._meter.exports else None)

    def _follow(self, batch: Sequence[EventEnvelope], written: Written, context: TxContext) -> None:
        """Let the batch hear of the end of its transaction, when anybody would listen. The hook hears of the write."""
        path, hook = self._hot_path, self._hook
        is_active = path is not None and path.is_active
        if context.observes_commit:
            if is_active or hook is not None or self._meter.exports:
                context.wrote(written)
        else:
            if path is not None and is_active:
                path.unseen(events_of(written.rows))
            if self._meter.exports:
                tell_written(self._meter, written.rows)
        if hook is not None:
            guarded(hook, "after_write", batch)

    async def _find_out(self, written: Written, context: TxContext) -> None:
        """Cancelled in the INSERT, which may yet have happened: what is there shares the transaction's fate."""
        try:
            there = await self._store.surviving(context.tx, written.keys)
        except Exception:
            there = ()  # the transaction is broken or gone, and the rows with it
        written.cancel(written.lose([key for key in written.keys if key not in there]))
        if self._store.capabilities.leases_firsts:
            written.doubt()
        if written.rows:
            self._follow((), written, context)  # nobody is told that it was written: the caller hears of an error


class Written(msgspec.Struct, eq=False):
    """The rows of one write, from their INSERT to the end of their transaction."""

    rows: list[NewEvent]
    #: Of the leases: counted from before the INSERT was sent.
    deadline: float
    _hot_path: HotPath | None
    _hook: WriterHook | None
    #: Whether some of the events have a unique key.
    has_unique: bool = False
    #: Counts what is committed; None where nobody wants to know.
    _meter: Meter | None = None
    #: Rows that were born leased as the first of their keys, and those of which nobody knows whether they were.
    _firsts: dict[RowKey, EventEnvelope] = msgspec.field(default_factory=dict)
    _doubtful: list[NewEvent] = msgspec.field(default_factory=list)

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


def refuse_without_transaction(context: TxContext, store: EventStore) -> None:
    """Before anything is touched: an event outside a transaction could be saved although the change fails."""
    if not context.is_transaction_active():
        raise NotInTransaction(
            f"write() was called with no transaction open on {context.current_connection()!r} (autocommit mode, it "
            "has failed or was ended, or another thread or task has it), so the event would be saved even if your own "
            "change fails",
            fix=f'conn.execute("BEGIN") before, or {store.colour.block} outbox.transaction() as tx: …',
        )
