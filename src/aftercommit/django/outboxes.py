"""The outbox of each database, made when first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, Self, Unpack, cast

from django.core.exceptions import SynchronousOnlyOperation
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import atomic
from django.utils.asyncio import async_unsafe
from django.utils.connection import ConnectionProxy
from django.utils.functional import SimpleLazyObject

from aftercommit.config import OutboxOptions
from aftercommit.django.conf import options_of
from aftercommit.django.databases import is_in_memory
from aftercommit.django.effects import AtomicTx
from aftercommit.django.store import DjangoStore
from aftercommit.django.transactions import AtomicTransaction, is_open, refuse_no_block
from aftercommit.django.workers import BlockRuntime, WorkerRuntime
from aftercommit.effects import HandlerEffects, refuse_impossible
from aftercommit.engine import Engine
from aftercommit.errors import InvalidOption, NotInTransaction, OutboxError, UnknownStore, UnsupportedTransaction
from aftercommit.events.durations import Duration, seconds_of
from aftercommit.handlers.handler import AnyHandler
from aftercommit.options import Wiring
from aftercommit.outbox import Outbox
from aftercommit.polling.manual import DrainResult
from aftercommit.ports import Runtime, TxContext
from aftercommit.runtime.threads import ThreadRuntime, run

#: Options of the table, which the store wants.
_OF_THE_STORE: Final = ("target", "table", "schema", "create_schema", "delete_completed", "header_codec")

#: In an atomic block nobody else sees the claim, so nobody can take it over, and nobody else could renew it.
_NEVER_RUNS_OUT: Final = timedelta(days=365)


class DjangoOptions(OutboxOptions, total=False):
    """The options of settings.AFTERCOMMIT."""

    #: Where the workers' own connections lead to, if not to where DATABASES says.
    target: Any


class DjangoOutbox(Outbox):
    """The outbox of one database of settings.DATABASES. `write()` needs no tx: it joins the atomic block."""

    def __init__(self, alias: str = DEFAULT_DB_ALIAS, **given: Unpack[DjangoOptions]) -> None:
        self.alias = alias
        options: dict[str, Any] = {**given}
        # Tables are made by migrations, unless somebody says otherwise.
        for_store: dict[str, Any] = {"create_schema": False}
        for_store |= {name: options.pop(name) for name in _OF_THE_STORE if name in options}
        for_store |= {name: options[name] for name in ("ordered", "on_dead", "serialize_keys") if name in options}
        self._store_options = for_store
        super().__init__(DjangoStore(alias, **for_store), **options)

    @property
    def _djangos(self) -> DjangoStore:
        return cast("DjangoStore", self._store)

    @classmethod
    def _wired(cls, wiring: Wiring, target: Any, options: Mapping[str, Any]) -> Self:  # noqa: ARG003
        raise InvalidOption(
            f"an outbox of Django has no {wiring.value}(): a process that does not call start() only writes",
            fix='choose by options, as for a single process: AFTERCOMMIT = {"default": {"unroutable_grace": 0}}',
        )

    def transaction(self, *, isolation: str | None = None) -> Any:
        """An atomic block on this database; nested it is a savepoint."""
        if isolation is not None:
            raise InvalidOption(
                f"isolation is {isolation!r}, and atomic blocks of Django take none",
                fix=f"DATABASES[{self.alias!r}]['OPTIONS'] has the isolation level of all of them",
            )
        return atomic(using=self.alias)

    def begin(self, *, isolation: str | None = None) -> Any:
        return run(self._djangos.executor.begin())  # which says what to use instead

    def start(self) -> Self:
        """Start delivering in the background, on connections of the outbox's own."""
        if is_in_memory(connections[self.alias]):
            raise UnknownStore(
                f"the database {self.alias!r} is in memory, where workers cannot reach it",
                fix='call outbox.drain(), or give it a file; in tests "TEST": {"NAME": BASE_DIR / "test.sqlite3"}',
            )
        return super().start()

    def drain(self, timeout: Duration | None = None) -> DrainResult:
        """Deliver until nothing is due. In an atomic block: what that block sees, on its connection, in this thread."""
        if not self._djangos.executor.is_on_djangos_connection:
            return super().drain(timeout)
        self._needs_delivery("drain")
        limit = None if timeout is None else seconds_of(timeout, name="timeout")
        with self._engine_in_block() as engine:
            return run(engine.manual.drain(limit, is_started=False))

    def poll(self) -> int:
        """One poll cycle; how many events it claimed. In an atomic block as drain()."""
        if not self._djangos.executor.is_on_djangos_connection:
            return super().poll()
        self._needs_delivery("poll")
        with self._engine_in_block() as engine:
            return run(engine.manual.poll(is_started=False))

    # ------------------------------------------------------------ inside

    @contextmanager
    def _engine_in_block(self) -> Iterator[Engine]:
        config, runtime = replace(self.config, lock_timeout=_NEVER_RUNS_OUT), BlockRuntime()
        try:
            yield Engine(runtime, self._djangos, self._router, config)
        finally:
            run(runtime.close())

    def _runtime(self) -> Runtime:
        return self._engine.runtime if self._engine is not None else WorkerRuntime(lambda: self.is_started)

    def _effects_of(self, handler: AnyHandler, *, is_new: bool = False) -> HandlerEffects:
        if is_new:
            refuse_impossible(self, handler, is_ambient=True)
        return HandlerEffects(self, handler, lambda *_: AtomicTx(self.alias, self._djangos))

    def _context(self, tx: Any) -> TxContext:
        """The atomic block of this thread. A connection of Django may be given for clearness."""
        if isinstance(tx, BaseDatabaseWrapper | ConnectionProxy):
            if tx.alias != self.alias:
                raise UnsupportedTransaction(
                    f"tx is a connection to the database {tx.alias!r}, this outbox is of {self.alias!r}",
                    fix=f"outbox_for({tx.alias!r}).write(event)",
                )
        elif tx is not None:
            return super()._context(tx)
        try:
            _refuse_loop()
        except SynchronousOnlyOperation:
            raise NotInTransaction(
                "write() was called in async code, where Django has no transactions",
                fix="await sync_to_async(place_order)(…), with transaction.atomic(): … outbox.write(event) inside it",
            ) from None
        connection = connections[self.alias]
        if not is_open(connection):
            raise refuse_no_block(self.alias)
        return AtomicTransaction(connection, self._djangos.vendor.tx(connection), self._djangos)


@async_unsafe
def _refuse_loop() -> None:
    """Django knows where its connections must not be used."""


_outboxes: Final[dict[str, DjangoOutbox]] = {}
_making: Final = ThreadRuntime().lock()


def outbox_for(alias: str = DEFAULT_DB_ALIAS) -> DjangoOutbox:
    """The outbox of a database: always the same one, with the options of settings.AFTERCOMMIT."""
    with _making:
        if alias not in _outboxes:
            if alias not in connections:
                raise InvalidOption(
                    f"there is no database {alias!r} in settings.DATABASES", fix=f"use one of {', '.join(connections)}"
                )
            _outboxes[alias] = DjangoOutbox(alias, **options_of(alias))
        return _outboxes[alias]


def default_outbox() -> Any:
    """The outbox of the default database. With wrong settings one that says so when it is used: they must not keep the
    modules that import it, and so `manage.py check`, from being loaded."""
    try:
        return outbox_for()
    except OutboxError:
        return SimpleLazyObject(outbox_for)
