"""Writes events in the caller's transaction, and hands them to the hot path once it is committed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from inspect import isawaitable, iscoroutine
from typing import Protocol

from aftercommit.claims import Claimed, Lease, NewEvent, RowKey
from aftercommit.core.keeper import deadline_of
from aftercommit.core.meter import Meter
from aftercommit.errors import InvalidOption, NotInTransaction
from aftercommit.event import EventEnvelope
from aftercommit.hooks import WriterHook
from aftercommit.ports import EventStore, Runtime, TxContext
from aftercommit.redact import error_text
from aftercommit.rules.partitions import partition_of

log = logging.getLogger("aftercommit.writer")


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
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._meter = meter
        self._hook = hook if hook is not None and type(hook) is not WriterHook else None
        self._hot_path = hot_path

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

    def _before(self, events: list[EventEnvelope]) -> list[EventEnvelope]:
        if self._hook is None:
            return events
        changed = self._hook.before_write(events)
        _refuse_async("before_write", changed)
        return list(changed or ())

    async def _insert(self, events: list[EventEnvelope], context: TxContext) -> None:
        hot = self._reserve(events, context)
        before = self._runtime.clock()
        try:
            await self._store.insert(
                context.tx, [self._row(event, is_hot) for event, is_hot in zip(events, hot, strict=True)]
            )
        except Exception:
            self._cancel(sum(hot))
            raise
        except BaseException:
            await self._runtime.shielded(self._find_out(events, hot, before, context))
            raise
        self._follow(events, hot, before, context)
        self._guarded("after_write", events)

    def _reserve(self, events: list[EventEnvelope], context: TxContext) -> list[bool]:
        if self._hot_path is None or not self._hot_path.is_active or not context.observes_commit:
            return [False] * len(events)
        return self._hot_path.reserve(events)

    def _row(self, event: EventEnvelope, is_hot: bool) -> NewEvent:
        key = event.key
        partition = partition_of(event.event_id if key is None else key)
        if is_hot and self._hot_path is not None:
            return NewEvent(event, partition, self._hot_path.owner, self._hot_path.lock_timeout)
        return NewEvent(event, partition)

    def _follow(self, events: list[EventEnvelope], hot: list[bool], before: float, context: TxContext) -> None:
        """One pair of callbacks for the batch; none when nobody would listen."""
        path = self._hot_path if self._hot_path is not None and self._hot_path.is_active else None
        if not context.observes_commit:
            if path is not None:
                path.unseen(events)
            return
        if self._hook is None and path is None:
            return
        written = Written(self, events, hot, before)
        context.after_commit(written.committed)
        context.after_rollback(written.rolled_back)
        context.wrote([RowKey(event.event_id, "") for event in events], written.undone)

    async def _find_out(self, events: list[EventEnvelope], hot: list[bool], before: float, context: TxContext) -> None:
        """Cancelled in the INSERT, which may yet have happened: what is there shares the transaction's fate."""
        try:
            there = await self._store.surviving(context.tx, [RowKey(event.event_id, "") for event in events])
        except Exception:
            there = ()  # the transaction is broken or gone, and the rows with it
        kept = [pair for pair in zip(events, hot, strict=True) if RowKey(pair[0].event_id, "") in there]
        self._cancel(sum(hot) - sum(is_hot for _, is_hot in kept))
        if kept:
            self._follow([event for event, _ in kept], [is_hot for _, is_hot in kept], before, context)

    def committed(self, events: list[EventEnvelope], hot: list[bool], before: float) -> None:
        """Never raises: the caller's commit has happened, and the rows are in the table."""
        try:
            self._to_hot_path(events, hot, before)
        except Exception as error:
            log.error("committed events are left to the poller: %s", error_text(error))
        self._guarded("after_commit", events)

    def _to_hot_path(self, events: list[EventEnvelope], hot: list[bool], before: float) -> None:
        path = self._hot_path
        if path is None:
            return
        left = []
        for event, is_hot in zip(events, hot, strict=True):
            if is_hot:
                lease = Lease(RowKey(event.event_id, ""), path.owner, 1, deadline_of(before, path.lock_timeout))
                path.fill(Claimed(event, lease, 0, None))
            else:
                left.append(event)
        if left:
            path.left_in_table(left)

    def rolled_back(self, events: list[EventEnvelope], hot: list[bool]) -> None:
        self._cancel(sum(hot))
        self._guarded("after_rollback", events)

    def _cancel(self, count: int) -> None:
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
            "was ended, or another thread or task has it), so the event would be saved even if your own change fails",
            fix='conn.execute("BEGIN") before, or with outbox.transaction() as tx: outbox.write(event, tx=tx)',
        )


class Written:
    """A batch between its INSERT and the end of its transaction."""

    def __init__(self, writer: OutboxWriter, events: list[EventEnvelope], hot: list[bool], before: float) -> None:
        self._writer = writer
        self._events = events
        self._hot = hot
        self._before = before

    def undone(self, keys: Collection[RowKey]) -> None:
        """Some rows are gone again although their transaction goes on."""
        gone = {key.event_id for key in keys}
        lost = [(event, hot) for event, hot in zip(self._events, self._hot, strict=True) if event.event_id in gone]
        kept = [(event, hot) for event, hot in zip(self._events, self._hot, strict=True) if event.event_id not in gone]
        self._events, self._hot = [event for event, _ in kept], [hot for _, hot in kept]
        self._writer.rolled_back([event for event, _ in lost], [hot for _, hot in lost])

    def committed(self) -> None:
        self._writer.committed(self._events, self._hot, self._before)

    def rolled_back(self) -> None:
        self._writer.rolled_back(self._events, self._hot)
