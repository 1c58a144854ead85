"""The outbox for asyncio: the same methods, awaited."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Iterable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, Unpack, cast, overload

from aftercommit.errors import OutboxError
from aftercommit.events.annotations import EventObject
from aftercommit.events.claims import QueryResult
from aftercommit.events.durations import Duration, seconds_of
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.findings import Finding
from aftercommit.events.ids import EventId, EventIds
from aftercommit.events.order import Cluster
from aftercommit.health import Health
from aftercommit.pausing import AsyncPausing
from aftercommit.polling.pending import PendingEvents
from aftercommit.polling.records import OutboxRecords
from aftercommit.polling.upkeep import DeadEvents
from aftercommit.ports import Colour, Runtime, SchemaStatus, TxContext
from aftercommit.runtime.aio import AsyncioRuntime
from aftercommit.transactions.at_once import at_once
from aftercommit.transactions.by_hand import ByHand
from aftercommit.transactions.joined import DbapiTransaction, UnitOfWork
from aftercommit.transactions.owned import OwnedTransaction, has_any
from aftercommit.transactions.pending import PendingWrite, suppressed
from aftercommit.writing.compose import MISSING, WriteOptions
from aftercommit.writing.writer import refuse_without_transaction

if TYPE_CHECKING:
    from aftercommit.engine import Engine, Stats
    from aftercommit.polling.manual import DrainResult

T = TypeVar("T")

#: Awaited for the event's id. A coroutine to type checkers, so that they find a forgotten await. On a SQLAlchemy
#: session it is the id itself, an EventId, and nothing is lost by a forgotten one.
Writing: TypeAlias = Coroutine[Any, Any, str | None]


class AsyncOutbox(AsyncPausing):
    """A transactional outbox for asyncio.

    `write()` checks everything at once and returns an awaitable; forgetting the `await` rolls the block back.
    """

    _colour = Colour.ASYNC

    @overload
    def write(self, event: EventEnvelope, *, tx: Any = None) -> Writing: ...
    @overload
    def write(
        self, event: str | Enum, payload: object, *, tx: Any = None, **options: Unpack[WriteOptions]
    ) -> Writing: ...
    @overload
    def write(self, event: EventObject, *, tx: Any = None, **options: Unpack[WriteOptions]) -> Writing: ...
    def write(
        self, event: object, payload: Any = MISSING, *, tx: Any = None, **options: Unpack[WriteOptions]
    ) -> Writing:
        """Write an event in the caller's transaction: an envelope, a type and a payload, or an object.

        Gives the event id; None when a hook suppressed it, or its unique_key is taken. All is checked before that. By
        name: key, aggregate_type, aggregate_id, tenant_id, headers, context, available_at, deliver_after, unique_key.
        """
        envelope = self._composer.compose(event, payload, **options)
        if not self._needs_transaction and tx is None and not has_any(self):
            return PendingWrite(envelope.event_type, lambda: self._write_at_once(envelope))
        context = self._context(tx)
        if not isinstance(context, OwnedTransaction) and isinstance(context, UnitOfWork) and context.takes([envelope]):
            ids = self._join([envelope], context)
            return cast("Writing", EventId(ids[0])) if ids else suppressed(envelope.event_type)
        refuse_without_transaction(context, self._store)
        return self._tracked(PendingWrite(envelope.event_type, lambda: self._write(envelope, context)), context)

    async def _write(self, envelope: EventEnvelope, context: TxContext) -> str | None:
        ids = await self._write_all([envelope], context)
        return ids[0] if ids else None

    async def _write_at_once(self, envelope: EventEnvelope) -> str | None:
        ids = await self._write_all_at_once([envelope])
        return ids[0] if ids else None

    async def _write_all_at_once(self, envelopes: list[EventEnvelope]) -> list[str]:
        """In a transaction of its own."""
        if self.config.writer_hook is None:
            engine = self._current()
            return await at_once(self._store, engine.runtime, partial(engine.writer.write_all, envelopes))
        async with self.transaction() as transaction:  # which what the hook writes is part of
            return await self._write_all(envelopes, transaction)

    def write_all(self, events: Iterable[object], *, tx: Any = None) -> Coroutine[Any, Any, list[str]]:
        """Write many at once; the ids of what was written, in order. All are checked before the first is written."""
        envelopes = self._composer.compose_all(events)
        if not self._needs_transaction and tx is None and not has_any(self):
            return PendingWrite(f"{len(envelopes)} events", lambda: self._write_all_at_once(envelopes))
        context = self._context(tx)
        if isinstance(context, UnitOfWork) and context.takes(envelopes):
            return cast("Coroutine[Any, Any, list[str]]", EventIds(self._join(envelopes, context)))
        refuse_without_transaction(context, self._store)
        pending = PendingWrite(f"{len(envelopes)} events", lambda: self._write_all(envelopes, context))
        return self._tracked(pending, context)

    def publish(self, event: object, *, tx: Any = None) -> Writing:
        """Pass an object to its subscribers; one of a class with @outbox_event is written to the outbox first.

        Gives the event id, None when nothing was written. What a subscriber raises is raised here.
        """
        name = type(event).__name__
        if not self._bus.writes(event):
            return PendingWrite(name, lambda: self._bus.publish(event, _nothing))
        if not self._needs_transaction and tx is None and not has_any(self):
            fresh = self._composer.compose(event)
            return PendingWrite(name, lambda: self._bus.publish(event, lambda: self._write_at_once(fresh)))
        context = self._context(tx)
        envelope = self._composer.compose(event)
        refuse_without_transaction(context, self._store)
        work = partial(self._bus.publish, event, lambda: self._write(envelope, context))
        return self._tracked(PendingWrite(name, work), context)

    def _tracked(self, pending: PendingWrite[T], context: TxContext) -> PendingWrite[T]:
        if isinstance(context, (OwnedTransaction, UnitOfWork)):
            context.track(pending)
        return pending

    async def _write_all(self, envelopes: list[EventEnvelope], context: TxContext) -> list[str]:
        if isinstance(context, OwnedTransaction):  # which was begun on this loop
            return await (self._engine or self._current()).writer.write_all(envelopes, context)
        await self._make_ready(context)
        if isinstance(context, UnitOfWork):
            unit = context
            return await unit.awaiting(lambda: self._join(envelopes, unit))
        return await self._current().writer.write_all(envelopes, context)

    def _join(self, envelopes: list[EventEnvelope], unit: UnitOfWork) -> list[str]:
        return self._current().writer.join(envelopes, unit)

    async def _make_ready(self, context: TxContext) -> None:
        if isinstance(context, DbapiTransaction):
            if not self._store.is_ready and not context.is_begun():
                await self._store.open()  # nothing is locked yet, so the table can still be made
            await self._store.refuse_foreign(context.current_connection(), context.tx)
        elif isinstance(context, UnitOfWork) and not self._store.is_ready and context.may_open_store():
            await self._store.open()

    def transaction(self, *, isolation: str | None = None) -> AsyncTransaction:
        """A block that commits at its end and rolls back on an error; nested it is a savepoint.

        In the isolation level of the connection, or in this one: "SERIALIZABLE", "repeatable read" …
        """
        return AsyncTransaction(self, self._store, self._current().runtime, isolation=isolation)

    async def begin(self, *, isolation: str | None = None) -> AsyncTransaction:
        """A transaction steered by hand. A `with` block around it rolls back unless commit() was called."""
        begun = AsyncTransaction(self, self._store, self._current().runtime, isolation=isolation, commits_on_exit=False)
        return cast("AsyncTransaction", ByHand(await begun.begin()))

    async def create_schema(self) -> None:
        """Create or upgrade the tables now."""
        await self._store.create_schema()

    async def schema_status(self) -> SchemaStatus:
        """What is there of the tables, and whether this release works with it. Changes nothing."""
        return await self._store.schema_status()

    # ------------------------------------------------------------ life

    async def start(self) -> Self:
        """Start delivering in the background, on the running loop. Again is fine; after close() it starts anew."""
        self._leave_other_loops()
        if not self.is_started:
            engine = self._engine = self._new_engine()
            await self._begin(engine)
        return self

    async def close(self) -> None:
        """Stop delivering, within drain_timeout, and give up connections. Again is fine.

        Cancelled, it makes haste: handlers are interrupted, and the cancellation comes when all has ended.
        """
        self._leave_other_loops()
        await self._close(self._engine)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self.close()

    # ------------------------------------------------------------ by hand

    async def poll(self) -> int:
        """One poll cycle; how many events it claimed. Not started, they are delivered in this task."""
        self._needs_delivery("poll")
        engine = self._current()
        return await engine.manual.poll(is_started=engine.is_started)

    async def drain(self, timeout: Duration | None = None) -> DrainResult:
        """Deliver until nothing is due."""
        self._needs_delivery("drain")
        limit, engine = None if timeout is None else seconds_of(timeout, name="timeout"), self._current()
        return await engine.manual.drain(limit, is_started=engine.is_started)

    @property
    def dead(self) -> DeadEvents:
        """The dead events: query, count, replay, discard."""
        return self._dead()

    @property
    def records(self) -> OutboxRecords:
        """The rows, by id and by status; and in numbers, for monitoring: by status, type and partition."""
        return self._records()

    @property
    def pending(self) -> PendingEvents:
        """The events that are not delivered yet: query, count."""
        return self._pending()

    async def cancel(self, event_id: str, *, handler_id: str | None = None) -> bool:
        """End an event that is not delivered yet, as DONE with the error "cancelled". False when it has ended, and when
        it is being delivered or about to be: a process holds it."""
        return await self._cancel(event_id, handler_id)

    async def replay_done(self, event_id: str, *, handler_id: str | None = None) -> bool:
        """Deliver an event again that is DONE, with all its attempts. False when it is not, or was deleted."""
        return await self._replay_done(event_id, handler_id)

    async def purge(self, older_than: Duration | None = None, *, dead: bool | None = None) -> int:
        """Delete rows that ended longer ago than that; by default purge_retention. Dead ones only when asked to."""
        return await self._purge(older_than, dead)

    async def check_health(self, *, max_backlog_age: Duration | None = None, timeout: Duration = "1s") -> Health:
        """As health(), and the store is asked whether it answers within `timeout`; never waits longer than that.

        With `max_backlog_age` the outbox is ready only while no event has been due for longer than that.
        """
        return await self._check_health(max_backlog_age, timeout)

    async def stats(self, *, timeout: Duration | None = None) -> Stats:
        """What waits in the table and in memory, and what was counted since start.

        With a `timeout` it raises StoreUnavailable when the store has not answered by then.
        """
        limit = None if timeout is None else seconds_of(timeout, name="timeout")
        return await self._current().stats(limit)

    async def diagnose(self) -> list[Finding]:
        """What hurts, or will: the schema, the database's settings, leases, rows without a handler, and how to mend
        it. Changes nothing, and raises nothing when the database is away: that is a finding, too."""
        return await self._examination().findings()

    async def cluster(self) -> Cluster:
        """The fleet: its instances, who owns which partition, how far each is behind. Only ordered outboxes join it."""
        return await self._current().cluster()

    # ------------------------------------------------------------ inside

    def _runtime(self) -> Runtime:
        if self._engine is not None:
            return self._engine.runtime
        return AsyncioRuntime(self.config.worker_count)

    def _current(self) -> Engine:
        engine = self._engine
        if engine is not None and engine.runtime.is_here():
            return engine
        self._leave_other_loops()
        return super()._current()

    def _leave_other_loops(self) -> None:
        """Not started, or when its loop is gone, an outbox may be used on one loop after another."""
        engine = self._engine
        if engine is None or engine.runtime.is_here():
            return
        if engine.is_started and not engine.runtime.is_gone():
            raise OutboxError(
                "this AsyncOutbox was started on another event loop",
                fix="close() it there, or make one outbox per loop",
            )
        self._engine = None


async def _nothing() -> None:
    """The write of an object whose class is not marked."""


class AsyncTransaction(OwnedTransaction):
    """`async with outbox.transaction() as tx:` commits at the end of the block and rolls back on an error."""

    async def begin(self) -> Self:
        await self._begin()
        return self

    def execute(self, sql: str, parameters: Any = ()) -> Awaitable[QueryResult]:
        """Run a statement of your own in this transaction."""
        return self._query(sql, parameters)

    async def commit(self) -> None:
        await self._shielded(self._commit())

    async def rollback(self) -> None:
        await self._shielded(self._rollback())

    async def __aenter__(self) -> Self:
        if self._root is None:
            await self._begin()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._shielded(self._leave(error))

    async def _shielded(self, work: Coroutine[Any, Any, None]) -> None:
        """To the end even when the task is cancelled: those who wait for a commit have to hear of it."""
        try:
            await self._runtime.shielded(work)
        finally:
            if self._ended is not None:
                self._leave_context()  # the shielded part ran in a context of its own
