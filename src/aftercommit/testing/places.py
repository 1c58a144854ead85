"""Where the events of a test are: in a SQLite file of its own, or in the transaction that the test rolls back."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from msgspec.structs import replace

from aftercommit.base import OutboxBase
from aftercommit.config import OutboxConfig
from aftercommit.ports import Colour, Runtime
from aftercommit.stores.sql.store import SqlStore
from aftercommit.stores.sqlite.executor import SqliteExecutor
from aftercommit.stores.sqlite.target import SqliteStore, opener
from aftercommit.testing.clock import ClockedStatements, VirtualClock
from aftercommit.testing.process import Mortal, Quiet, Still, StillThreads, Watch
from aftercommit.testing.written import Table


@dataclass(frozen=True, slots=True)
class Opened:
    """A store of a place, and a look at its table."""

    store: SqlStore
    table: Table


class Place(Protocol):
    """Opens the stores of a test: one for the outbox, one for the kit."""

    #: What write() of the kit passes as tx; None: it opens a transaction of its own.
    tx: Any
    #: Whether a handler may be run in a thread of its own.
    has_threads: bool

    def open(self, outbox: OutboxBase, clock: VirtualClock) -> Opened: ...

    def close(self) -> None: ...


def opened(clock: VirtualClock, make: Callable[..., SqlStore]) -> Opened:
    """A store whose clock is the test's, also for rows that SQLAlchemy inserts."""
    made: list[ClockedStatements] = []

    def statements(*given: Any) -> ClockedStatements:
        made.append(clock.statements(*given))
        return made[0]

    store = make(statements=statements)

    def tell() -> None:
        if store.sql_table is not None:
            store.sql_table.now = clock.literal(store.dialect)

    tell()
    clock.on_change.append(tell)
    return Opened(store, Table(store, made[0]))


async def value_of(result: Any) -> Any:
    """What a library gives, in either colour."""
    return await result if isawaitable(result) else result


def options_of(config: OutboxConfig) -> dict[str, Any]:
    """What a store is made with, but for what would hide from a test what was written."""
    return {**config.store_options, "delete_completed": False}


def options_of_file(config: OutboxConfig) -> dict[str, Any]:
    """The same for SQLite, which has neither schemas nor writers beside each other."""
    of_servers = ("schema", "serialize_keys")
    return {
        **{name: value for name, value in options_of(config).items() if name not in of_servers},
        "create_schema": True,
    }


class TemporaryFile:
    """A SQLite file for one test. What it holds need not survive a power cut."""

    tx = None
    has_threads = True

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="aftercommit-test-")
        self._path = str(Path(self._folder, "outbox.db"))
        self._stores: list[SqlStore] = []

    @property
    def url(self) -> str:
        return f"sqlite:///{quote(self._path)}"

    def open(self, outbox: OutboxBase, clock: VirtualClock) -> Opened:
        options = options_of_file(outbox.config)
        found = opened(
            clock, partial(SqliteStore, opener(self._path, is_durable=False), self._path, outbox._colour, **options)
        )
        found.store.where = f"the file of outbox_test, unless outbox_test.join(session) leads it to yours ({self.url})"
        self._stores.append(found.store)
        return found

    def close(self) -> None:
        """Without waiting for anything: the loop of an async test may be gone."""
        for store in self._stores:
            if isinstance(store.executor, SqliteExecutor):
                store.executor.drop()
        shutil.rmtree(self._folder, ignore_errors=True)


# ---------------------------------------------------------------- leading an outbox there

#: What `OutboxBase._settle_in` sets.
_OF_A_PLACE = (
    *("config", "_store", "_target", "_needs_transaction", "_sqlalchemy"),
    *("_engine", "_make_engine", "_ending", "_resumes"),
)


@contextmanager
def led_to(outbox: OutboxBase, store: SqlStore, clock: VirtualClock) -> Iterator[None]:
    """Until the end of the block the outbox writes there. What it has started elsewhere goes on there."""
    before = {name: getattr(outbox, name) for name in _OF_A_PLACE}
    # A program whose store needs no transaction opens none.
    needs = outbox._store.capabilities.needs_transaction
    store.capabilities = replace(store.capabilities, needs_transaction=needs)

    def forget_now() -> None:
        outbox._sqlalchemy = None  # which has the clock in its INSERT

    outbox._settle_in(store, store, outbox.config, Quiet)
    clock.on_change.append(forget_now)
    try:
        yield
    finally:
        clock.on_change.remove(forget_now)
        vars(outbox).update(before)


def still_runtime(outbox: OutboxBase, place: Place, clock: VirtualClock, watch: Watch) -> Callable[[Mortal], Runtime]:
    """What handlers run on, made where it is needed."""

    def make(store: Mortal) -> Any:
        runtime: Still
        if _is_of_django(outbox):
            from aftercommit.testing.in_django import StillBlock  # noqa: PLC0415

            runtime = StillBlock()
        elif outbox._colour is Colour.ASYNC:
            from aftercommit.testing.tasks import StillTasks  # noqa: PLC0415  (asyncio is loaded when wanted)

            runtime = StillTasks(outbox.config.worker_count)
        else:
            runtime = StillThreads()
        return runtime.watched_by(clock, watch, store, keeps_timeouts=place.has_threads)

    return make


def place_for(outbox: OutboxBase) -> Place:
    """Django has a database for tests, and rolls back by itself; all others get a file."""
    if _is_of_django(outbox):
        from aftercommit.testing.in_django import TestDatabase  # noqa: PLC0415

        return TestDatabase()
    return TemporaryFile()


def _is_of_django(outbox: OutboxBase) -> bool:
    return any(each.__module__.startswith("aftercommit.django") for each in type(outbox).__mro__)
