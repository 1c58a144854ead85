"""What the Redis store uses of its driver that the driver does not promise."""

from __future__ import annotations

import ast
import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

import aftercommit.stores.redis
from aftercommit.errors import OutboxError
from aftercommit.stores.redis.transaction import Commands

#: On what they are, and what for: there is no public way to wait for a socket and something else at once, nor to drop
#: connections whose event loop has ended.
PRIVATE = {
    "_sock": "a connection, to wait for it; and a socket of asyncio's",
    "_available_connections": "an async pool",
    "_in_use_connections": "an async pool",
    "_reader": "an async connection",
    "_writer": "an async connection",
    "_close": "an async connection",
    "_buffer": "the reader of an async connection, which is asyncio's own",
}


def test_no_other_private_part_of_the_driver_is_used() -> None:
    used, modules = set(), set()
    for path in Path(inspect.getfile(aftercommit.stores.redis)).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                used |= {node.attr} if not _is_own(node.value) else set()
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("redis."):
                modules |= {f"{node.module}.{each.name}" for each in node.names}
    assert used == PRIVATE.keys()
    assert not [name for name in modules if "._" in name]


def _is_own(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def test_the_driver_has_them(redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url)
    connection = client.connection_pool.connection_class(**client.connection_pool.connection_kwargs)
    connection.connect()
    assert connection._sock.fileno() > 0
    connection.disconnect()
    client.close()


def test_the_async_driver_has_them(redis_url: str) -> None:
    async def scenario() -> None:
        client = redis.asyncio.Redis.from_url(redis_url)
        await client.ping()
        pool = client.connection_pool
        (connection,) = [*pool._available_connections, *pool._in_use_connections]
        assert connection._reader._buffer == b""
        assert connection._writer.get_extra_info("socket")._sock.fileno() > 0
        connection._close()
        await client.aclose()

    asyncio.run(scenario())


@pytest.mark.parametrize("word", ["é", b"\xff", 7, -1, 1.5, 10**30, float("inf"), memoryview(b"ab")])
def test_words_of_commands_are_written_as_the_driver_writes_them(word: Any) -> None:
    commands = Commands()
    commands.set("key", word)
    encoder = redis.Redis().connection_pool.get_encoder()
    assert commands.collected == [(b"SET", b"key", encoder.encode(word))]


@pytest.mark.parametrize("word", [True, None, object(), [1]])
def test_words_that_the_driver_refuses_are_refused(word: Any) -> None:
    with pytest.raises((redis.DataError, OutboxError)):
        Commands().rpush("key", word)
