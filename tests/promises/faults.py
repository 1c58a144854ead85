"""Crash points: where a worker can be told to kill itself. They wrap the library from outside."""

from __future__ import annotations

import inspect
import os
import signal
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from aftercommit import Done
from aftercommit.core.delivery import Delivery
from aftercommit.core.dispatcher import OutboxDispatcher
from aftercommit.core.settler import Settler
from aftercommit.stores.records import SqlRecords
from aftercommit.stores.sql import SqlStore
from aftercommit.stores.sqlite.aio import AsyncOpenSqliteTransaction
from aftercommit.stores.sqlite.connection import BlockingTx
from aftercommit.stores.sqlite.executor import OpenSqliteTransaction
from tests.promises.journal import Journal
from tests.support import _blocking

#: `point` or `point:n`, the n-th time that it is passed.
VARIABLE = "AFTERCOMMIT_CRASH_AT"

#: Seconds that every settle waits before it begins, as behind a busy database.
SLOW_SETTLES = "AFTERCOMMIT_SLOW_SETTLES"

Call = Callable[..., Any]
Condition = Callable[[tuple[Any, ...], Any], object]


class Fault:
    """Kills this process without any clean-up, after it has said where."""

    def __init__(self, journal: Journal, point: str, passes: int) -> None:
        self._journal = journal
        self._point = point
        self._passes = passes
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self._passes -= 1
            if self._passes == 0:
                self._journal.say("crash", self._point)
                os.kill(os.getpid(), signal.SIGKILL)


def before(kinds: list[type], method: str, when: Condition = lambda given, _: True) -> Call:
    """A point at the beginning of a method."""
    return lambda fault, store: [
        wrap(kind, method, enter=lambda given: when(given, None) and fault()) for kind in kinds
    ]


def after(kinds: list[type], method: str, when: Condition = lambda given, _: True) -> Call:
    """A point at the end of a method, before its caller hears of it."""
    return lambda fault, store: [
        wrap(kind, method, leave=lambda given, result: when(given, result) and fault()) for kind in kinds
    ]


def within(statement: str) -> Call:
    """A point inside a transaction of the store: this statement has run, the COMMIT has not."""

    def install(fault: Fault, store: SqlStore) -> None:
        sql = store._sql[statement].sql
        for method in ("execute", "execute_many", "fetch"):
            wrap(BlockingTx, method, leave=lambda given, result: given[1] == sql and fault())

    return install


#: The user's own transaction, in either runtime.
TRANSACTIONS = [OpenSqliteTransaction, AsyncOpenSqliteTransaction]

POINTS: dict[str, Call] = {
    "before commit": before(TRANSACTIONS, "commit"),
    "after commit": after(TRANSACTIONS, "commit"),
    "before enqueue": before([OutboxDispatcher], "fill_hot"),
    "after enqueue": after([OutboxDispatcher], "fill_hot"),
    "in claim": within("claim_mark"),
    "after claim": after([SqlStore], "claim", lambda given, claim: claim.rows),
    "in suspect mark": within("mark_suspect"),
    "after suspect mark": after([SqlStore], "mark_suspect"),
    "before handler": before([Delivery], "deliver"),
    "in handler": after([Journal], "say", lambda given, result: given[1] == "effect"),
    "after handler": before([Settler], "add", lambda given, _: isinstance(given[2], Done)),
    "in settle": within("done"),
    "after settle": after([SqlStore], "settle"),
    "in retry": within("retry"),
    "in release": within("release"),
    "in renewal": within("renew"),
    "after renewal": after([SqlStore], "renew", lambda given, renewed: renewed),
    "in purge": within("purge"),
    "after purge": after([SqlRecords], "purge"),
    "in replay": within("replay"),
    "after replay": after([SqlRecords], "replay"),
}


def install(store: SqlStore, journal: Journal) -> None:
    """Set the faults that the environment asks for."""
    if SLOW_SETTLES in os.environ:
        _slow_down(store, float(os.environ[SLOW_SETTLES]))
    wanted = os.environ.get(VARIABLE)
    if wanted:
        point, _, passes = wanted.partition(":")
        POINTS[point](Fault(journal, point, int(passes or 1)), store)


def _slow_down(store: SqlStore, seconds: float) -> None:
    settle = store.settle

    async def slow(*given: Any) -> Any:
        await _blocking(lambda: threading.Event().wait(seconds))
        return await settle(*given)

    store.settle = slow


def wrap(
    kind: type,
    method: str,
    *,
    enter: Callable[[tuple[Any, ...]], object] = lambda given: None,
    leave: Callable[[tuple[Any, ...], Any], object] = lambda given, result: None,
) -> None:
    """Do something whenever a method of a class is entered or left, in either colour."""
    original = kind.__dict__[method]

    @wraps(original)
    def plain(*given: Any, **named: Any) -> Any:
        enter(given)
        result = original(*given, **named)
        leave(given, result)
        return result

    @wraps(original)
    async def awaited(*given: Any, **named: Any) -> Any:
        enter(given)
        result = await original(*given, **named)
        leave(given, result)
        return result

    setattr(kind, method, awaited if inspect.iscoroutinefunction(original) else plain)
