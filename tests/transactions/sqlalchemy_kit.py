"""What the tests of SQLAlchemy share: a shop with orders on every database and driver, in either colour."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import create_engine, event, insert
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.support import Collector, World

#: Database, runtime, the scheme of the outbox's URL and of the engine's.
WAYS = {
    "sqlite-threads": ("sqlite", "threads", "sqlite", "sqlite"),
    "sqlite-asyncio": ("sqlite", "asyncio", "sqlite", "sqlite+aiosqlite"),
    "postgres-threads": ("postgres", "threads", "postgresql", "postgresql+psycopg"),
    "postgres-asyncio": ("postgres", "asyncio", "postgresql", "postgresql+psycopg"),
    "postgres-asyncpg": ("postgres", "asyncio", "postgresql+asyncpg", "postgresql+asyncpg"),
    "mariadb-threads": ("mariadb", "threads", "mysql", "mysql+pymysql"),
    "mariadb-asyncio": ("mariadb", "asyncio", "mysql", "mysql+asyncmy"),
}


class Base(DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "shop_customer"
    id: Mapped[int] = mapped_column(primary_key=True)


class Order(Base):
    """Its customer is looked for at COMMIT, where the database can wait for that long."""

    __tablename__ = "shop_order"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer_id: Mapped[int | None] = mapped_column(default=None)


@event.listens_for(Order.__table__, "after_create")
def _look_late(table: Any, connection: Any, **_: Any) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(
            "ALTER TABLE shop_order ADD FOREIGN KEY (customer_id) REFERENCES shop_customer"
            " DEFERRABLE INITIALLY DEFERRED"
        )
    elif connection.dialect.name == "sqlite":  # which takes a foreign key only with its table
        connection.exec_driver_sql("DROP TABLE shop_order")
        connection.exec_driver_sql(
            "CREATE TABLE shop_order (id INTEGER PRIMARY KEY,"
            " customer_id INTEGER REFERENCES shop_customer (id) DEFERRABLE INITIALLY DEFERRED)"
        )


class Shop:
    """An engine of the world's colour, an outbox on it, and what its handler of "T" saw."""

    def __init__(self, way: str, folder: Path, url: str | None = None) -> None:
        database, runtime, scheme, engine_scheme = WAYS[way]
        url = None if url is None else urlsplit(url)._replace(scheme=scheme).geturl()
        self.world = World(runtime, folder, database, url)
        self.is_async = self.world.is_async
        address = self.world.url.partition("://")[2]
        self.engine_url = f"{engine_scheme}://{address}"
        self._outboxes: list[Any] = []
        self._engines: list[Any] = []
        self.engine: Any = self.new_engine()
        self.seen = Collector()

    def new_engine(self, **options: Any) -> Any:
        engine = self.bare_engine(**options)
        if self.world.database == "sqlite":
            _with_real_transactions(sync_engine(engine))
        return engine

    def bare_engine(self, **options: Any) -> Any:
        """As it comes."""
        engine = (create_async_engine if self.is_async else create_engine)(self.engine_url, **options)
        self._engines.append(engine)
        return engine

    def outbox(self, target: Any = None, **options: Any) -> Any:
        """Not started; its handler keeps what it saw. Delivers from memory alone unless told otherwise."""
        if self.world.database != "sqlite":
            options.setdefault("create_schema", True)
        outbox = self.world.outbox(target or self.engine, **({"poller_enabled": False} | options))
        self._outboxes.append(outbox)
        outbox.register("T", lambda seen: self.seen.add(seen.payload_json.strip('"')))
        return outbox

    def run(self, scenario: Callable[[], Any]) -> Any:
        """With the shop's tables, and without connections afterwards."""

        async def whole() -> Any:
            await self.on_connection(Base.metadata.create_all)
            try:
                return await scenario()
            finally:
                for outbox in self._outboxes:
                    await outbox.close()  # before its engine
                for engine in self._engines:
                    await self._dispose(engine)

        return self.world.run(whole)

    async def _dispose(self, engine: Any) -> None:
        if self.is_async:
            await engine.dispose()
        else:
            engine.dispose()

    async def on_connection(self, work: Callable[[Any], Any]) -> Any:
        """Run it on a (sync) connection, committed at its end."""
        if self.is_async:
            async with self.engine.begin() as connection:
                return await connection.run_sync(work)
        with self.engine.begin() as connection:
            return work(connection)

    async def in_session(self, work: Callable[[Session], Any], engine: Any = None, **options: Any) -> Any:
        """Run it with a (sync) session that is closed at its end."""
        bind = engine or self.engine
        if self.is_async:
            async with AsyncSession(bind, **options) as session:
                return await session.run_sync(work)
        with Session(bind, **options) as session:
            return work(session)

    def committed(self) -> list[str]:
        """The payloads that somebody else sees, in order of position."""
        return [row["payload"].strip('"') for row in self.world.rows()]


def sync_engine(engine: Any) -> Any:
    return getattr(engine, "sync_engine", engine)


def _with_real_transactions(engine: Any) -> None:
    """As SQLAlchemy's documents tell: the driver of Python begins too late for savepoints."""

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")


def plain(outbox: Any) -> Any:
    """The outbox as sync code uses it: on a session write() needs no await in either colour."""
    return getattr(outbox, "plain", outbox)


def orphan() -> Any:
    """A statement whose mistake is found at COMMIT."""
    return insert(Order).values(customer_id=999_999)


def statements(engine: Any) -> list[tuple[str, bool]]:
    """What runs on an engine from now on, and whether it is one for many rows."""
    seen: list[tuple[str, bool]] = []

    @event.listens_for(sync_engine(engine), "before_cursor_execute")
    def keep(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool) -> None:
        seen.append((statement, executemany))

    return seen
