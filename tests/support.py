"""One test for both runtimes: a world runs an `async def` scenario under threads or under asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import cached_property
from pathlib import Path
from typing import Any

from aftercommit import AsyncOutbox, Outbox
from aftercommit.runtime.threads import run
from tests.databases import Database, MysqlDatabase, PostgresDatabase, SqliteDatabase
from tests.redis_database import RedisDatabase

#: Far longer than anything takes, far shorter than the suite's own limit.
PATIENCE = 20.0


class Signal:
    """Set from any thread, awaited in either world."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self, *_: object) -> None:
        self._event.set()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def wait_here(self, timeout: float = PATIENCE) -> None:
        """Block this thread: for sync handlers and helper threads."""
        assert self._event.wait(timeout), "the signal never came"

    async def wait(self, timeout: float = PATIENCE) -> None:
        """For scenarios and async handlers, in either world."""
        await _blocking(lambda: self.wait_here(timeout))


class Collector(list[Any]):
    """What handlers saw, in order; `await collector.reach(n)` waits until it has n items."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()

    def add(self, item: Any) -> None:
        with self._changed:
            self.append(item)
            self._changed.notify_all()

    def _wait(self, count: int, timeout: float) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self) >= count, timeout), f"{len(self)} of {count} came: {self}"

    async def reach(self, count: int, timeout: float = PATIENCE) -> None:
        await _blocking(lambda: self._wait(count, timeout))


async def _blocking(wait: Callable[[], None]) -> None:
    """Wait without stopping the event loop, if there is one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        wait()
    else:
        await asyncio.to_thread(wait)


class World:
    """A runtime to run a scenario in, over a database: a SQLite file of its own, or a server's at `url`."""

    def __init__(
        self, name: str, folder: Path, database: str = "sqlite", url: str | None = None, table: str = "outbox_event"
    ) -> None:
        self.name = name
        #: On Redis what keys begin with; statements of tests say `outbox_event` there, too.
        self.table = table
        self.folder = folder
        self.database = database
        self.path = folder / "outbox.db"
        self.url = f"sqlite:///{self.path}" if url is None else url
        self._made: list[Any] = []

    def __repr__(self) -> str:
        return f"World({self.name}, {self.database})"

    @property
    def is_async(self) -> bool:
        return self.name == "asyncio"

    def outbox(self, target: Any = None, *, wiring: str | None = None, **options: Any) -> Any:
        """An outbox whose methods are awaited in both worlds; closed when the scenario ends."""
        kind = AsyncOutbox if self.is_async else Outbox
        make = kind if wiring is None else getattr(kind, wiring)
        if target is None and self.database != "sqlite":
            options.setdefault("create_schema", True)
        if self.database == "redis":
            # Rows that are done stay, as they do elsewhere: a test wants to see them.
            kept = {} if wiring == "writer_only" else {"delete_completed": False}
            options = {"table": self.table, **kept, **options}
        outbox = make(self.url if target is None else target, **options)
        adapted = outbox if self.is_async else Awaited(outbox)
        self._made.append(adapted)
        return adapted

    def run(self, scenario: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        async def whole() -> Any:
            try:
                return await scenario()
            finally:
                for outbox in reversed(self._made):
                    await outbox.close()

        return asyncio.run(whole()) if self.is_async else run(whole())

    # -------------------------------------------------------- the table, seen by somebody else

    @cached_property
    def somebody(self) -> Database:
        """Who looks: on a connection of its own."""
        if self.database == "sqlite":
            return SqliteDatabase(self.path)
        if self.database == "redis":
            return RedisDatabase(self.url, self.table)
        return (PostgresDatabase if self.database == "postgres" else MysqlDatabase)(self.url)

    def rows(self, sql: str = "SELECT * FROM outbox_event ORDER BY position", *parameters: object) -> list[Any]:
        """Only what is committed. Times in microseconds, whatever the database."""
        return self.somebody.read(sql, *parameters)

    def change(self, sql: str, *parameters: object) -> int:
        """Write, committed. Times as in `rows`, in the text of the statement (`lease_until = 0`) and as parameters."""
        return self.somebody.write(sql, *parameters)

    def now(self) -> int:
        """The database's clock, in microseconds."""
        return self.somebody.now()

    def statuses(self) -> list[int]:
        return [row["status"] for row in self.rows()]

    async def until(self, sql: str, *parameters: object, timeout: float = PATIENCE) -> None:
        """Wait until a query over committed rows gives a true value: for states of the table, which sends no signal."""
        await self._until(lambda: self.rows(sql, *parameters)[0][0], sql, timeout)

    async def until_settled(self, count: int, status: int = 1, timeout: float = PATIENCE) -> None:
        """Wait until that many rows have this status."""
        what = f"{count} rows with status {status}"
        await self._until(lambda: self.somebody.has_settled(count, status), what, timeout)

    async def until_counted(self, outbox: Any, times: int = 1, counter: str = "dispatch_success") -> None:
        """Others may see a settled row before it is counted."""
        counts = outbox._engine.meter.counts
        await self._until(lambda: counts().get(counter, 0) >= times, f"{times} {counter}", PATIENCE)

    async def _until(self, look: Callable[[], object], what: str, timeout: float) -> None:
        watch = threading.Event()

        def wait() -> None:
            for _ in range(int(timeout / 0.005)):
                if look():
                    return
                watch.wait(0.005)
            raise AssertionError(f"never true: {what}; rows: {[dict(row) for row in self.rows()]}")

        await _blocking(wait)


class Awaited:
    """A sync object whose methods and blocks are awaited. Nothing ever suspends, so threads.run() can step it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @property
    def plain(self) -> Any:
        return self._inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name in _PLAIN or not callable(value):
            return Awaited(value) if name in ("dead", "pending", "records") else value

        if name in ("transaction", "savepoint"):
            return lambda *a, **k: Awaited(value(*a, **k))

        async def awaited(*arguments: Any, **keywords: Any) -> Any:
            keywords = {k: _bare(v) for k, v in keywords.items()}
            result = value(*map(_bare, arguments), **keywords)
            return Awaited(result) if name == "begin" else result

        return awaited

    async def __aenter__(self) -> Awaited:
        self._inner.__enter__()
        return self

    async def __aexit__(self, *exc: Any) -> Any:
        return self._inner.__exit__(*exc)


#: What is no coroutine in AsyncOutbox either.
_PLAIN = {
    *("handler", "relay", "fallback", "include", "subscribe", "upcast", "attach"),
    *("register", "health", "config", "is_started", "_engine", "_current", "_store", "_new_engine"),
    *("after_commit", "after_rollback", "connection", "is_transaction_active", "current_connection"),
}


def _bare(value: Any) -> Any:
    return value.plain if isinstance(value, Awaited) else value


def painted(colour: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function as `def` or as `async def`."""
    if colour == "sync":
        return function

    async def handler(*arguments: Any) -> Any:
        return function(*arguments)

    return handler
