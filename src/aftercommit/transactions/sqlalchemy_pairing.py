"""Whether an engine leads to the outbox's own database, and whether its connections have transactions at all."""

from __future__ import annotations

import os
from typing import Any
from weakref import WeakSet

from sqlalchemy import Connection, Engine, Pool
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import await_only
from sqlalchemy.util.concurrency import in_greenlet

from aftercommit.errors import SchemaMissing, UnsupportedTransaction
from aftercommit.execution import Colour, Executor
from aftercommit.runtime.threads import run


class Pairing:
    """Asked once for each pool. Addresses prove little (a pooler, a second name); the store's id proves it."""

    def __init__(self, store: Any, engine: Engine | None, database: str) -> None:
        self._store = store
        self._engine = engine
        self._database = database
        self._ours: WeakSet[Pool] = WeakSet()
        #: The table was seen by somebody's transaction, so nobody has to make it.
        self.has_table = False

    def may_be(self, engine: Engine) -> bool:
        """False when it certainly leads elsewhere. Asks nobody."""
        if self._is_known(engine):
            return True
        if engine.dialect.name not in (self._database, "mariadb" if self._database == "mysql" else ""):
            return False
        path = engine.url.database
        if self._database != "sqlite" or not path or path == ":memory:" or path.startswith("file:"):
            return True  # a creator may open another file than the URL says
        return _is_same_file(path, self._store.path)

    def refuse_other(self, engine: Engine) -> None:
        if not self.may_be(engine):
            raise self._other(engine)

    def check(self, connection: Connection) -> None:
        """Refuse a connection to another database."""
        engine = connection.engine
        if not self._is_known(engine):
            if not self._is_ours(connection):
                raise self._other(engine)
            self._ours.add(engine.pool)
        if self._database == "sqlite" and not self._store.is_ready and not self.has_table:
            self._refuse_without_table(connection)

    def _refuse_without_table(self, connection: Connection) -> None:
        if self._id_at(connection) is None:
            raise SchemaMissing(
                f"the table {self._store.names.table} is not in {self._store.where}, and while a transaction is open "
                "nobody else can make it",
                fix="start the outbox, or call its create_schema(), before the transaction",
            )
        self.has_table = True

    def _is_ours(self, connection: Connection) -> bool:
        if self._database == "sqlite":
            return _is_same_file(_file_of(connection), self._store.path)
        return self._has_same_id(connection)

    def _is_known(self, engine: Engine) -> bool:
        return (self._engine is not None and engine.pool is self._engine.pool) or engine.pool in self._ours

    def _has_same_id(self, connection: Connection) -> bool:
        if not self._store.is_ready:
            self._open()
        return bool(self._id_at(connection) == self._store.store_id)

    def _id_at(self, connection: Connection) -> str | None:
        """Under a savepoint: the caller's transaction goes on."""
        try:
            with connection.begin_nested():
                found: str | None = connection.exec_driver_sql(self._store.store_id_sql).scalar()
        except DBAPIError:  # there is no such table, or nothing in it is ours to read
            return None
        return found

    def _open(self) -> None:
        """Our own id is read when the store is opened, on a connection of its own."""
        if self._store.colour is Colour.BLOCKING:
            run(self._store.open())
        elif in_greenlet():
            await_only(self._store.open())

    def _other(self, engine: Engine) -> UnsupportedTransaction:
        url = engine.url
        theirs = f"{engine.dialect.name} at {url.host or 'this machine'}/{url.database or ''}"
        return UnsupportedTransaction(
            f"tx is bound to {theirs}, and the outbox is in {self._store.where}: the event would not be part of your "
            "transaction",
            fix="use the outbox of that database; each database has its own",
        )


def _file_of(connection: Connection) -> str:
    rows = connection.exec_driver_sql("PRAGMA database_list").all()
    return str(next((row[2] for row in rows if row[1] == "main"), ""))


def _is_same_file(path: str, ours: str) -> bool:
    return bool(path) and os.path.realpath(path) == os.path.realpath(ours)


def is_autocommit(bind: Engine | Connection) -> bool:
    """As SQLAlchemy itself decides it: by the option, else by what the engine sets on every new connection."""
    option = bind.get_execution_options().get("isolation_level")
    level = option if option is not None else getattr(bind.dialect, "_on_connect_isolation_level", None)
    return level is not None and str(level).upper() == "AUTOCOMMIT"


def is_driver_autocommit(connection: Connection, executor: Executor) -> bool:
    """By what the driver says of itself, where it can be asked."""
    raw: Any = connection.connection.driver_connection
    if connection.dialect.driver == "asyncpg":  # begins with the first statement, and so is not begun yet
        return bool(getattr(connection.connection.dbapi_connection, "autocommit", False))
    if connection.dialect.name == "sqlite" and raw.isolation_level is None and not raw.in_transaction:
        return True
    adopted = executor.adopt(raw)
    return adopted is not None and not adopted.is_active and not adopted.is_begun
