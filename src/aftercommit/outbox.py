"""The outbox for threads and blocking drivers."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Coroutine, Iterable
from enum import Enum
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, cast, overload

from aftercommit.events.annotations import EventObject
from aftercommit.events.claims import QueryResult
from aftercommit.events.durations import Duration, seconds_of
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.findings import Finding
from aftercommit.events.ids import EventId, EventIds
from aftercommit.events.order import Cluster
from aftercommit.health import Health
from aftercommit.pausing import BlockingPausing
from aftercommit.polling.pending import PendingEvents
from aftercommit.polling.records import OutboxRecords
from aftercommit.polling.upkeep import DeadEvents
from aftercommit.ports import Colour, Runtime, SchemaStatus, TxContext
from aftercommit.runtime.threads import ThreadRuntime, run
from aftercommit.transactions.at_once import at_once
from aftercommit.transactions.by_hand import ByHand
from aftercommit.transactions.joined import DbapiTransaction, UnitOfWork
from aftercommit.transactions.owned import OwnedTransaction, has_any, innermost
from aftercommit.writing.compose import MISSING, WriteOptions
from aftercommit.writing.writer import refuse_without_transaction

if TYPE_CHECKING:
    from aftercommit.engine import Engine, Stats
    from aftercommit.polling.manual import DrainResult

T = TypeVar("T")
P = ParamSpec("P")
Inner = TypeVar("Inner")


class Outbox(BlockingPausing):
    """A transactional outbox for threads and blocking drivers.

    >>> outbox = Outbox("sqlite://")
    >>> _ = outbox.register("OrderPlaced", lambda event: print(event.payload_json))
    >>> with outbox, outbox.transaction():
    ...     event_id = outbox.write("OrderPlaced", {"order": 7})
    {"order":7}
    """

    _colour = Colour.BLOCKING

    @overload
    def write(self, event: EventEnvelope, *, tx: Any = None) -> str | None: ...
    @overload
    def write(
        self, event: str | Enum, payload: object, *, tx: Any = None, **options: Unpack[WriteOptions]
    ) -> str | None: ...
    @overload
    def write(self, event: EventObject, *, tx: Any = None, **options: Unpack[WriteOptions]) -> str | None: ...
    def write(
        self, event: object, payload: Any = MISSING, *, tx: Any = None, **options: Unpack[WriteOptions]
    ) -> str | None:
        """Write an event in the caller's transaction: an envelope, a type and a payload, or an object.

        Returns the event id; None when a hook suppressed it, or its unique_key is taken. All is checked before that. By
        name: key, aggregate_type, aggregate_id, tenant_id, headers, context, available_at, deliver_after, unique_key.
        """
        ids = self._write([self._composer.compose(event, payload, **options)], tx)
        return ids[0] if ids else None

    def write_all(self, events: Iterable[object], *, tx: Any = None) -> list[str]:
        """Write many at once; the ids of what was written, in order. All are checked before the first is written."""
        return self._write(self._composer.compose_all(events), tx)

    def _write(self, envelopes: list[EventEnvelope], tx: Any) -> list[str]:
        if not self._needs_transaction and tx is None and not has_any(self):
            if self.config.writer_hook is None:
                engine = self._engine or self._current()
                return run(at_once(self._store, engine.runtime, partial(engine.writer.write_all, envelopes)))
            with self.transaction():  # which what the hook writes is part of
                return self._write(envelopes, tx)
        context: TxContext | None = innermost(self) if tx is None else None  # as nearly always
        if context is None:
            context = self._context(tx)
        if not isinstance(context, OwnedTransaction):
            self._make_ready(context)
            if isinstance(context, UnitOfWork):
                return EventIds(map(EventId, self._current().writer.join(envelopes, context)))
        return run((self._engine or self._current()).writer.write_all(envelopes, context))

    def publish(self, event: object, *, tx: Any = None) -> str | None:
        """Pass an object to its subscribers; one of a class with @outbox_event is written to the outbox first.

        Returns the event id, None when nothing was written. What a subscriber raises is raised here.
        """

        async def write() -> str | None:
            ids = self._write([self._composer.compose(event)], tx)
            return ids[0] if ids else None

        return run(self._bus.publish(event, write))

    def _make_ready(self, context: TxContext) -> None:
        if isinstance(context, DbapiTransaction):
            if not self._store.is_ready:
                refuse_without_transaction(context, self._store)
                if not context.is_begun():
                    run(self._store.open())  # nothing is locked yet, so the table can still be made
            run(self._store.refuse_foreign(context.current_connection(), context.tx))
        elif isinstance(context, UnitOfWork) and not self._store.is_ready and context.may_open_store():
            run(self._store.open())

    def transaction(self, *, isolation: str | None = None) -> Transaction:
        """A block that commits at its end and rolls back on an error; nested it is a savepoint.

        In the isolation level of the connection, or in this one: "SERIALIZABLE", "repeatable read" …
        """
        return Transaction(self, self._store, (self._engine or self._current()).runtime, isolation=isolation)

    def begin(self, *, isolation: str | None = None) -> Transaction:
        """A transaction steered by hand. A `with` block around it rolls back unless commit() was called."""
        begun = Transaction(self, self._store, self._current().runtime, isolation=isolation, commits_on_exit=False)
        return cast("Transaction", ByHand(begun.begin()))

    def create_schema(self) -> None:
        """Create or upgrade the tables now."""
        run(self._store.create_schema())

    def schema_status(self) -> SchemaStatus:
        """What is there of the tables, and whether this release works with it. Changes nothing."""
        return run(self._store.schema_status())

    # ------------------------------------------------------------ life

    def start(self) -> Self:
        """Start delivering in the background. Again is fine; after close() it starts anew."""
        with self._life:
            if self.is_started:
                return self
            engine = self._engine = self._new_engine()
            engine.is_started = True
            self._resumes = False
        atexit.register(self._close_at_exit)
        run(self._begin(engine))
        return self

    def close(self) -> None:
        """Stop delivering, within drain_timeout, and give up connections. Again is fine.

        The end of the process does it as well, unless a signal kills it.
        """
        self._resumes = False
        run(self._close(self._engine))
        atexit.unregister(self._close_at_exit)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()

    # ------------------------------------------------------------ by hand

    def poll(self) -> int:
        """One poll cycle; how many events it claimed. Not started, they are delivered in this thread."""
        self._needs_delivery("poll")
        engine = self._current()
        return run(engine.manual.poll(is_started=engine.is_started))

    def drain(self, timeout: Duration | None = None) -> DrainResult:
        """Deliver until nothing is due."""
        self._needs_delivery("drain")
        limit, engine = None if timeout is None else seconds_of(timeout, name="timeout"), self._current()
        return run(engine.manual.drain(limit, is_started=engine.is_started))

    @property
    def dead(self) -> DeadLetters:
        """The dead events: query, count, replay, discard."""
        return DeadLetters(self._dead())

    @property
    def records(self) -> EventRecords:
        """The rows, by id and by status; and in numbers, for monitoring: by status, type and partition."""
        return EventRecords(self._records())

    @property
    def pending(self) -> PendingLetters:
        """The events that are not delivered yet: query, count."""
        return PendingLetters(self._pending())

    def cancel(self, event_id: str, *, handler_id: str | None = None) -> bool:
        """End an event that is not delivered yet, as DONE with the error "cancelled". False when it has ended, and when
        it is being delivered or about to be: a process holds it."""
        return run(self._cancel(event_id, handler_id))

    def replay_done(self, event_id: str, *, handler_id: str | None = None) -> bool:
        """Deliver an event again that is DONE, with all its attempts. False when it is not, or was deleted."""
        return run(self._replay_done(event_id, handler_id))

    def purge(self, older_than: Duration | None = None, *, dead: bool | None = None) -> int:
        """Delete rows that ended longer ago than that; by default purge_retention. Dead ones only when asked to."""
        return run(self._purge(older_than, dead))

    def check_health(self, *, max_backlog_age: Duration | None = None, timeout: Duration = "1s") -> Health:
        """As health(), and the store is asked whether it answers within `timeout`; never waits longer than that.

        With `max_backlog_age` the outbox is ready only while no event has been due for longer than that.
        """
        return run(self._check_health(max_backlog_age, timeout))

    def stats(self, *, timeout: Duration | None = None) -> Stats:
        """What waits in the table and in memory, and what was counted since start.

        With a `timeout` it raises StoreUnavailable when the store has not answered by then.
        """
        limit = None if timeout is None else seconds_of(timeout, name="timeout")
        return run(self._current().stats(limit))

    def diagnose(self) -> list[Finding]:
        """What hurts, or will: the schema, the database's settings, leases, rows without a handler, and how to mend
        it. Changes nothing, and raises nothing when the database is away: that is a finding, too."""
        return run(self._examination().findings())

    def cluster(self) -> Cluster:
        """The fleet: its instances, who owns which partition, how far each is behind. Only ordered outboxes join it."""
        return run(self._current().cluster())

    # ------------------------------------------------------------ inside

    def _close_at_exit(self) -> None:
        """A child that never used what its parent had started has nothing to close."""
        if self.is_started or self._ending:
            self.close()

    def _runtime(self) -> Runtime:
        if self._engine is not None:
            return self._engine.runtime
        return ThreadRuntime()

    def _current(self) -> Engine:
        engine = super()._current()
        if self._resumes:  # forked from a process in which it was started
            self._resumes = False
            run(self._begin(engine))
        return engine


class Transaction(OwnedTransaction):
    """`with outbox.transaction() as tx:` commits at the end of the block and rolls back on an error."""

    def begin(self) -> Self:
        run(self._begin())
        return self

    def execute(self, sql: str, parameters: Any = ()) -> QueryResult:
        """Run a statement of your own in this transaction."""
        return run(self._query(sql, parameters))

    def commit(self) -> None:
        run(self._commit())

    def rollback(self) -> None:
        run(self._rollback())

    def __enter__(self) -> Self:
        if self._root is None:
            run(self._begin())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        run(self._leave(error))


class _Blocking(Generic[Inner]):
    """What another object does, to its end."""

    def __init__(self, inner: Inner) -> None:
        self._inner = inner


def _blocking(
    method: Callable[Concatenate[Inner, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Blocking[Inner], P], T]:
    @wraps(method)
    def call(self: _Blocking[Inner], /, *arguments: P.args, **keywords: P.kwargs) -> T:
        return run(method(self._inner, *arguments, **keywords))

    return call


class DeadLetters(_Blocking[DeadEvents]):
    """`outbox.dead` for threads."""

    query = _blocking(DeadEvents.query)
    count = _blocking(DeadEvents.count)
    replay = _blocking(DeadEvents.replay)
    replay_all = _blocking(DeadEvents.replay_all)
    discard = _blocking(DeadEvents.discard)


class PendingLetters(_Blocking[PendingEvents]):
    """`outbox.pending` for threads."""

    query = _blocking(PendingEvents.query)
    count = _blocking(PendingEvents.count)


class EventRecords(_Blocking[OutboxRecords]):
    """`outbox.records` for threads."""

    find = _blocking(OutboxRecords.find)
    failures = _blocking(OutboxRecords.failures)
    query = _blocking(OutboxRecords.query)
    summary = _blocking(OutboxRecords.summary)
    count_by_status = _blocking(OutboxRecords.count_by_status)
    counts = _blocking(OutboxRecords.counts)
    partition_stats = _blocking(OutboxRecords.partition_stats)
    cluster_stats = _blocking(OutboxRecords.cluster_stats)
