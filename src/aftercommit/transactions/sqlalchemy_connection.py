"""A SQLAlchemy connection: the INSERT runs at once, in the transaction that the caller has begun on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

from sqlalchemy import Connection, Table
from sqlalchemy.sql import ClauseElement

from aftercommit.errors import NotInTransaction, UnsupportedTransaction
from aftercommit.events.claims import NewEvent
from aftercommit.ports import Callback, WrittenRows
from aftercommit.transactions.sqlalchemy_fate import KEY, Fate, fate_of, follow
from aftercommit.transactions.sqlalchemy_session import Rows
from aftercommit.transactions.unit import UnitOfWork

T = TypeVar("T")


class JoinedConnection(UnitOfWork):
    """One write() on a connection. SQLAlchemy tells of a commit before it happens and not after it, so rows are born
    free; the poller looks soon after, and at once when the connection goes back to its pool."""

    observes_commit = False

    def __init__(
        self, rows: Rows, table: Table, connection: Connection, run_sync: Callable[..., Awaitable[Any]] | None = None
    ) -> None:
        """`run_sync` of an AsyncConnection lets what blocks wait on the loop."""
        _refuse_without_transaction(connection)
        follow(connection.engine)
        self._rows = rows
        self._table = table
        self._connection = connection
        self._run_sync = run_sync
        self.is_at_once = run_sync is None

    def current_connection(self) -> Connection:
        return self._connection

    def may_open_store(self) -> bool:
        return not self._connection.in_transaction()

    def add(self, rows: Sequence[NewEvent]) -> None:
        fate = self._fate()
        batch = self._rows.batch_of(rows)
        batch.on_committing.append(self._rows.look_soon)
        batch.on_commit.append(self._rows.wake)
        if self._rows.locks_keys:
            self._rows.lock_keys(self._connection, [row.event.key for row in rows])
        # Several statements are all or none under a savepoint.
        with nullcontext() if len(rows) == 1 else self._connection.begin_nested():
            for group in _groups([self._rows.columns_of(row) for row in rows]):
                self._insert(group)
        fate.batches[batch] = None

    def _fate(self) -> Fate:
        connection = self._connection
        fate = fate_of(connection)
        if fate is None:
            if not connection.in_transaction():
                connection.begin()
            self._rows.check(connection)
            fate = connection.info[KEY] = Fate()
        return fate

    def _insert(self, group: list[dict[str, Any]]) -> None:
        at = group[0]["available_at"]
        if isinstance(at, ClauseElement):
            values = {name: value for name, value in group[0].items() if name != "available_at"}
            self._connection.execute(self._table.insert().values(available_at=at), values)
        else:
            self._connection.execute(self._table.insert(), group)

    def awaiting(self, work: Callable[[], T]) -> Awaitable[T]:
        if self._run_sync is None:
            raise UnsupportedTransaction(
                "a blocking SQLAlchemy connection would stop the event loop", fix="pass an AsyncConnection"
            )
        return self._run_sync(lambda _: work())

    def after_commit(self, callback: Callback) -> None:
        raise self._unseen()

    def after_rollback(self, callback: Callback) -> None:
        raise self._unseen()

    def wrote(self, rows: WrittenRows) -> None:
        """Nothing of it is in memory, so nothing can be wrong there."""

    def _unseen(self) -> UnsupportedTransaction:
        return UnsupportedTransaction(
            "the commit of a SQLAlchemy connection cannot be observed", fix="use a Session, or outbox.transaction()"
        )


def _groups(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """In order; those that one statement can insert are together."""
    groups: list[list[dict[str, Any]]] = []
    for row in rows:
        is_alone = isinstance(row["available_at"], ClauseElement)
        if groups and not is_alone and not isinstance(groups[-1][-1]["available_at"], ClauseElement):
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _refuse_without_transaction(connection: Connection) -> None:
    transaction = None if connection.closed else connection.get_transaction()
    if connection.closed or (transaction is not None and not transaction.is_active):
        raise NotInTransaction(
            "the connection is closed, or its transaction has failed and must be rolled back",
            fix="with engine.begin() as connection: outbox.write(event, tx=connection)",
        )
