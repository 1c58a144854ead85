"""From a URL, a pool, an engine or a connection to a PostgreSQL store."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from aftercommit.errors import InvalidOption, MissingDriver, UnknownStore
from aftercommit.ports import Colour
from aftercommit.stores.cockroachdb import dialect as cockroachdb
from aftercommit.stores.postgres.dialect import ASYNCPG, PSYCOPG
from aftercommit.stores.postgres.executor import PostgresExecutor
from aftercommit.stores.postgres.replication import PostgresReplication
from aftercommit.stores.postgres.wakeups import PostgresWakeups
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.store import SqlStore


class _Product(NamedTuple):
    """A database that speaks this protocol: how its texts are said through each driver."""

    name: str
    psycopg: Dialect
    asyncpg: Dialect


_POSTGRES: Final = _Product("PostgreSQL", PSYCOPG, ASYNCPG)
_COCKROACH: Final = _Product("CockroachDB", cockroachdb.PSYCOPG, cockroachdb.ASYNCPG)

#: The port that CockroachDB listens on.
_ITS_PORT: Final = 26257


class PostgresStore(SqlStore):
    """Events in a table of PostgreSQL, or of CockroachDB."""

    executor: PostgresExecutor
    wakes_others = True

    def __init__(self, executor: PostgresExecutor, dialect: Dialect, **options: Any) -> None:
        super().__init__(executor, dialect, **options)
        executor.product = dialect.name
        self._listening: set[PostgresWakeups] = set()
        self._creates = bool(options.get("create_schema"))
        self._replication: PostgresReplication | None = None

    def replicate(self, slot: str) -> None:
        """From now on its rows are read from the log, by whoever reads this slot."""
        if self.dialect.name != "PostgreSQL":
            raise InvalidOption(f"{self.dialect.name} has no replication slots", fix="leave replication out")
        self.replication = self._replication = PostgresReplication(
            self.executor, self.dialect, self._sql, self.names, self.where, slot, ordered=self.order.ordered
        )

    async def open(self) -> None:
        """What is made with the tables is made once: a slot that was dropped since is lost, and said to be."""
        was_ready = self.is_ready
        await super().open()
        if self._replication is not None and self._creates and not was_ready:
            state = await self._replication.state()
            if not state.is_capturing:
                await self._replication.create()

    async def create_schema(self) -> None:
        await super().create_schema()
        if self._replication is not None:
            await self._replication.create()

    def schema_sql(self, from_version: int = 0, to_version: int | None = None) -> str:
        script = super().schema_sql(from_version, to_version)
        is_new = from_version == 0 and to_version in (None, self._schema.version)
        return script + self._replication.script() if self._replication is not None and is_new else script

    @property
    def wakeups(self) -> PostgresWakeups | None:
        if not self.capabilities.wakes_others:
            return None
        return PostgresWakeups(self.executor, self._heartbeats, self._sql, self.names, self._listening)

    async def close(self) -> None:
        for each in list(self._listening):
            await each.close()
        await super().close()

    def abandon(self) -> None:
        for each in list(self._listening):
            each.abandon()
        if self._replication is not None:
            self._replication.abandon()
        super().abandon()


def postgres_from_url(url: str, colour: Colour, **options: Any) -> PostgresStore:
    """`postgresql://` and `postgresql+psycopg://` use psycopg, `postgresql+asyncpg://` asyncpg; so with
    `cockroachdb://`."""
    scheme, _, rest = url.partition("://")
    database, _, driver = scheme.lower().partition("+")
    product = _COCKROACH if database == "cockroachdb" else _POSTGRES
    plain = f"postgresql://{rest}"
    where = _place_of(plain, product)
    if product is _COCKROACH:
        plain = _with_port(plain)
    _check_tls(dict(parse_qsl(urlsplit(plain).query)), driver)
    if driver == "asyncpg":
        if colour is Colour.BLOCKING:
            raise UnknownStore("asyncpg is async, and Outbox blocks", fix="use AsyncOutbox, or postgresql+psycopg://")
        return _over_asyncpg(plain, where, options, product)
    if driver not in ("", "psycopg", "psycopg_async"):
        raise UnknownStore(
            f"no store speaks to PostgreSQL through {driver}", fix="use postgresql+psycopg:// or postgresql+asyncpg://"
        )
    return _over_psycopg(plain, where, colour, options, product)


def _with_port(url: str) -> str:
    """Its own, where none is named; the driver would take PostgreSQL's."""
    netloc = urlsplit(url).netloc
    login, at, hosts = netloc.rpartition("@")
    named = [host if not host or urlsplit(f"//{host}").port else f"{host}:{_ITS_PORT}" for host in hosts.split(",")]
    return url.replace(f"//{netloc}", f"//{login}{at}{','.join(named)}", 1)


def _place_of(url: str, product: _Product = _POSTGRES) -> str:
    """Hosts and database of a URL; its login stays out, of errors as well."""
    try:
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2]
        _ = [urlsplit(f"//{host}").port for host in hosts.split(",")]
        parse_qsl(parts.query, strict_parsing=bool(parts.query))
    except ValueError:
        raise _unreadable() from None
    if "@" in parts.path or parts.fragment:  # of a password that was not quoted
        raise _unreadable()
    return f"{product.name} at {hosts or 'the local socket'}{parts.path}"


def _check_tls(query: dict[str, str], driver: str) -> None:
    """Whoever asks for it must not get less in silence."""
    if driver == "asyncpg" and (unknown := sorted(query.keys() & {"ssl", "requiressl", "channel_binding"})):
        raise InvalidOption(f"asyncpg does not know {', '.join(unknown)} in a URL", fix="use sslmode=require")
    mode = query.get("sslmode") or os.environ.get("PGSSLMODE", "prefer")
    if "sslrootcert" in query and mode not in ("require", "verify-ca", "verify-full"):
        raise InvalidOption(
            f"sslrootcert stands beside sslmode={mode}, with which no certificate has to be shown",
            fix="add sslmode=verify-full",
        )


def _unreadable() -> UnknownStore:
    return UnknownStore(
        "the PostgreSQL URL cannot be read",
        fix="postgresql://user:password@host:5432/database, with %40 for @, %2F for /, %3F for ?, %23 for # and %25 "
        "for % in the password",
    )


def _over_psycopg(
    url: str,
    where: str,
    colour: Colour,
    options: dict[str, Any],
    product: _Product,
    modes: Mapping[str, Any] = MappingProxyType({}),
) -> PostgresStore:
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict

        from aftercommit.stores.postgres import psycopg_pools
    except ImportError as error:
        raise MissingDriver(
            f"psycopg with its pool is not installed ({error})", fix='pip install "aftercommit[postgres]"'
        ) from error
    try:
        conninfo_to_dict(url)
    except (ProgrammingError, UnicodeDecodeError):  # which show what could not be read, be it the password
        raise _unreadable() from None
    executor, heartbeats = psycopg_pools.over_url(url, colour, **modes), psycopg_pools.over_url(url, colour)
    return PostgresStore(executor, product.psycopg, where=where, heartbeats=heartbeats, **options)


def _over_asyncpg(url: str, where: str, options: dict[str, Any], product: _Product) -> PostgresStore:
    try:
        from aftercommit.stores.postgres import asyncpg_driver
    except ImportError as error:
        raise MissingDriver(f"asyncpg is not installed ({error})", fix='pip install "aftercommit[asyncpg]"') from error
    executor, heartbeats = asyncpg_driver.over_url(url), asyncpg_driver.over_url(url)
    return PostgresStore(executor, product.asyncpg, where=where, heartbeats=heartbeats, **options)


def postgres_from_pool(pool: Any, _: Colour, **options: Any) -> PostgresStore:
    """The user's pool of psycopg or asyncpg, which stays the user's. The pool's colour decides."""
    where = "PostgreSQL behind the given pool"
    kind = {each.__name__ for each in type(pool).__mro__}
    if kind & {"ConnectionPool", "NullConnectionPool", "AsyncConnectionPool", "AsyncNullConnectionPool"}:
        from aftercommit.stores.postgres import psycopg_pools

        return PostgresStore(psycopg_pools.over_pool(pool), PSYCOPG, where=where, **options)
    if "Pool" in kind:
        from aftercommit.stores.postgres import asyncpg_driver

        return PostgresStore(asyncpg_driver.over_pool(pool), ASYNCPG, where=where, **options)
    raise UnknownStore(
        f"the target is a {type(pool).__module__}.{type(pool).__qualname__}, and the outbox needs several connections",
        fix="pass its pool, or the URL that it was opened with",
    )


def postgres_from_connection(
    connection: Any, colour: Colour, *, connect: Callable[[], Any] | None = None, **options: Any
) -> PostgresStore:
    """Connections like this one of psycopg: opened by `connect`, else with the same parameters. This one is only
    looked at."""
    from psycopg.conninfo import make_conninfo

    info = connection.info
    product = _POSTGRES if info.parameter_status("crdb_version") is None else _COCKROACH
    where = f"{product.name} at {info.host}/{info.dbname}"
    if connect is None:
        conninfo = make_conninfo(**{**info.get_parameters(), "password": info.password or None})
        modes = {name: getattr(connection, name) for name in ("isolation_level", "read_only", "deferrable")}
        return _over_psycopg(conninfo, where, colour, options, product, modes)
    from aftercommit.stores.postgres import psycopg_link

    connection.close()
    return PostgresStore(psycopg_link.over_factory(connect), product.psycopg, where=where, **options)


def postgres_from_engine(engine: Any, _: Colour, **options: Any) -> PostgresStore:
    """A SQLAlchemy engine over psycopg or asyncpg. The engine's colour decides."""
    product = _COCKROACH if engine.dialect.name == "cockroachdb" else _POSTGRES
    where = f"{product.name} at {engine.url.host or 'the local socket'}/{engine.url.database or ''}"
    driver = engine.dialect.driver
    if driver == "asyncpg":
        from aftercommit.stores.postgres import asyncpg_driver

        return PostgresStore(asyncpg_driver.over_engine(engine), product.asyncpg, where=where, **options)
    if not driver.startswith("psycopg") or driver == "psycopg2":
        raise UnknownStore(
            f"the engine speaks to PostgreSQL through {driver}",
            fix='create_engine("postgresql+psycopg://…"), or create_async_engine("postgresql+asyncpg://…")',
        )
    from aftercommit.stores.postgres import psycopg_link

    return PostgresStore(psycopg_link.over_engine(engine), product.psycopg, where=where, **options)
