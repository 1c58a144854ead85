"""The writer of either colour, and the transactions that it writes in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from aftercommit.components.desk import Part, needs
from aftercommit.components.dispatching import DispatcherCommitHook, Line
from aftercommit.errors import InvalidOption, NotInTransaction, UnsupportedTransaction
from aftercommit.events.codec import Serializer
from aftercommit.events.context import ContextProvider
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.payloads import PayloadTypes
from aftercommit.hooks import AfterCommitHook, MetricsExporter, WriterHook
from aftercommit.meter import Meter
from aftercommit.ports import AdoptedTx, Callback, EventStore, Runtime, Tx, TxContext, WrittenRows
from aftercommit.transactions.owned import OwnedTransaction, innermost
from aftercommit.writing.compose import Composer
from aftercommit.writing.writer import OutboxWriter as Room


class PlainTxContext(Protocol):
    """The least that a writer needs of a transaction of yours. Callbacks run once it has ended; where it is rolled back
    to a savepoint, those that were registered since run for the rollback, or the event would be delivered without its
    row."""

    def is_transaction_active(self) -> bool: ...

    def current_connection(self) -> Any:
        """The connection that your own statements run on."""

    def after_commit(self, callback: Callback) -> None: ...

    def after_rollback(self, callback: Callback) -> None: ...


class AmbientTxContext:
    """The transaction of a manager that is open here, in this thread or task."""

    observes_commit = True

    def current(self) -> OwnedTransaction:
        found = innermost(self)
        if found is None:
            raise NotInTransaction("no transaction is open here", fix="with manager.begin() as tx: …; tx.commit()")
        return found

    @property
    def tx(self) -> Tx:
        return self.current().tx

    def is_transaction_active(self) -> bool:
        found = innermost(self)
        return found is not None and found.is_transaction_active()

    def current_connection(self) -> Any:
        return self.current().current_connection()

    def after_commit(self, callback: Callback) -> None:
        self.current().after_commit(callback)

    def after_rollback(self, callback: Callback) -> None:
        self.current().after_rollback(callback)

    def wrote(self, rows: WrittenRows) -> None:
        self.current().wrote(rows)


class AdaptedTxContext:
    """A context of the user's own, on a connection that the store can write on."""

    observes_commit = True

    def __init__(self, given: PlainTxContext, tx: AdoptedTx) -> None:
        self._given = given
        self.tx = tx
        self.current_connection, self.after_commit = given.current_connection, given.after_commit
        self.after_rollback = given.after_rollback

    def is_transaction_active(self) -> bool:
        return self._given.is_transaction_active() and self.tx.is_active

    def wrote(self, rows: WrittenRows) -> None:
        fate = Fate(rows)
        self.after_commit(fate.committed)
        self.after_rollback(fate.rolled_back)


class Fate:
    """The end of some rows, which comes once: what was rolled back to a savepoint is not committed with the rest."""

    def __init__(self, rows: WrittenRows) -> None:
        self._rows: WrittenRows | None = rows

    def committed(self) -> None:
        if (rows := self._ended()) is not None:
            rows.committed()

    def rolled_back(self) -> None:
        if (rows := self._ended()) is not None:
            rows.rolled_back()

    def _ended(self) -> WrittenRows | None:
        rows, self._rows = self._rows, None
        return rows


class Writing(Part):
    """What both colours of the writer share."""

    def __init__(
        self,
        tx_context: TxContext | PlainTxContext,
        store: EventStore,
        hook: WriterHook | Callable[[EventEnvelope], object] | None = None,
        *,
        serializer: Serializer | None = None,
        context_providers: Iterable[ContextProvider] = (),
        metrics: MetricsExporter = MetricsExporter.NOOP,
    ) -> None:
        """Without a hook nothing happens after a commit: rows are left to a poller, here or elsewhere."""
        super().__init__(store)
        needs(tx_context, "a transaction context", "is_transaction_active", "pass what a TransactionManager has")
        self._tx_context, self._hook = tx_context, _checked(hook)
        # One of a class of the user's own does what that class says.
        self._dispatcher = hook.dispatcher if type(hook) is DispatcherCommitHook else None
        if self._dispatcher is not None and self._dispatcher.store is not store:
            raise InvalidOption("the hook's dispatcher has another store than the writer", fix="give both the same")
        self._composer = Composer(PayloadTypes(serializer), context_providers)
        self._metrics = metrics
        self._made: tuple[Runtime, Line | None, Room] | None = None

    def _context(self) -> TxContext:
        """The transaction that is open now."""
        given: Any = self._tx_context
        if isinstance(given, AmbientTxContext):
            return given.current()
        if hasattr(given, "wrote"):
            return given  # type: ignore[no-any-return]
        if not given.is_transaction_active():
            raise NotInTransaction(f"{given!r} has no transaction open", fix="begin one before write()")
        connection = given.current_connection()
        adopted = self._store.adopt(connection)
        if adopted is None:
            raise UnsupportedTransaction(
                f"the connection is a {type(connection).__module__}.{type(connection).__qualname__}",
                fix="pass a context over a connection of the store's own database",
            )
        return AdaptedTxContext(given, adopted)

    async def _write_all(self, events: list[EventEnvelope], context: TxContext) -> list[str]:
        if isinstance(context, AdaptedTxContext):
            if not self._store.is_ready and not context.tx.is_begun:
                await self._store.open()  # nothing is locked yet, so the table can still be made
            await self._store.refuse_foreign(context.current_connection(), context.tx)
        return await self._room().write_all(events, context)

    def _room(self) -> Room:
        """Made anew where the dispatcher is: after a fork, on another loop, after its close()."""
        line = None if self._dispatcher is None else self._dispatcher.line()
        if self._made is not None and self._made[1] is line and self._made[0].is_here():
            return self._made[2]
        runtime = self._runtime() if line is None else line.runtime
        if line is None:
            hook = None if self._dispatcher is not None else self._hook
            room = Room(runtime, self._store, Meter(runtime, self._metrics, self._store.where), hook=hook)
        else:
            room = Room(runtime, self._store, line.meter, hot_path=line.hot_path, rows_of=line.router.rows_of)
        self._made = runtime, line, room
        return room

    def _after_fork(self) -> None:
        super()._after_fork()
        self._made = None


def _checked(hook: Any) -> WriterHook | None:
    if hook is None or hasattr(hook, "after_commit"):
        return hook  # type: ignore[no-any-return]
    if not callable(hook):
        raise InvalidOption(f"the hook is {hook!r}", fix="pass an AfterCommitHook, or a function of the event")
    return AfterCommitHook(hook)
