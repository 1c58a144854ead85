"""The connections of a Redis outbox's own pool: kept at hand, given to who waits, never waited for too long."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from typing import Any

import pytest
import redis
import redis.asyncio

from aftercommit import Outbox, StoreUnavailable
from aftercommit.stores.redis import aio, threads
from aftercommit.stores.redis.link import packed
from tests.redis_servers import PrivateRedis
from tests.stores.redis_kit import Keys

PING = ((b"PING",),)


def test_who_is_after_a_connection_makes_no_others_ask_the_pool(redis_url: str) -> None:
    """There is room for both: what comes back meanwhile stays at hand, and nobody else has to ask."""
    asked: list[str] = []

    class Pool(redis.BlockingConnectionPool):
        def get_connection(self, *words: Any, **options: Any) -> Any:
            asked.append("the pool")
            if len(asked) == 1:  # while the first one asks, another one calls
                for _ in range(5):
                    assert kept.call(PING) == [b"PONG"]
            return super().get_connection(*words, **options)

    kept = threads.Kept(Pool.from_url(redis_url, max_connections=2))
    for _ in range(5):
        assert kept.call(PING) == [b"PONG"]
    assert len(asked) == 2
    kept.pool.disconnect()


def test_who_is_after_a_connection_makes_no_others_ask_the_pool_under_asyncio(redis_url: str) -> None:
    asked: list[str] = []

    class Pool(redis.asyncio.BlockingConnectionPool):
        async def get_connection(self, *words: Any, **options: Any) -> Any:
            asked.append("the pool")
            if len(asked) == 1:
                for _ in range(5):
                    assert await kept.call(PING) == [b"PONG"]
            return await super().get_connection(*words, **options)

    async def scenario() -> None:
        nonlocal kept
        kept = aio.Kept(Pool.from_url(redis_url, max_connections=2))
        for _ in range(5):
            assert await kept.call(PING) == [b"PONG"]
        await kept.pool.disconnect()

    kept: aio.Kept
    asyncio.run(scenario())
    assert len(asked) == 2


def test_a_server_that_says_nothing_is_waited_for_as_long_as_was_asked_for(private_redis: PrivateRedis) -> None:
    keys = Keys(private_redis.url)
    outbox = Outbox(f"{keys.url}/0?socket_timeout=0.2", table=keys.table)
    outbox.write("T", "1")
    private_redis.ask("CLIENT", "PAUSE", 60_000, "WRITE")
    with pytest.raises(StoreUnavailable, match=r"the server said nothing for 0\.2 s"):
        outbox.write("T", "2")
    private_redis.ask("CLIENT", "UNPAUSE")
    outbox.write("T", "3")
    assert {row["payload"] for row in keys.rows()} >= {"1", "3"}
    outbox.close()
    keys.client.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Python waits")
def test_the_kernel_waits_and_not_python(redis_url: str) -> None:
    """A timeout of Python's would let go of the GIL twice for each send and each read."""
    kept = threads.Kept(redis.BlockingConnectionPool.from_url(redis_url, socket_timeout=7))
    kept.call(PING)
    (sock,) = [each._sock for each in kept.pool._connections]
    assert sock.gettimeout() is None
    for name in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        assert struct.unpack("ll", sock.getsockopt(socket.SOL_SOCKET, name, struct.calcsize("ll"))) == (7, 0)
    kept.pool.disconnect()


@pytest.mark.parametrize("way", ["tcp", "unix"])
def test_a_connection_that_has_ended_is_not_quiet(way: str) -> None:
    with PrivateRedis(unixsocket="s") as server:
        url = server.url if way == "tcp" else f"unix://{server.folder}/data/s"
        pool = redis.BlockingConnectionPool.from_url(url)
        connected = threads.Connected(pool.get_connection())
        assert connected.is_quiet()
        server.stop()
        assert not connected.is_quiet()
        pool.disconnect()
        assert not connected.is_quiet()


@pytest.mark.parametrize("size", [0, 1, 9, 10, 99, 100, 255, 256, 100_000])
def test_commands_go_over_the_wire_as_the_driver_writes_them(size: int) -> None:
    commands = [(b"EVALSHA", b"sha", 1, b"key", b"x" * size, "é", 7, -1, b""), (b"WAIT", 1, 5000), (b"PING",)]
    written = b"".join(b"".join(redis.Connection().pack_command(*each)) for each in commands)
    assert packed(commands) == [written]
