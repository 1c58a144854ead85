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
from aftercommit.delivery.chain import Delivery
from aftercommit.delivery.settler import Settler
from aftercommit.delivery.worker import OutboxDispatcher
from aftercommit.stores.mysql import pool as mysql_pool
from aftercommit.stores.mysql.executor import OpenMysqlTransaction
from aftercommit.stores.mysql.link import LinkTx
from aftercommit.stores.postgres import executor as postgres_executor
from aftercommit.stores.postgres.asyncpg_driver import AsyncpgLink
from aftercommit.stores.postgres.psycopg_link import AsyncPsycopgLink, PsycopgLink
from aftercommit.stores.redis.aio import AsyncLink
from aftercommit.stores.redis.records import RedisRecords
from aftercommit.stores.redis.store import RedisStore
from aftercommit.stores.redis.threads import BlockingLink
from aftercommit.stores.redis.transaction import RedisTransaction
from aftercommit.stores.sql.records import SqlRecords
from aftercommit.stores.sql.store import SqlStore
from aftercommit.stores.sqlite.executor import OpenSqliteTransaction, SqliteTx
from tests.promises.journal import Journal
from tests.support import _blocking

#: `point` or `point:n`, the n-th time that it is passed.
VARIABLE = "AFTERCOMMIT_CRASH_AT"

#: The same for a process that stops there, and can go on.
STOP = "AFTERCOMMIT_STOP_AT"

#: Seconds that every settle waits before it begins, as behind a busy database.
SLOW_SETTLES = "AFTERCOMMIT_SLOW_SETTLES"

Call = Callable[..., Any]
Condition = Callable[[tuple[Any, ...], Any], object]


class Fault:
    """Kills this process without any clean-up, or stops it, after it has said where."""

    def __init__(self, journal: Journal, where: str, number: signal.Signals) -> None:
        self._journal = journal
        self._point, _, passes = where.partition(":")
        self._passes = int(passes or 1)
        self._number = number
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def __call__(self) -> None:
        if os.getpid() != self._pid:
            return  # forked from the one that is meant
        with self._lock:
            self._passes -= 1
            if self._passes == 0:
                self._journal.say("crash", self._point)
                # To this very thread: it would go on for a moment if another one had to take the signal first.
                signal.pthread_kill(threading.get_ident(), self._number)

    def install(self, store: SqlStore | RedisStore) -> None:
        POINTS[self._point](self, store)


def before(kinds: list[Any], method: str, when: Condition = lambda given, _: True) -> Call:
    """A point at the beginning of a method."""
    return lambda fault, store: [
        wrap(kind, method, enter=lambda given: when(given, None) and fault()) for kind in kinds
    ]


def after(kinds: list[Any], method: str, when: Condition = lambda given, _: True) -> Call:
    """A point at the end of a method, before its caller hears of it."""
    return lambda fault, store: [
        wrap(kind, method, leave=lambda given, result: when(given, result) and fault()) for kind in kinds
    ]


def within(*statements: str) -> Call:
    """A point inside a transaction of the store: one of these statements has run. The COMMIT has not, unless the
    database was told to commit the statement by itself. On Redis the script has run, and nobody knows yet."""

    def install(fault: Fault, store: SqlStore | RedisStore) -> None:
        if isinstance(store, RedisStore):
            ran = [SCRIPTS[statement] for statement in statements if statement in SCRIPTS]
            for link in (BlockingLink, AsyncLink):
                wrap(link, "call", leave=lambda given, result: _has_run(store, ran, given[1:], result) and fault())
            return
        texts = {store._sql[statement].sql for statement in statements if statement in store._sql}
        for place, method in STATEMENTS:
            wrap(place, method, leave=lambda given, result: given[1] in texts and fault())

    return install


#: On Redis: the script that does what a statement does elsewhere, and the outcome that it writes.
SCRIPTS = {
    "claim": ("claim", None),
    "mark_suspect": ("mark_suspect", None),
    "done": ("settle", b"done"),
    "retry": ("settle", b"retry"),
    "release": ("settle", b"release"),
    "renew": ("renew", None),
    "purge": ("purge", None),
    "fleet_prolong": ("fleet_beat", None),
    "claim_keys": ("claim_keys", None),
    "replay": ("replay", None),
}


def _has_run(
    store: RedisStore, wanted: list[tuple[str, bytes | None]], commands: tuple[Any, ...], replies: list[Any]
) -> bool:
    if not commands or isinstance(replies[0], Exception):
        return False  # its scripts have yet to be told to the server
    words = (*commands[0], b"")
    return any(
        words[1] in (store.server.scripts[name].sha, store.server.scripts[name].text)
        and (outcome is None or outcome in words)
        for name, outcome in wanted
    )


#: Where each driver runs a statement of the store: what is wrapped takes the text as its second argument.
STATEMENTS: list[tuple[Any, str]] = [
    *((SqliteTx, method) for method in ("execute", "execute_many", "fetch")),
    *((link, method) for link in (PsycopgLink, AsyncPsycopgLink) for method in ("execute", "run")),
    (AsyncpgLink, "run"),
    *((LinkTx, method) for method in ("execute", "fetch")),
]

#: The user's own transaction, in either runtime.
TRANSACTIONS = [
    OpenSqliteTransaction,
    postgres_executor.OpenPostgresTransaction,
    OpenMysqlTransaction,
    RedisTransaction,
]

#: Whose methods are the port's.
STORES = [SqlStore, RedisStore]
RECORDS = [SqlRecords, RedisRecords]

POINTS: dict[str, Call] = {
    "before commit": before(TRANSACTIONS, "commit"),
    "after commit": after(TRANSACTIONS, "commit"),
    "before enqueue": before([OutboxDispatcher], "fill_hot"),
    "after enqueue": after([OutboxDispatcher], "fill_hot"),
    "in claim": within("claim_mark", "claim"),
    "after claim": after(STORES, "claim", lambda given, claim: claim.rows),
    "in suspect mark": within("mark_suspect"),
    "after suspect mark": after(STORES, "mark_suspect"),
    "before handler": before([Delivery], "_deliver"),
    "in handler": after([Journal], "say", lambda given, result: given[1] == "effect"),
    "after handler": before([Settler], "add", lambda given, _: isinstance(given[2], Done)),
    "in settle": within("done"),
    "after settle": after(STORES, "settle"),
    "in retry": within("retry"),
    "in release": within("release"),
    "in renewal": within("renew"),
    "after renewal": after(STORES, "renew", lambda given, renewed: renewed),
    "in purge": within("purge"),
    "after purge": after(RECORDS, "purge"),
    "in beat": within("fleet_prolong"),
    "in run": within("claim_keys", "run_lock"),
    "in replay": within("replay"),
    "after replay": after(RECORDS, "replay"),
}


def install(store: SqlStore | RedisStore, journal: Journal) -> None:
    """Set the faults that the environment asks for."""
    if SLOW_SETTLES in os.environ:
        _slow_down(store, float(os.environ[SLOW_SETTLES]))
    for variable, number in ((VARIABLE, signal.SIGKILL), (STOP, signal.SIGSTOP)):
        if where := os.environ.get(variable):
            Fault(journal, where, number).install(store)
    limit_standstill()


def limit_standstill(change: Call = setattr) -> None:
    """Leases are short in these tests, and so is the time after which a server ends a session that stands still."""
    change(postgres_executor, "BEGIN", postgres_executor.BEGIN.replace("10s", "1s"))
    change(mysql_pool, "STANDSTILL", 1)


def _slow_down(store: SqlStore | RedisStore, seconds: float) -> None:
    settle = store.settle

    async def slow(*given: Any) -> Any:
        await _blocking(lambda: threading.Event().wait(seconds))
        return await settle(*given)

    store.settle = slow


def wrap(
    place: Any,
    method: str,
    *,
    enter: Callable[[tuple[Any, ...]], object] = lambda given: None,
    leave: Callable[[tuple[Any, ...], Any], object] = lambda given, result: None,
) -> None:
    """Do something whenever a method of a class, or a function of a module, is entered or left, in either colour."""
    original = getattr(place, method)

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

    setattr(place, method, awaited if inspect.iscoroutinefunction(original) else plain)
