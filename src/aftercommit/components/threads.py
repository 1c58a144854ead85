"""The components for threads and blocking drivers."""

from __future__ import annotations

import atexit
from collections.abc import Iterable
from enum import Enum
from typing import Any, Self, cast, overload

from aftercommit.components.connecting import detected
from aftercommit.components.desk import Part, needs
from aftercommit.components.dispatching import Dispatching
from aftercommit.components.polling import Polling
from aftercommit.components.writing import AmbientTxContext, Writing
from aftercommit.events.annotations import EventObject
from aftercommit.events.envelope import EventEnvelope
from aftercommit.outbox import Transaction
from aftercommit.ports import Colour, EventStore, Runtime
from aftercommit.runtime.threads import ThreadRuntime, run
from aftercommit.transactions.by_hand import ByHand
from aftercommit.writing.compose import MISSING


def detect_store(target: Any, **options: Any) -> EventStore:
    """The store for a ConnectionProvider, a URL, an engine, a pool or a connection; with the options `table`, `schema`,
    `create_schema` and `delete_completed`."""
    return detected(target, Colour.BLOCKING, options)


class _Blocking(Part):
    _colour = Colour.BLOCKING

    def _runtime(self) -> Runtime:
        return ThreadRuntime()


class ThreadLocalTxContext(AmbientTxContext):
    """The transaction that a TransactionManager has open in this thread."""


class TransactionManager(_Blocking):
    """Transactions on the store's own connections, which a context finds in their thread."""

    def __init__(self, store: EventStore, tx_context: ThreadLocalTxContext) -> None:
        super().__init__(store)
        needs(tx_context, "a transaction context", "current", "pass a ThreadLocalTxContext()")
        self._tx_context, self._runs_on = tx_context, ThreadRuntime()

    def begin(self) -> Transaction:
        """Steered by hand: `with manager.begin() as tx: …; tx.commit()` rolls back unless commit() was called."""
        begun = Transaction(self._tx_context, self._store, self._runs_on, commits_on_exit=False)
        return cast("Transaction", ByHand(begun.begin()))

    def transaction(self) -> Transaction:
        """A block that commits at its end and rolls back on an error; nested it is a savepoint."""
        return Transaction(self._tx_context, self._store, self._runs_on)

    def create_schema(self) -> None:
        """Create or upgrade the tables now."""
        run(self._store.create_schema())

    def close(self) -> None:
        """Give up the store's connections, unless a dispatcher or poller still uses them."""
        run(self._leave())


class OutboxWriter(_Blocking, Writing):
    """Writes events in the transaction of its context.

    >>> from aftercommit.components import OutboxWriter, ThreadLocalTxContext, TransactionManager, detect_store
    >>> store, context = detect_store("sqlite://"), ThreadLocalTxContext()
    >>> writer, manager = OutboxWriter(context, store), TransactionManager(store, context)
    >>> with manager.begin() as tx:
    ...     event_id = writer.write("UserCreated", '{"id": 123}')
    ...     tx.commit()
    >>> manager.close()
    """

    @overload
    def write(self, event: EventEnvelope | EventObject) -> str | None: ...
    @overload
    def write(self, event: str | Enum, payload: object) -> str | None: ...
    def write(self, event: object, payload: object = MISSING) -> str | None:
        """The event's id; None when a hook suppressed it."""
        ids = run(self._write_all([self._composer.compose(event, payload)], self._context()))
        return ids[0] if ids else None

    def write_all(self, events: Iterable[object]) -> list[str]:
        """Many at once; their ids in order. All are checked before the first is written."""
        return run(self._write_all(self._composer.compose_all(events), self._context()))


class OutboxDispatcher(_Blocking, Dispatching):
    """Two lanes and the workers that drain them: `OutboxDispatcher(store, registry, worker_count=4)`."""

    def _began(self) -> None:
        atexit.register(self.close)

    def close(self) -> None:
        """Take nothing new, finish what waits within `drain_timeout`, give back the rest. Again is fine."""
        run(self._close())
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        self.line()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()


class OutboxPoller(_Blocking, Polling):
    """Looks into the table for what nobody delivered: `OutboxPoller(store, dispatcher)`, or with a handler of your
    own."""

    def start(self) -> Self:
        """Look from now on, in a thread of its own. Again is fine; after close() it starts anew."""
        atexit.register(self.close)
        run(self._start())
        return self

    def poll(self) -> int:
        """One cycle now; how many events it claimed."""
        return run(self._poll())

    def close(self) -> None:
        """Look no more. Again is fine."""
        run(self._close())
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
