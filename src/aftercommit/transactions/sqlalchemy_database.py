"""Whether an engine leads to the outbox's own database, and whether its connections have transactions at all."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakSet

from sqlalchemy import Connection, Engine, Pool
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import await_only
from sqlalchemy.util.concurrency import in_greenlet

from aftercommit.errors import SchemaMissing, UnsupportedTransaction
from aftercommit.ports import Colour, EventStore, SqlTable
from aftercommit.runtime.threads import run


class SameDatabase:
    """Asked once for each pool. Addresses prove little (a pooler, a second name); the store's id proves it."""

    def __init__(self, store: EventStore, table: SqlTable, engine: Engine | None) -> None:
        self._store = store
        self._table = table
        self._engine = engine
        self._ours: WeakSet[Pool] = WeakSet()
        #: The table was seen by somebody's transaction, so nobody has to make it.
        self.has_table = False

    def may_be(self, engine: Engine) -> bool:
        """False when it certainly leads elsewhere. Asks nobody."""
        if self._is_known(engine):
            return True
        return self._table.may_be(engine.dialect.name, engine.url.database)

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
        if self._table.has_one_writer and not self._store.is_ready and not self.has_table:
            self._refuse_without_table(connection)

    def _refuse_without_table(self, connection: Connection) -> None:
        if not self._answer_at(connection, self._table.id_sql):
            raise SchemaMissing(
                f"the table {self._table.names.table} is not in {self._store.where}, and while a transaction is open "
                "nobody else can make it",
                fix="start the outbox, or call its create_schema(), before the transaction",
            )
        self.has_table = True

    def _is_ours(self, connection: Connection) -> bool:
        if not self._table.knows_itself:
            self._open()
        return self._table.is_own(self._answer_at(connection, self._table.whose_sql))

    def _is_known(self, engine: Engine) -> bool:
        return (self._engine is not None and engine.pool is self._engine.pool) or engine.pool in self._ours

    def _answer_at(self, connection: Connection, question: str) -> Sequence[Sequence[object]]:
        """Under a savepoint: the caller's transaction goes on. Nothing where there is no such table, or nothing in it
        is ours to read."""
        try:
            with connection.begin_nested():
                return connection.exec_driver_sql(question).all()
        except DBAPIError:
            return ()

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


def is_autocommit(bind: Engine | Connection) -> bool:
    """As SQLAlchemy itself decides it: by the option, else by what the engine sets on every new connection."""
    option = bind.get_execution_options().get("isolation_level")
    level = option if option is not None else getattr(bind.dialect, "_on_connect_isolation_level", None)
    return level is not None and str(level).upper() == "AUTOCOMMIT"


def is_driver_autocommit(connection: Connection, table: SqlTable) -> bool:
    """By what the driver says of itself, where it can be asked."""
    if connection.dialect.driver == "asyncpg":  # begins with the first statement, and so is not begun yet
        return bool(getattr(connection.connection.dbapi_connection, "autocommit", False))
    return table.is_autocommit(connection.connection.driver_connection)
