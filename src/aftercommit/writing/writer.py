"""Writes events in the caller's transaction, and hands them to the hot path once it is committed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from typing import Final

from aftercommit.errors import NotInTransaction, UniqueKeyUnsupported
from aftercommit.events.claims import NewEvent, RowKey, deadline_of, partition_of
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.log import Log
from aftercommit.events.redact import error_text
from aftercommit.hooks import WriterHook, at_work
from aftercommit.meter import Meter
from aftercommit.ports import EventStore, Runtime, TxContext
from aftercommit.writing.borders import HotPath, TakesRows
from aftercommit.writing.written import Written, events_of, guarded, refuse_async, tell_written

log = Log("aftercommit.writer")

_NO_TIME: Final = timedelta(0)

#: One row, which serves all handlers.
_FOR_ALL: Final = ("",)

_NONE: Final[Collection[RowKey]] = ()


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
        when nobody in this process receives the event."""
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
        refuse_without_transaction(context, self._store)
        batch = events if self._hook is None else self._before(events)
        if batch:
            written, refused = self._written(batch, context), _NONE
            try:
                if not written.has_unique:
                    free = await self._store.insert(context.tx, written.rows)
                else:
                    free, refused = await self._store.insert_unique(context.tx, written.rows)
            except Exception as error:
                written.cancel(written.rows)
                self._failed(batch, error)
                raise
            except BaseException as error:
                await self._runtime.shielded(self._find_out(written, context))
                self._failed(batch, error)
                raise
            if refused:
                batch = self._suppressed(batch, written, refused)
            if free is not None:
                written.leased_but(free)
            self._follow(written, context)
            if self._hook is not None:
                guarded(self._hook, "after_write", batch)
        return [event.event_id for event in batch]

    def _suppressed(
        self, batch: Sequence[EventEnvelope], written: Written, refused: Collection[RowKey]
    ) -> list[EventEnvelope]:
        """What was written, when some events were not, because others with their unique keys are not done."""
        written.cancel(written.lose(refused))
        self._meter.count("write_duplicates", len(refused))
        gone = {key.event_id for key in refused}
        for event in batch:
            if event.event_id in gone:
                log.debug("%r is not written: an event with its unique key %r is not done", event, event.unique_key)
        return [event for event in batch if event.event_id not in gone]

    def join(self, events: Sequence[EventEnvelope], context: TakesRows) -> list[str]:
        """Like `write_all`, on a transaction that takes the rows. Awaits nothing."""
        refuse_without_transaction(context, self._store)
        batch = events if self._hook is None else self._before(events)
        if batch:
            written = self._written(batch, context, with_firsts=False)
            try:
                context.add(written.rows)
            except BaseException as error:
                written.cancel(written.rows)
                self._failed(batch, error)
                raise
            self._follow(written, context)
            if self._hook is not None:
                guarded(self._hook, "after_write", batch)
        return [event.event_id for event in batch]

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
        wanted, has_unique = [], False
        for event in events:
            if event.unique_key is not None:
                has_unique = True
                self._refuse_unique(event, is_joined=not with_firsts)
            try:
                receivers = self._rows_of(event)
            except Exception as error:
                # A predicate or registry of the user's has failed. It is asked again when the row is delivered.
                receivers = ()
                if self._meter.may_say("rows_of"):
                    log.warning("who receives %r is left to its delivery: %s", event, error_text(error), error=error)
            if event.unique_key is not None and receivers:
                # Not done before all its handlers are: they share one row, so that an index can tell.
                receivers = _FOR_ALL
            wanted.append((event, receivers, partition_of(event.event_id if event.key is None else event.key)))
        path, deadline, owner, lock_timeout = self._hot_path, 0.0, None, _NO_TIME
        slots: Iterator[bool] = iter(())
        if path is not None and path.is_active and context.observes_commit:
            received = [event for event, receivers, _ in wanted for _ in receivers]
            slots = iter(path.reserve(received, with_firsts=with_firsts))
            owner, lock_timeout, deadline = path.owner, path.lock_timeout, self._runtime.clock() + self._usable
        rows = []
        for event, receivers, partition in wanted:
            for handler_id in receivers or _FOR_ALL:
                is_hot = len(receivers) > 0 and next(slots, False)
                rows.append(NewEvent(event, partition, owner if is_hot else None, lock_timeout, handler_id))
        meter = self._meter if self._meter.exports else None
        return Written(rows, deadline, path, self._hook, meter, has_unique=has_unique)

    def _refuse_unique(self, event: EventEnvelope, *, is_joined: bool) -> None:
        if not self._store.capabilities.unique_keys:
            raise UniqueKeyUnsupported(
                f"{event.event_type} has the unique_key {event.unique_key!r}, and {self._store.where} keeps none",
                fix="leave it out, and let the handler pass over what it has done before",
            )
        if is_joined:
            raise UniqueKeyUnsupported(
                f"{event.event_type} has the unique_key {event.unique_key!r}, and what SQLAlchemy inserts cannot be "
                "left out when another event has it",
                fix="write it with outbox.transaction(), or with tx=… on the driver's connection",
            )

    def _follow(self, written: Written, context: TxContext) -> None:
        """Let the batch hear of the end of its transaction, when anybody would listen."""
        is_active = self._hot_path is not None and self._hot_path.is_active
        if context.observes_commit:
            if is_active or self._hook is not None or self._meter.exports:
                context.wrote(written)
            return
        if is_active and self._hot_path is not None:
            self._hot_path.unseen(events_of(written.rows))
        if self._meter.exports:
            tell_written(self._meter, written.rows)

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
            self._follow(written, context)


def refuse_without_transaction(context: TxContext, store: EventStore) -> None:
    """Before anything is touched: an event outside a transaction could be saved although the change fails."""
    if not context.is_transaction_active():
        raise NotInTransaction(
            f"write() was called with no transaction open on {context.current_connection()!r} (autocommit mode, it "
            "has failed or was ended, or another thread or task has it), so the event would be saved even if your own "
            "change fails",
            fix=f'conn.execute("BEGIN") before, or {store.colour.block} outbox.transaction() as tx: …',
        )
