"""The atomic block that a write is part of, and how the outbox hears of its end."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from aftercommit.errors import NotInTransaction
from aftercommit.events.log import Log
from aftercommit.events.redact import error_text
from aftercommit.ports import Callback, EventStore, Tx, WrittenRows
from aftercommit.runtime.process import here
from aftercommit.runtime.threads import run
from aftercommit.transactions.texts import may_undo

log = Log("aftercommit.django")


class AtomicTransaction:
    """The transaction that is open on Django's connection of this thread."""

    def __init__(self, connection: BaseDatabaseWrapper, tx: Tx, store: EventStore) -> None:
        self._connection = connection
        self._store = store
        self._observer: Observer | None = None
        self.tx = tx
        # Whether on_commit functions run when the transaction is committed, and only then. A TestCase never commits,
        # and may run them all the same; with autocommit switched off they run some time later.
        self.observes_commit = (
            bool(connection.in_atomic_block)
            and bool(connection.commit_on_exit)
            and not any(getattr(block, "_from_testcase", False) for block in connection.atomic_blocks)
        )

    def is_transaction_active(self) -> bool:
        return is_open(self._connection)

    def current_connection(self) -> Any:
        return self._connection

    def after_commit(self, callback: Callback) -> None:
        self._observed().on_commit.append(callback)

    def after_rollback(self, callback: Callback) -> None:
        self._observed().on_rollback.append(callback)

    def wrote(self, rows: WrittenRows) -> None:
        tx, store = self.tx, self._store  # the observer must hold nothing that holds it, or it is dropped late

        def look() -> None:
            keys = rows.keys
            there = run(store.surviving(tx, keys))
            if gone := [key for key in keys if key not in there]:
                rows.undone(gone)

        observer = self._observed()
        observer.on_commit.append(rows.committed)
        observer.on_rollback.append(rows.rolled_back)
        observer.look = look

    def _observed(self) -> Observer:
        if self._observer is None:
            # The watch of a connection stays for good, before the wrappers that come and go at the end of the list.
            wrappers = self._connection.execute_wrappers
            if not wrappers or not isinstance(wrappers[0], Watch):
                wrappers.insert(0, Watch(self._connection, self._store))
            self._observer = Observer(wrappers[0])
            self._connection.on_commit(self._observer)
            # Before the user's functions, of which one that raises keeps the others from being called; behind our own.
            functions = self._connection.run_on_commit
            entry = functions.pop()
            functions.insert(bisect_left(functions, True, key=lambda each: not isinstance(each[1], Observer)), entry)
        return self._observer


def is_open(connection: BaseDatabaseWrapper) -> bool:
    """In an atomic block, or with autocommit switched off by hand."""
    return bool(connection.in_atomic_block) or not connection.get_autocommit()


def refuse_no_block(alias: str) -> NotInTransaction:
    """Why there is nothing to write in, and the code that would mend it."""
    using = "" if alias == "default" else f"using={alias!r}"
    others = sorted(each.alias for each in connections.all(initialized_only=True) if each.in_atomic_block)
    problem = f"write() was called with no atomic block open on the database {alias!r}"
    if others:
        problem += f" (there is one on {', '.join(map(repr, others))})"
    return NotInTransaction(
        f"{problem}, so the event could be saved without your change",
        fix=f"with transaction.atomic({using}): order.save(); outbox.write(event)",
    )


# ---------------------------------------------------------------- hearing of the end


class Observer:
    """A function for on_commit. Called, it tells of the commit; dropped without a call, of the rollback.

    Django has no word for rollbacks, but lets go of the functions that will not be called: at once, in the thread
    that rolls back, be it a savepoint or the whole.
    """

    def __init__(self, watch: Watch) -> None:
        self.on_commit: list[Callback] = []
        self.on_rollback: list[Callback] = []
        self._watch = watch
        self._doubts = watch.doubts
        #: How to find out what has been undone unseen.
        self.look: Callback | None = None
        #: A forked child drops its copy; the transaction is the parent's.
        self._process = here.token
        self._is_over = False

    def __call__(self) -> None:
        if self.look is not None and self._watch.doubts != self._doubts:
            try:
                self.look()
            except Exception as error:
                log.warning("events that may be committed are left until their lease is over: %s", error_text(error))
                return
        self._is_over = True
        for callback in self.on_commit:
            callback()

    def __del__(self) -> None:
        if not self._is_over and self._process is here.token:
            for callback in self.on_rollback:
                callback()


class Watch:
    """Counts what may have undone rows although the transaction goes on to a commit.

    PostgreSQL answers COMMIT with a silent ROLLBACK after an error, a deadlock on MySQL rolls everything back, a
    ROLLBACK may be sent as text, and the driver's connection may be used below Django. In doubt the rows are looked for
    once the commit is done.
    """

    def __init__(self, connection: BaseDatabaseWrapper, store: EventStore) -> None:
        self.doubts = 0
        self._connection = connection
        self._store = store
        self._mark = self._marked()
        # Django has no word before a commit, and behind it the driver was used for sure.
        self._commit = connection._commit
        connection._commit = self._committing

    def __call__(self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        self._look()
        if isinstance(sql, str) and may_undo(sql):
            self.doubts += 1
        try:
            return execute(sql, params, many, context)
        except BaseException:
            self.doubts += 1
            raise
        finally:
            self._mark = self._marked()

    def _committing(self) -> None:
        self._look()
        self._commit()

    def _look(self) -> None:
        """Whether the driver may have run a statement that Django does not know of."""
        if self._mark is None or self._marked() != self._mark:
            self.doubts += 1

    def _marked(self) -> object:
        driver = self._store.adopt(self._connection.connection)
        return None if driver is None else driver.mark
