"""From a URL, a client or a pool to a Redis store."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode

from aftercommit.errors import ColourMismatch, InvalidOption, MissingDriver, UnknownStore
from aftercommit.ports import Colour
from aftercommit.stores.redis.scripts import KeyNames
from aftercommit.stores.sql.connections import LARGEST, PATIENCE

try:
    import redis
    from redis import asyncio as aioredis
    from redis.backoff import NoBackoff

    from aftercommit.stores.redis.aio import AsyncClusterLink, AsyncLink
    from aftercommit.stores.redis.link import ANSWER, CONNECT
    from aftercommit.stores.redis.store import RedisStore
    from aftercommit.stores.redis.threads import BlockingClusterLink, BlockingLink
except ImportError as error:
    raise MissingDriver(f"redis-py is not installed ({error})", fix='pip install "aftercommit[redis]"') from error

#: Pipelines that a write can join, by colour.
_PIPELINES = {Colour.BLOCKING: (redis.client.Pipeline,), Colour.ASYNC: (aioredis.client.Pipeline,)}


def redis_from_url(url: str, colour: Colour, *, durability: str | None = None, **options: Any) -> RedisStore:
    """`redis://`, `rediss://` and `unix://` as redis-py reads them; `?durability=wait:1` is the store's own."""
    plain, asked = _split(url)
    where, database = _place_of(_parsed(plain))
    # One try for each command: a script that is sent again after its answer was lost would run twice.
    modes: dict[str, Any] = {
        "max_connections": LARGEST,
        "timeout": PATIENCE,
        "socket_connect_timeout": CONNECT,
        "socket_timeout": ANSWER,
        "protocol": 2,
    }
    link: BlockingLink | AsyncLink
    if colour is Colour.BLOCKING:
        once = redis.retry.Retry(NoBackoff(), 0)
        link = BlockingLink(partial(redis.BlockingConnectionPool.from_url, plain, retry=once, **modes), is_own=True)
    else:
        once_async = aioredis.retry.Retry(NoBackoff(), 0)
        link = AsyncLink(
            partial(aioredis.BlockingConnectionPool.from_url, plain, retry=once_async, **modes), is_own=True
        )
    return RedisStore(
        link,
        where=where,
        database=database,
        pipelines=_PIPELINES[colour],
        durability=_one_of(durability, asked),
        **options,
    )


def redis_from_client(target: Any, colour: Colour, **options: Any) -> RedisStore:
    """A client or a pool of the user's, which stays the user's; it may have been made by a Sentinel or be a cluster."""
    is_async = any(each.__module__.startswith("redis.asyncio") for each in type(target).__mro__)
    if is_async is not (colour is Colour.ASYNC):
        raise ColourMismatch(
            f"the target is a {type(target).__module__}.{type(target).__qualname__}, which "
            + ("is async, and Outbox blocks" if is_async else "blocks, and AsyncOutbox is async"),
            fix="use Outbox with redis.Redis, and AsyncOutbox with redis.asyncio.Redis",
        )
    common: dict[str, Any] = {"pipelines": _PIPELINES[colour], **options}
    key = KeyNames(options.get("table", "outbox_event"))["meta"]
    where = "the Redis cluster of the given client"
    match target:
        case redis.RedisCluster():
            return RedisStore(BlockingClusterLink(target, key), where=where, is_cluster=True, **common)
        case aioredis.RedisCluster():
            return RedisStore(AsyncClusterLink(target, key), where=where, is_cluster=True, **common)
    pool = _pool_of(target)
    where, database = _place_of(pool.connection_kwargs, vars(pool).get("service_name"))
    lent: BlockingLink | AsyncLink = AsyncLink.over_pool(pool) if is_async else BlockingLink.over_pool(pool)
    return RedisStore(lent, where=where, database=database, **common)


def _pool_of(target: Any) -> Any:
    if isinstance(target, redis.ConnectionPool | aioredis.ConnectionPool):
        return target
    if isinstance(target, redis.Redis | aioredis.Redis) and target.connection_pool is not None:
        return target.connection_pool
    raise UnknownStore(
        f"the target is a {type(target).__module__}.{type(target).__qualname__}",
        fix="pass redis.Redis(…), redis.asyncio.Redis(…), a RedisCluster, a connection pool, or a URL",
    )


def _place_of(options: Mapping[str, Any], service: str | None = None) -> tuple[str, int]:
    """Address and database; the login stays out."""
    database = int(options.get("db") or 0)
    if service is not None:
        return f"Redis, the primary {service} of a Sentinel, database {database}", database
    if "path" in options:
        return f"Redis at {options['path']}, database {database}", database
    return f"Redis at {options.get('host', 'localhost')}:{options.get('port', 6379)}/{database}", database


def _split(url: str) -> tuple[str, str | None]:
    """The URL as redis-py takes it, and what it says of durability."""
    scheme, _, rest = url.partition("://")
    address, _, query = rest.partition("?")
    facts = parse_qsl(query, keep_blank_values=True)
    asked = next((value for name, value in facts if name == "durability"), None)
    if asked is not None:
        query = urlencode([(name, value) for name, value in facts if name != "durability"])
    return f"{scheme.lower()}://{address}" + (f"?{query}" if query else ""), asked


def _parsed(url: str) -> dict[str, Any]:
    """What redis-py reads in it; the login stays out of errors."""
    try:
        options: dict[str, Any] = redis.connection.parse_url(url)
    except (ValueError, TypeError):
        raise _unreadable() from None
    return options


def _one_of(durability: str | None, asked: str | None) -> str | None:
    if durability is not None and asked is not None:
        raise InvalidOption("durability is given in the URL and by name", fix="say it once")
    return asked if durability is None else durability


def _unreadable() -> UnknownStore:
    return UnknownStore(
        "the Redis URL cannot be read",
        fix="redis://user:password@host:6379/0, rediss:// for TLS or unix:///path/to/socket?db=0, with %40 for @ and "
        "%2F for / in the password",
    )
