"""The store of a database of Django: in an atomic block on its connection, elsewhere on connections of its own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NoReturn, TypeVar

from django.db import Error, connections
from django.db.transaction import atomic
from msgspec.structs import replace

from aftercommit.django.databases import Vendor, is_in_memory, place_of, vendor_of
from aftercommit.errors import SchemaMissing, UnknownStore, UnsupportedTransaction
from aftercommit.ports import AdoptedTx, Colour, Tx
from aftercommit.runtime.threads import run
from aftercommit.stores.detect import open_store
from aftercommit.stores.sql.execution import Executor, Fault
from aftercommit.stores.sql.store import SqlStore

T = TypeVar("T")


class DjangoStore(SqlStore):
    """Events in a table that Django's migrations have made."""

    executor: DjangoExecutor

    def __init__(self, alias: str, *, target: Any = None, **options: Any) -> None:
        self.vendor = vendor_of(alias)
        executor = DjangoExecutor(alias, self.vendor, target)
        super().__init__(executor, self.vendor.dialect, where=place_of(alias), **options)
        # An event with a key waits in the table for its claim, wherever it is written.
        self.capabilities = replace(self.capabilities, leases_firsts=False)
        self._alias = alias

    def _is_alone(self) -> bool:
        return not self.executor.is_on_djangos_connection

    def _explain(self, error: Exception) -> None:
        try:
            super()._explain(error)
            if isinstance(error, SchemaMissing):
                raise error
        except SchemaMissing as missing:
            missing.fix = f"python manage.py migrate aftercommit --database={self._alias}"
            raise


class BlockExecutor:
    """Runs everything on Django's connection of this thread: in its atomic block, else in one of its own."""

    colour = Colour.BLOCKING

    def __init__(self, alias: str, vendor: Vendor) -> None:
        self._alias = alias
        self._vendor = vendor

    async def fetch(self, sql: str, parameters: Sequence[object] = (), *, writes: bool = True) -> list[Any]:
        return await self.transact(lambda tx: tx.fetch(sql, parameters))

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return await self.transact(lambda tx: tx.execute(sql, parameters))

    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], *, writes: bool = True) -> T:
        with atomic(using=self._alias):
            return await work(self._vendor.tx(connections[self._alias]))

    async def begin(self, isolation: str | None = None) -> NoReturn:
        raise UnsupportedTransaction(
            "in Django a transaction is an atomic block", fix=f"with transaction.atomic(using={self._alias!r}): …"
        )

    def adopt(self, connection: object) -> AdoptedTx | None:
        return None

    def fault_of(self, error: Exception) -> Fault:
        cause = error.__cause__ if isinstance(error, Error) else error  # Django wraps the driver's error
        return self._vendor.fault_of(cause) if isinstance(cause, Exception) else Fault.OTHER

    async def close(self) -> None:
        """It is Django's to close."""

    def abandon(self) -> None:
        """It is Django's to know."""


class DjangoExecutor(BlockExecutor):
    """Asks anew for each statement: in a thread that has an atomic block open, the outbox must not wait for it."""

    def __init__(self, alias: str, vendor: Vendor, target: Any = None) -> None:
        super().__init__(alias, vendor)
        self._target = target
        self._block = BlockExecutor(alias, vendor)
        self._own: Executor | None = None
        self._name: object = None

    @property
    def is_on_djangos_connection(self) -> bool:
        """Whether a statement now would run on Django's connection of this thread."""
        connection = connections[self._alias]
        return bool(connection.in_atomic_block) or is_in_memory(connection)

    def _here(self) -> Executor:
        return self._block if self.is_on_djangos_connection else self._own_now()

    def _own_now(self) -> Executor:
        """Test runners give the database another name; nothing may go to the old one after that."""
        connection = connections[self._alias]
        name = connection.settings_dict["NAME"]
        if self._own is None or self._name != name:
            if self._own is not None:
                run(self._own.close())
            own = self._vendor.own(connection) if self._target is None else self._given()
            self._own, self._name = own, name
        return self._own

    def _given(self) -> Executor:
        store = open_store(self._target, Colour.BLOCKING)
        if not isinstance(store, SqlStore):
            raise UnknownStore(
                f"the target of the database {self._alias!r} leads to {store!r}, which runs no SQL",
                fix="give it a target that leads to the database of the same name, or none",
            )
        return store.executor

    async def fetch(self, sql: str, parameters: Sequence[object] = (), *, writes: bool = True) -> list[Any]:
        return await self._here().fetch(sql, parameters, writes=writes)

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return await self._here().execute(sql, parameters)

    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], *, writes: bool = True) -> T:
        return await self._here().transact(work, writes=writes)

    def adopt(self, connection: object) -> AdoptedTx | None:
        return None if is_in_memory(connections[self._alias]) else self._own_now().adopt(connection)

    def fault_of(self, error: Exception) -> Fault:
        """Django wraps what its connections raise. The rest is of the outbox's own, which may have another driver."""
        if self._own is None or isinstance(error, Error):
            return super().fault_of(error)
        return self._own.fault_of(error)

    async def close(self) -> None:
        if self._own is not None:
            await self._own.close()

    def abandon(self) -> None:
        if self._own is not None:
            self._own.abandon()
