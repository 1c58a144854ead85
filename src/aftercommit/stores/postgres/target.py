"""From a URL or a pool to a PostgreSQL store."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from aftercommit.errors import MissingDriver, UnknownStore
from aftercommit.ports import Colour
from aftercommit.stores.postgres.dialect import ASYNCPG, PSYCOPG
from aftercommit.stores.sql import SqlStore


class PostgresStore(SqlStore):
    """Events in a PostgreSQL table."""


def postgres_from_url(url: str, colour: Colour, **options: Any) -> PostgresStore:
    """`postgresql://`, `postgres://` and `postgresql+psycopg://` use psycopg, `postgresql+asyncpg://` asyncpg."""
    scheme, _, rest = url.partition("://")
    driver = scheme.lower().partition("+")[2]
    plain, where = f"postgresql://{rest}", place_of(f"postgresql://{rest}")
    if driver == "asyncpg":
        if colour is Colour.BLOCKING:
            raise UnknownStore("asyncpg is async, and this is Outbox", fix="use AsyncOutbox, or postgresql+psycopg://")
        return _over_asyncpg(plain, where, options)
    if driver not in ("", "psycopg", "psycopg_async"):
        raise UnknownStore(
            f"no store speaks to PostgreSQL through {driver}", fix="use postgresql+psycopg:// or postgresql+asyncpg://"
        )
    return _over_psycopg(plain, where, colour, options)


def _over_psycopg(url: str, where: str, colour: Colour, options: dict[str, Any]) -> PostgresStore:
    try:
        from aftercommit.stores.postgres.pools import OwnPool
        from aftercommit.stores.postgres.psycopg_sync import PsycopgExecutor
    except ImportError as error:
        raise _missing("psycopg", "postgres") from error
    if colour is Colour.BLOCKING:
        return PostgresStore(PsycopgExecutor(OwnPool(url)), PSYCOPG, where=where, **options)
    from aftercommit.stores.postgres.async_pools import OwnAsyncPool
    from aftercommit.stores.postgres.psycopg_async import AsyncPsycopgExecutor

    return PostgresStore(AsyncPsycopgExecutor(OwnAsyncPool(url)), PSYCOPG, where=where, **options)


def _over_asyncpg(url: str, where: str, options: dict[str, Any]) -> PostgresStore:
    try:
        from aftercommit.stores.postgres.asyncpg_driver import AsyncpgExecutor
        from aftercommit.stores.postgres.asyncpg_pools import OwnAsyncpgPool
    except ImportError as error:
        raise _missing("asyncpg", "asyncpg") from error

    return PostgresStore(AsyncpgExecutor(OwnAsyncpgPool(url)), ASYNCPG, where=where, **options)


def _missing(library: str, extra: str) -> MissingDriver:
    return MissingDriver(f"{library} is not installed", fix=f'pip install "aftercommit[{extra}]"')


def place_of(url: str) -> str:
    """Host and database of a URL; its login stays out."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2] or "the local server"
    return f"PostgreSQL at {host}{parts.path}"
