"""What becomes of inserted rows: the fate of the transaction on their connection, heard from SQLAlchemy's events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakSet

from sqlalchemy import Connection, Engine, Table, event, select

from aftercommit.errors import NotAwaited, TransactionEnded
from aftercommit.events.claims import RowKey
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.log import Log
from aftercommit.events.redact import error_text
from aftercommit.ports import AdoptedTx, Callback
from aftercommit.transactions.pending import PendingWrite, forgive, refuse_unawaited
from aftercommit.transactions.texts import may_undo

log = Log("aftercommit.transactions")

#: Where a connection's info has the fate of its open transaction.
KEY: Final = "aftercommit"

#: Where it has the writes that have to be awaited before a commit.
WRITES: Final = "aftercommit_writes"

#: No statement has been run yet.
_UNUSED: Final = object()

#: How many ids one question names.
_CHUNK: Final = 500

#: Callbacks of batches that vanished with their session. A finaliser may run anywhere, so they wait for the next write.
_dropped: Final[deque[Callback]] = deque()


@dataclass(slots=True, eq=False)
class Batch:
    """The rows of one write(), until their transaction has ended."""

    table: Table
    #: Those that are still to be committed.
    rows: dict[RowKey, EventEnvelope]
    on_committing: list[Callback] = field(default_factory=list)
    on_commit: list[Callback] = field(default_factory=list)
    on_rollback: list[Callback] = field(default_factory=list)
    on_lost: list[Callable[[Collection[RowKey]], None]] = field(default_factory=list)

    def lose(self, keys: Iterable[RowKey]) -> list[str]:
        """Some rows will not be committed; how they are called."""
        gone = [key for key in keys if key in self.rows]
        named = [_name(self.rows.pop(key)) for key in gone]
        for lost in self.on_lost if gone else ():
            lost(gone)
        return named

    def end(self, *, committed: bool) -> None:
        callbacks = self.on_commit if committed else self.on_rollback
        self.on_commit, self.on_rollback = [], []
        for callback in callbacks:
            callback()

    def __del__(self) -> None:
        _dropped.extend(self.on_rollback)


def _name(written: EventEnvelope) -> str:
    """How it is called in a warning."""
    return f"{written.event_type} {written.event_id}"


def return_dropped() -> None:
    """Give back what was reserved for rows of sessions that nobody closed."""
    while _dropped:
        _dropped.popleft()()


@dataclass(slots=True, eq=False)
class Fate:
    """The rows that the open transaction of a connection has, and what is known about its end."""

    #: The driver's connection, where the store knows that driver. It is where rows are undone behind SQLAlchemy's back.
    driver: AdoptedTx | None
    #: Whether a question that fails would take the transaction with it.
    fails_whole: bool
    #: The driver's mark when SQLAlchemy used it last.
    mark: object = _UNUSED
    #: In order; a dict serves as the set.
    batches: dict[Batch, None] = field(default_factory=dict)
    #: Told of rows that a rollback took.
    on_rolled_back: list[Callable[[list[str]], None]] = field(default_factory=list)
    #: A statement has failed or undone something, or somebody else has used the driver: perhaps rows are gone.
    is_doubtful: bool = False
    is_committing: bool = False

    def running(self, sql: str) -> None:
        """SQLAlchemy is about to run a statement."""
        if not self.is_doubtful:
            self.is_doubtful = self._has_strayed() or may_undo(sql)

    def ran(self) -> None:
        self.mark = None if self.driver is None else self.driver.mark

    def refuse_ended(self) -> None:
        """Before another row: in some drivers it would be saved at once, by itself."""
        if self.driver is not None and (self.is_doubtful or self._has_strayed()) and not self.driver.is_active:
            raise TransactionEnded(
                "the transaction was ended below SQLAlchemy, by SQL text or on the driver's connection",
                fix="session.rollback(), and do its work again; end transactions by session.commit() and rollback()",
            )

    def _has_strayed(self) -> bool:
        """Whether the driver may have run a statement that SQLAlchemy does not know of."""
        if self.mark is _UNUSED:
            return False  # and nothing is inserted yet
        return self.driver is None or self.mark is None or self.driver.mark != self.mark

    def committing(self, connection: Connection) -> None:
        self.verify(connection)
        self.committing_verified(connection)

    def committing_verified(self, _: Connection) -> None:
        """Of a prepared transaction nothing more can be undone, and nothing can be seen."""
        self.is_committing = True
        for batch in self.batches:
            for callback in batch.on_committing:
                callback()

    def verify(self, connection: Connection) -> None:
        """At the last moment at which the transaction can be asked what is left in it."""
        asking = [batch for batch in self.batches if batch.on_lost]
        if asking and (self.is_doubtful or self._has_strayed()):
            self.is_doubtful = False
            for table in {batch.table for batch in asking}:
                batches = [batch for batch in asking if batch.table is table]
                with_savepoint = connection.begin_nested if self.fails_whole else nullcontext
                there = _surviving(connection, table, [key for batch in batches for key in batch.rows], with_savepoint)
                for batch in batches:
                    batch.lose([key for key in batch.rows if key not in there])

    def doubt(self, _: Connection) -> None:
        self.is_doubtful = True

    def over(self, connection: Connection, *, committed: bool) -> None:
        del connection.info[KEY]
        self.end(committed=committed)

    def end(self, *, committed: bool) -> None:
        if not committed:
            named = [_name(written) for batch in self.batches for written in batch.rows.values()]
            for tell in self.on_rolled_back:
                tell(named)
        for batch in self.batches:
            batch.end(committed=committed)


def _surviving(
    connection: Connection, table: Table, keys: Sequence[RowKey], apart: Callable[[], AbstractContextManager[Any]]
) -> Collection[RowKey]:
    """A question that fails must not take the caller's transaction with it."""
    found: set[RowKey] = set()
    ids = sorted({key.event_id for key in keys})
    try:
        with apart():
            for start in range(0, len(ids), _CHUNK):
                wanted = table.c.event_id.in_(ids[start : start + _CHUNK])
                rows = connection.execute(select(table.c.event_id, table.c.handler_id).where(wanted))
                found.update(RowKey(*row) for row in rows)
    except Exception as error:
        log.info("written events are left to the poller, if they are there: %s", error_text(error))
        return ()
    return found


# ---------------------------------------------------------------- the events

_followed: Final[WeakSet[Engine]] = WeakSet()


def follow(engine: Engine) -> None:
    """Listen to an engine, once. First of all: a listener of the user's may raise."""
    if engine in _followed:
        return
    _followed.add(engine)
    for name, act in _OF_A_CONNECTION.items():
        event.listen(engine, name, _heard(act), insert=True)
    event.listen(engine, "before_cursor_execute", _running, insert=True)
    event.listen(engine, "after_cursor_execute", _ran, insert=True)
    for name in ("commit", "prepare_twophase"):  # before all others
        event.listen(engine, name, _refuse_unawaited, insert=True)
    for name in ("rollback", "rollback_twophase"):
        event.listen(engine, name, lambda connection, *_: forgive(writes_of(connection.info)), insert=True)
    event.listen(engine, "handle_error", _failed, insert=True)
    event.listen(engine, "reset", _reset, insert=True)
    event.listen(engine, "checkin", _given_back, insert=True)


def _heard(act: Callable[[Fate, Connection], None]) -> Callable[..., None]:
    def listener(connection: Connection, *_: Any) -> None:
        fate = fate_of(connection)
        if fate is not None:
            act(fate, connection)

    return listener


def _running(connection: Connection, _cursor: Any, sql: str, *_: Any) -> None:
    fate = fate_of(connection)
    if fate is not None:
        fate.running(sql)


def _ran(connection: Connection, *_: Any) -> None:
    fate = fate_of(connection)
    if fate is not None:
        fate.ran()


def fate_of(connection: Connection) -> Fate | None:
    """None when nothing was written on it, or it is no more."""
    if connection.closed or connection.invalidated:
        return None
    found: Fate | None = connection.info.get(KEY)
    return found


def look(connection: Connection) -> None:
    """Whether its transaction is committed by now. One whose commit failed stays on until it is rolled back."""
    fate = fate_of(connection)
    if fate is not None and fate.is_committing and connection.get_transaction() is None:
        fate.over(connection, committed=True)


def doubt_commit(connection: Connection) -> None:
    """A commit was begun, and then a rollback was asked for: a listener may have raised before it was done."""
    fate = fate_of(connection)
    if fate is not None:
        fate.is_committing = False


def writes_of(info: dict[Any, Any]) -> list[PendingWrite[Any]]:
    """Those on a connection or session that are still to be awaited, by what it keeps of others."""
    found: list[PendingWrite[Any]] = info.setdefault(WRITES, [])
    return found


def _refuse_unawaited(connection: Connection, *_: Any) -> None:
    writes = writes_of(connection.info)
    try:
        refuse_unawaited(writes)
    except NotAwaited:
        # SQLAlchemy takes a transaction whose commit raised for ended, and gives its connection back as it is.
        connection.dialect.do_rollback(connection.connection)
        raise
    finally:
        forgive(writes)


def _rolled_back(fate: Fate, connection: Connection) -> None:
    fate.over(connection, committed=False)


def _failed(context: Any) -> None:
    """A lost connection has taken its transaction with it, unless that was in the middle of its commit."""
    if context.connection is not None:
        _heard(_rolled_back if context.is_disconnect else Fate.doubt)(context.connection)


_OF_A_CONNECTION: Final[Mapping[str, Callable[[Fate, Connection], None]]] = {
    "begin": lambda fate, connection: fate.over(connection, committed=fate.is_committing),  # whatever was before
    "commit": Fate.committing,
    "prepare_twophase": Fate.verify,
    "commit_twophase": Fate.committing_verified,
    "rollback": _rolled_back,
    "rollback_twophase": _rolled_back,
    "rollback_savepoint": Fate.doubt,
}


def _reset(_: Any, record: Any, state: Any) -> None:
    """A connection is closed whose transaction was still on: its commit, if there was one, has failed."""
    fate: Fate | None = record.info.get(KEY)
    if fate is not None and state.transaction_was_reset:
        fate.is_committing = False


def _given_back(_: Any, record: Any) -> None:
    """Also when nobody closed it: the pool finds connections whose owner is gone, and rolls them back."""
    forgive(writes_of(record.info))
    fate: Fate | None = record.info.pop(KEY, None)
    if fate is not None:
        fate.end(committed=fate.is_committing)
