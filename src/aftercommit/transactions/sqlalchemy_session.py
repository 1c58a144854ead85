"""A SQLAlchemy session: write() adds a mapped row, and the flush inserts it beside the caller's own rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, event
from sqlalchemy.orm import Session, SessionTransaction, object_session
from sqlalchemy.util import greenlet_spawn

from aftercommit.errors import NotInTransaction, UnsupportedTransaction
from aftercommit.events.claims import NewEvent, RowKey
from aftercommit.events.log import Log
from aftercommit.ports import Callback, WrittenRows
from aftercommit.transactions.joined import UnitOfWork
from aftercommit.transactions.pending import PendingWrite, forgive, refuse_unawaited
from aftercommit.transactions.sqlalchemy_fate import (
    KEY,
    WRITES,
    Batch,
    Fate,
    doubt_commit,
    follow,
    look,
    return_dropped,
    writes_of,
)
from aftercommit.transactions.sqlalchemy_table import EventRow, Rows

log = Log("aftercommit.transactions")

T = TypeVar("T")

_SESSION_FIX: Final = "session.commit() before session.close() or session.expunge_all()"


class JoinedSession(UnitOfWork):
    """One write() on a session. Its commit is observed, unless it is part of a transaction that others steer."""

    is_at_once = True

    def __init__(self, rows: Rows, session: Session, bind: Engine | Connection) -> None:
        if not session.is_active:
            raise NotInTransaction(
                "the session's transaction has failed and must be rolled back, so the event could not be saved",
                fix="session.rollback(), then do its work again",
            )
        if not session.autobegin and not session.in_transaction():
            raise NotInTransaction(
                "the session was made with autobegin=False and has not begun a transaction",
                fix="with session.begin(): outbox.write(event, tx=session)",
            )
        follow(bind.engine)
        self._rows = rows
        self._session = session
        self._bind = bind
        self._batch: Batch | None = None
        self.observes_commit = isinstance(bind, Engine)

    def current_connection(self) -> Session:
        return self._session

    def may_open_store(self) -> bool:
        return self._rows.may_open_store(self._session, self._bind)

    def track(self, pending: PendingWrite[Any]) -> None:
        writes_of(self._session.info).append(pending)

    def add(self, rows: Sequence[NewEvent]) -> None:
        return_dropped()
        batch = self._batch = self._new_batch(rows)
        trail = _trail_of(self._session)
        for new in rows:
            row = self._rows.kind()
            # Not attribute by attribute: nobody asks for the history of a row that is only ever inserted.
            row.__dict__.update(self._rows.columns_of(new))
            row.batch, row.key = batch, RowKey(new.event.event_id, new.handler_id)
            self._session.add(row)
            trail.pending.add(row)

    def add_unique(self, rows: Sequence[NewEvent]) -> Collection[RowKey]:
        """Behind all that was written before: the flush inserts that first."""
        return_dropped()
        self._session.flush()
        connection = self._session.connection(bind_arguments={"mapper": self._rows.kind})
        fate = self._rows.fate_at(connection)
        refused = self._rows.insert_unique(connection, fate, rows)
        written = [row for row in rows if RowKey(row.event.event_id, row.handler_id) not in refused]
        batch = self._batch = self._new_batch(written)
        _share_fate(self._session, connection, fate)
        fate.batches[batch] = None
        return refused

    def _new_batch(self, rows: Sequence[NewEvent]) -> Batch:
        batch = self._rows.batch_of(rows)
        if not self.observes_commit:
            batch.on_committing.append(self._rows.look_soon)
            batch.on_commit.append(self._rows.wake)
        return batch

    async def awaiting(self, work: Callable[[], T]) -> T:
        return await greenlet_spawn(work)

    def after_commit(self, callback: Callback) -> None:
        self._written().on_commit.append(callback)

    def after_rollback(self, callback: Callback) -> None:
        self._written().on_rollback.append(callback)

    def wrote(self, rows: WrittenRows) -> None:
        batch = self._written()
        batch.on_commit.append(rows.committed)
        batch.on_rollback.append(rows.rolled_back)
        batch.on_lost.append(rows.undone)

    def _written(self) -> Batch:
        if self._batch is None:
            raise UnsupportedTransaction(
                "callbacks of a SQLAlchemy session are SQLAlchemy's own",
                fix='sqlalchemy.event.listen(session, "after_commit", callback)',
            )
        return self._batch


# ---------------------------------------------------------------- what the session tells


@dataclass(slots=True, eq=False)
class Trail:
    """Where the rows of a session are, and where they went."""

    #: Kept alive: a session that is emptied lets go of a row before it can tell of it.
    pending: set[EventRow] = field(default_factory=set)
    connections: list[Connection] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


@cache
def listen_to_sessions() -> None:
    """Once for all of them: to listen to each would be dearer than the rows."""
    event.listen(Session, "before_commit", lambda session: refuse_unawaited(session.info.get(WRITES, ())), insert=True)
    event.listen(Session, "after_commit", _after_commit, insert=True)
    event.listen(Session, "after_rollback", _after_rollback, insert=True)
    event.listen(Session, "after_transaction_end", _after_end, insert=True)
    event.listen(Session, "pending_to_transient", _forgotten, insert=True)


def before_insert(rows: Rows, connection: Connection, row: EventRow) -> None:
    """From here on the row shares the fate of the connection's transaction."""
    fate = rows.fate_at(connection)
    session = object_session(row)
    if session is not None:
        _share_fate(session, connection, fate).pending.discard(row)
    fate.batches[row.batch] = None
    if rows.locks_keys and session is not None and not row.is_locked:
        # The keys of one flush at once, so that they are locked in one order.
        flushed = [each for each in session.new if isinstance(each, rows.kind) and not each.is_locked]
        rows.lock_keys(connection, [each.event_key for each in flushed])
        for each in flushed:
            each.is_locked = True


def _share_fate(session: Session, connection: Connection, fate: Fate) -> Trail:
    """From here on rows of the session are in that transaction."""
    trail = _trail_of(session)
    if connection not in trail.connections:
        trail.connections.append(connection)
        fate.on_rolled_back.append(trail.lost.extend)
    return trail


def _trail_of(session: Session) -> Trail:
    trail: Trail | None = session.info.get(KEY)
    if trail is None:
        trail = session.info[KEY] = Trail()
    return trail


def _after_commit(session: Session) -> None:
    """It fires at the release of a savepoint, too, and inside a transaction that others steer."""
    trail: Trail | None = session.info.get(KEY)
    if trail is not None:
        for connection in trail.connections:
            look(connection)


def _after_rollback(session: Session) -> None:
    trail: Trail | None = session.info.get(KEY)
    if trail is not None:
        trail.lost.clear()  # as the caller wished
        for connection in trail.connections:
            doubt_commit(connection)


def _after_end(session: Session, transaction: SessionTransaction) -> None:
    trail: Trail | None = session.info.get(KEY)
    if transaction.parent is None and WRITES in session.info:
        forgive(session.info.pop(WRITES))
    if trail is not None and transaction.parent is None:
        trail.connections, lost, trail.lost = [], trail.lost, []
        for name in lost:
            _warn(name)


def _forgotten(session: Session, row: object) -> None:
    """A row leaves the session before it was inserted."""
    if isinstance(row, EventRow):
        _trail_of(session).pending.discard(row)
        for name in row.batch.lose([row.key]):
            if session.is_active:  # else it goes with a rollback
                _warn(name)


def _warn(name: str) -> None:
    log.warning("%s is NOT saved: its session was closed or emptied before a commit. Fix: %s", name, _SESSION_FIX)
