"""From a URL, a pool, an engine or a connection to a PostgreSQL store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from aftercommit.errors import MissingDriver, UnknownStore
from aftercommit.execution import Colour
from aftercommit.stores.postgres.dialect import ASYNCPG, PSYCOPG
from aftercommit.stores.postgres.wakeups import ListeningExecutor, PostgresWakeups
from aftercommit.stores.sql.statements import Dialect
from aftercommit.stores.sql.store import SqlStore


class PostgresStore(SqlStore):
    """Events in a PostgreSQL table."""

    executor: ListeningExecutor

    def __init__(self, executor: ListeningExecutor, dialect: Dialect, **options: Any) -> None:
        super().__init__(executor, dialect, **options)
        self._listening: set[PostgresWakeups] = set()

    @property
    def wakeups(self) -> PostgresWakeups:
        return PostgresWakeups(self.executor, self._beside, self._sql, self.names, self._listening)

    async def close(self) -> None:
        for each in list(self._listening):
            await each.close()
        await super().close()

    def abandon(self) -> None:
        for each in list(self._listening):
            each.abandon()
        super().abandon()


def postgres_from_url(url: str, colour: Colour, **options: Any) -> PostgresStore:
    """`postgresql://` and `postgresql+psycopg://` use psycopg, `postgresql+asyncpg://` asyncpg."""
    scheme, _, rest = url.partition("://")
    driver, plain = scheme.lower().partition("+")[2], f"postgresql://{rest}"
    where = _place_of(plain)
    if driver == "asyncpg":
        if colour is Colour.BLOCKING:
            raise UnknownStore("asyncpg is async, and Outbox blocks", fix="use AsyncOutbox, or postgresql+psycopg://")
        return _over_asyncpg(plain, where, options)
    if driver not in ("", "psycopg", "psycopg_async"):
        raise UnknownStore(
            f"no store speaks to PostgreSQL through {driver}", fix="use postgresql+psycopg:// or postgresql+asyncpg://"
        )
    return _over_psycopg(plain, where, colour, options)


def _place_of(url: str) -> str:
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
    return f"PostgreSQL at {hosts or 'the local socket'}{parts.path}"


def _unreadable() -> UnknownStore:
    return UnknownStore(
        "the PostgreSQL URL cannot be read",
        fix="postgresql://user:password@host:5432/database, with %40 for @, %2F for /, %3F for ?, %23 for # and %25 "
        "for % in the password",
    )


def _over_psycopg(url: str, where: str, colour: Colour, options: dict[str, Any]) -> PostgresStore:
    executor, beside = _psycopg_executor(url, colour), _psycopg_executor(url, colour)
    return PostgresStore(executor, PSYCOPG, where=where, beside=beside, **options)


def _psycopg_executor(conninfo: str, colour: Colour) -> ListeningExecutor:
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict

        from aftercommit.stores.postgres.pools import OwnPool
        from aftercommit.stores.postgres.psycopg_sync import PsycopgExecutor
    except ImportError as error:
        raise MissingDriver(
            f"psycopg with its pool is not installed ({error})", fix='pip install "aftercommit[postgres]"'
        ) from error
    try:
        conninfo_to_dict(conninfo)
    except (ProgrammingError, UnicodeDecodeError):  # which show what could not be read, be it the password
        raise _unreadable() from None
    if colour is Colour.BLOCKING:
        return PsycopgExecutor(OwnPool(conninfo))
    from aftercommit.stores.postgres.async_pools import OwnAsyncPool
    from aftercommit.stores.postgres.psycopg_async import AsyncPsycopgExecutor

    return AsyncPsycopgExecutor(OwnAsyncPool(conninfo))


def _over_asyncpg(url: str, where: str, options: dict[str, Any]) -> PostgresStore:
    try:
        from aftercommit.stores.postgres.asyncpg_driver import AsyncpgExecutor
        from aftercommit.stores.postgres.asyncpg_pools import OwnAsyncpgPool
    except ImportError as error:
        raise MissingDriver(f"asyncpg is not installed ({error})", fix='pip install "aftercommit[asyncpg]"') from error
    executor, beside = AsyncpgExecutor(OwnAsyncpgPool(url)), AsyncpgExecutor(OwnAsyncpgPool(url))
    return PostgresStore(executor, ASYNCPG, where=where, beside=beside, **options)


def postgres_from_pool(pool: Any, _: Colour, **options: Any) -> PostgresStore:
    """The user's pool of psycopg or asyncpg, which stays the user's. The pool's colour decides."""
    where = "PostgreSQL behind the given pool"
    kind = {each.__name__ for each in type(pool).__mro__}
    if "ConnectionPool" in kind or "NullConnectionPool" in kind:
        from aftercommit.stores.postgres.pools import GivenPool
        from aftercommit.stores.postgres.psycopg_sync import PsycopgExecutor

        return PostgresStore(PsycopgExecutor(GivenPool(pool)), PSYCOPG, where=where, **options)
    if "AsyncConnectionPool" in kind or "AsyncNullConnectionPool" in kind:
        from aftercommit.stores.postgres.async_pools import GivenAsyncPool
        from aftercommit.stores.postgres.psycopg_async import AsyncPsycopgExecutor

        return PostgresStore(AsyncPsycopgExecutor(GivenAsyncPool(pool)), PSYCOPG, where=where, **options)
    if "Pool" in kind:
        from aftercommit.stores.postgres.asyncpg_driver import AsyncpgExecutor
        from aftercommit.stores.postgres.asyncpg_pools import GivenAsyncpgPool

        return PostgresStore(AsyncpgExecutor(GivenAsyncpgPool(pool)), ASYNCPG, where=where, **options)
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
    where = f"PostgreSQL at {info.host}/{info.dbname}"
    if connect is None:
        conninfo = make_conninfo(**{**info.get_parameters(), "password": info.password or None})
        return _over_psycopg(conninfo, where, colour, options)
    from aftercommit.stores.postgres.pools import Opened
    from aftercommit.stores.postgres.psycopg_sync import PsycopgExecutor

    connection.close()
    return PostgresStore(PsycopgExecutor(Opened(connect)), PSYCOPG, where=where, **options)


def postgres_from_engine(engine: Any, _: Colour, **options: Any) -> PostgresStore:
    """A SQLAlchemy engine over psycopg or asyncpg. The engine's colour decides."""
    from aftercommit.stores.sql.engines import AsyncEngineSource, EngineSource

    where = f"PostgreSQL at {engine.url.host or 'the local socket'}/{engine.url.database or ''}"
    dialect = engine.dialect
    if dialect.driver == "asyncpg":
        from aftercommit.stores.postgres.asyncpg_driver import AsyncpgExecutor

        lender = AsyncEngineSource(engine, lambda connection: bool(connection.is_closed()))
        return PostgresStore(AsyncpgExecutor(lender), ASYNCPG, where=where, **options)
    if not dialect.driver.startswith("psycopg") or dialect.driver == "psycopg2":
        raise UnknownStore(
            f"the engine speaks to PostgreSQL through {dialect.driver}",
            fix='create_engine("postgresql+psycopg://…"), or create_async_engine("postgresql+asyncpg://…")',
        )
    if not dialect.is_async:
        from aftercommit.stores.postgres.psycopg_sync import PsycopgExecutor

        return PostgresStore(PsycopgExecutor(EngineSource(engine, _is_dead)), PSYCOPG, where=where, **options)
    from aftercommit.stores.postgres.psycopg_async import AsyncPsycopgExecutor

    return PostgresStore(AsyncPsycopgExecutor(AsyncEngineSource(engine, _is_dead)), PSYCOPG, where=where, **options)


def _is_dead(connection: Any) -> bool:
    return bool(connection.closed)
