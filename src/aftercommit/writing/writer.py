"""Writes events in the caller's transaction, and hands them to the hot path once it is committed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from inspect import isawaitable, iscoroutine
from typing import Final, NamedTuple, Protocol

from aftercommit.errors import InvalidOption, NotInTransaction
from aftercommit.events.claims import Claimed, Lease, NewEvent, RowKey, deadline_of
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.partitions import order_key_of
from aftercommit.events.redact import error_text
from aftercommit.hooks import WriterHook
from aftercommit.meter import Meter
from aftercommit.ports import EventStore, Runtime, TxContext

log = logging.getLogger("aftercommit.writer")


#: One row, which serves all handlers.
_FOR_ALL: Final = ("",)


class Draft(NamedTuple):
    """A row on its way into the table."""

    event: EventEnvelope
    handler_id: str
    is_hot: bool

    @property
    def key(self) -> RowKey:
        return RowKey(self.event.event_id, self.handler_id)


class HotPath(Protocol):
    """What a writer needs of the delivering side."""

    owner: str
    lock_timeout: timedelta
    #: Whether this process delivers at all now.
    is_active: bool

    def reserve(self, events: Sequence[EventEnvelope]) -> list[bool]:
        """For each event whether a hot slot waits for it."""
        ...

    def fill(self, claimed: Claimed) -> None: ...

    def cancel(self, count: int) -> None: ...

    def left_in_table(self, events: Sequence[EventEnvelope]) -> None:
        """These were committed free: somebody should look into the table."""

    def unseen(self, events: Sequence[EventEnvelope]) -> None:
        """These were written and nobody will announce their commit."""


class TakesRows(TxContext, Protocol):
    """A transaction that inserts rows by itself, by its own means and in its own time."""

    def add(self, rows: Sequence[NewEvent]) -> None: ...


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
        """`rows_of` says for which handlers an event gets rows of their own; `[""]` is one row for all."""
        self._runtime = runtime
        self._store = store
        self._meter = meter
        self._hook = hook if hook is not None and type(hook) is not WriterHook else None
        self._hot_path = hot_path
        self._rows_of = rows_of

    async def write(self, event: EventEnvelope, context: TxContext) -> str | None:
        """The event's id; None when a hook suppressed it."""
        ids = await self.write_all([event], context)
        return ids[0] if ids else None

    async def write_all(self, events: Sequence[EventEnvelope], context: TxContext) -> list[str]:
        """The ids of what was written, in order. The caller's transaction is touched only by the INSERT."""
        refuse_without_transaction(context)
        batch = self._before(list(events)) if events else []
        if batch:
            await self._insert(batch, context)
        return [event.event_id for event in batch]

    def join(self, events: Sequence[EventEnvelope], context: TakesRows) -> list[str]:
        """Like `write_all`, on a transaction that takes the rows. Awaits nothing."""
        refuse_without_transaction(context)
        batch = self._before(list(events)) if events else []
        if batch:
            drafts = self._drafts(batch, context)
            before = self._runtime.clock()
            try:
                context.add([self._row(draft) for draft in drafts])
            except BaseException:
                self._cancel(drafts)
                raise
            self._follow(drafts, before, context)
            self._guarded("after_write", batch)
        return [event.event_id for event in batch]

    def _before(self, events: list[EventEnvelope]) -> list[EventEnvelope]:
        if self._hook is None:
            return events
        changed = self._hook.before_write(events)
        _refuse_async("before_write", changed)
        return list(changed or ())

    async def _insert(self, events: list[EventEnvelope], context: TxContext) -> None:
        drafts = self._drafts(events, context)
        before = self._runtime.clock()
        try:
            await self._store.insert(context.tx, [self._row(draft) for draft in drafts])
        except Exception:
            self._cancel(drafts)
            raise
        except BaseException:
            await self._runtime.shielded(self._find_out(drafts, before, context))
            raise
        self._follow(drafts, before, context)
        self._guarded("after_write", events)

    def _drafts(self, events: list[EventEnvelope], context: TxContext) -> list[Draft]:
        """The rows to write: one for each event, or for each of its handlers, hot ones with a slot of their own."""
        rows = [(event, handler_id) for event in events for handler_id in self._handlers_of(event)]
        if self._hot_path is None or not self._hot_path.is_active or not context.observes_commit:
            return [Draft(event, handler_id, False) for event, handler_id in rows]
        hot = self._hot_path.reserve([event for event, _ in rows])
        return [Draft(event, handler_id, is_hot) for (event, handler_id), is_hot in zip(rows, hot, strict=True)]

    def _handlers_of(self, event: EventEnvelope) -> Sequence[str]:
        try:
            return self._rows_of(event)
        except Exception as error:  # a predicate or registry of the user's: asked again when the row is delivered
            if self._meter.may_say("rows_of"):
                log.warning("who receives %r is left to its delivery: %s", event, error_text(error))
            return _FOR_ALL

    def _row(self, draft: Draft) -> NewEvent:
        event, handler_id, is_hot = draft
        partition = order_key_of(event).partition
        if is_hot and self._hot_path is not None:
            return NewEvent(event, partition, self._hot_path.owner, self._hot_path.lock_timeout, handler_id)
        return NewEvent(event, partition, handler_id=handler_id)

    def _follow(self, drafts: list[Draft], before: float, context: TxContext) -> None:
        """One pair of callbacks for the batch; none when nobody would listen."""
        path = self._hot_path if self._hot_path is not None and self._hot_path.is_active else None
        if not context.observes_commit:
            if path is not None:
                path.unseen(events_of(drafts))
            return
        if self._hook is None and path is None:
            return
        written = Written(self, drafts, before)
        context.after_commit(written.committed)
        context.after_rollback(written.rolled_back)
        context.wrote([draft.key for draft in drafts], written.undone)

    async def _find_out(self, drafts: list[Draft], before: float, context: TxContext) -> None:
        """Cancelled in the INSERT, which may yet have happened: what is there shares the transaction's fate."""
        try:
            there = await self._store.surviving(context.tx, [draft.key for draft in drafts])
        except Exception:
            there = ()  # the transaction is broken or gone, and the rows with it
        self._cancel([draft for draft in drafts if draft.key not in there])
        kept = [draft for draft in drafts if draft.key in there]
        if kept:
            self._follow(kept, before, context)

    def committed(self, drafts: list[Draft], before: float) -> None:
        """Never raises: the caller's commit has happened, and the rows are in the table."""
        try:
            self._to_hot_path(drafts, before)
        except Exception as error:
            log.error("committed events are left to the poller: %s", error_text(error))
        self._guarded("after_commit", events_of(drafts))

    def _to_hot_path(self, drafts: list[Draft], before: float) -> None:
        path = self._hot_path
        if path is None:
            return
        left = []
        for draft in drafts:
            if draft.is_hot:
                lease = Lease(draft.key, path.owner, 1, deadline_of(before, path.lock_timeout))
                path.fill(Claimed(draft.event, lease, 0, None))
            else:
                left.append(draft.event)
        if left:
            path.left_in_table(left)

    def rolled_back(self, drafts: list[Draft]) -> None:
        self._cancel(drafts)
        self._guarded("after_rollback", events_of(drafts))

    def _cancel(self, drafts: list[Draft]) -> None:
        count = sum(draft.is_hot for draft in drafts)
        if count and self._hot_path is not None:
            self._hot_path.cancel(count)

    def _guarded(self, phase: str, events: list[EventEnvelope]) -> None:
        """Run a phase of the hook that must not reach the caller."""
        if self._hook is None or not events:
            return
        hook: Callable[[list[EventEnvelope]], object] = getattr(self._hook, phase)
        try:
            # A list of its own: what a hook does to it is not done to the batch.
            _refuse_async(phase, hook(list(events)))
        except Exception as error:
            log.error("%s of the writer hook failed and is ignored: %s", phase, error_text(error))


def _refuse_async(phase: str, returned: object) -> None:
    if isawaitable(returned):
        if iscoroutine(returned):
            returned.close()
        raise InvalidOption(
            f"{phase} of the writer hook is async, so nothing of it has run", fix="write it as plain def"
        )


def refuse_without_transaction(context: TxContext) -> None:
    """Before anything is touched: an event outside a transaction could be saved although the change fails."""
    if not context.is_transaction_active():
        raise NotInTransaction(
            f"write() was called with no transaction open on {context.current_connection()!r} (autocommit mode, it "
            "has failed or was ended, or another thread or task has it), so the event would be saved even if your own "
            "change fails",
            fix='conn.execute("BEGIN") before, or with outbox.transaction() as tx: outbox.write(event, tx=tx)',
        )


class Written:
    """A batch between its INSERT and the end of its transaction."""

    def __init__(self, writer: OutboxWriter, drafts: list[Draft], before: float) -> None:
        self._writer = writer
        self._drafts = drafts
        self._before = before

    def undone(self, keys: Collection[RowKey]) -> None:
        """Some rows are gone again although their transaction goes on."""
        lost = [draft for draft in self._drafts if draft.key in keys]
        self._drafts = [draft for draft in self._drafts if draft.key not in keys]
        self._writer.rolled_back(lost)

    def committed(self) -> None:
        self._writer.committed(self._drafts, self._before)

    def rolled_back(self) -> None:
        self._writer.rolled_back(self._drafts)


def events_of(drafts: Sequence[Draft]) -> list[EventEnvelope]:
    """The events of rows, each once."""
    return list({draft.event.event_id: draft.event for draft in drafts}.values())
