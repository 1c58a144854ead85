"""The way to the server for asyncio, over connections of the driver's pools. They belong to a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from redis import exceptions
from redis.asyncio import ConnectionPool, RedisCluster
from redis.asyncio.cluster import PipelineCommand
from redis.client import NEVER_DECODE
from redis.exceptions import MovedError, ResponseError

from aftercommit.ports import Colour
from aftercommit.runtime.process import here
from aftercommit.stores.redis.link import ANSWER, LENT_FOR, MOVES, message_of, packed
from aftercommit.stores.redis.scripts import Command


class AsyncLink:
    """Over a pool: the outbox's own, of which there is one for the loop at hand, or the user's."""

    colour = Colour.ASYNC

    def __init__(self, make: Callable[[], ConnectionPool], *, is_own: bool) -> None:
        self._make = make
        self._is_own = is_own
        self._pool: ConnectionPool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._token = here.token

    @classmethod
    def over_pool(cls, pool: ConnectionPool) -> Self:
        return cls(lambda: pool, is_own=False)

    def _lender(self) -> ConnectionPool:
        pool, loop = self._pool, asyncio.get_running_loop()
        if pool is None or self._loop is not loop:
            self.abandon()
            pool = self._pool = self._make()
            self._loop, self._token = loop, here.token
        return pool

    async def call(self, *commands: Command) -> list[Any]:
        return await _call(self._lender(), commands)

    async def listen(self, channel: bytes) -> AsyncSubscription:
        pool = self._lender()
        return await AsyncSubscription.open(pool.connection_class, pool.connection_kwargs, channel)

    def over(self, pool: Any) -> AsyncLink:
        return AsyncLink.over_pool(pool)

    async def close(self) -> None:
        pool = self._pool
        if not self._is_own or pool is None:
            return
        if self._loop is asyncio.get_running_loop():
            self._pool = self._loop = None
            await pool.disconnect()
        else:
            self.abandon()

    def abandon(self) -> None:
        """Also when its loop has ended: then nobody can say good-bye on it."""
        pool = self._pool
        if self._is_own and pool is not None:
            self._pool = self._loop = None
            for connection in _connections(pool):
                drop(connection, is_ours=self._token is here.token)


class AsyncClusterLink:
    """Over a cluster client of the user's. All keys of an outbox lie in one slot, so one node has them."""

    colour = Colour.ASYNC

    def __init__(self, client: RedisCluster, key: bytes) -> None:
        self._client = client
        self._key = key

    async def _node(self) -> Any:
        await self._client.initialize()
        node = self._client.get_node_from_key(self._key.decode())
        if node is None:
            raise exceptions.ConnectionError("no node of the cluster has the slot of the outbox")
        return node

    async def call(self, *commands: Command) -> list[Any]:
        replies: list[Any] = []
        for _ in range(MOVES):
            wanted = [PipelineCommand(n, *each, **{NEVER_DECODE: True}) for n, each in enumerate(commands)]
            await (await self._node()).execute_pipeline(wanted)
            replies = [each.result for each in wanted]
            if not any(isinstance(each, exceptions.ConnectionError | MovedError) for each in replies):
                return replies
            with suppress(Exception):  # the next call shall find the node that has the slot
                await self._client.nodes_manager.initialize()
            for each in replies:
                if isinstance(each, exceptions.ConnectionError):
                    raise each
        return replies

    async def listen(self, channel: bytes) -> AsyncSubscription:
        node = await self._node()
        return await AsyncSubscription.open(node.connection_class, node.connection_kwargs, channel)

    def over(self, pool: Any) -> AsyncLink:
        return AsyncLink.over_pool(pool)

    async def close(self) -> None: ...

    def abandon(self) -> None: ...


async def _call(pool: ConnectionPool, commands: tuple[Command, ...]) -> list[Any]:
    connection = await pool.get_connection(*LENT_FOR)
    try:
        await connection.send_packed_command(packed(commands))
        return [await _reply(connection) for _ in commands]
    except BaseException:
        await connection.disconnect(nowait=True)  # what it has still to say must not be heard by another
        raise
    finally:
        await pool.release(connection)


async def _reply(connection: Any) -> Any:
    try:
        return await connection.read_response(disable_decoding=True)
    except ResponseError as error:
        return error


def _connections(pool: ConnectionPool) -> list[Any]:
    return [*pool._available_connections, *pool._in_use_connections]


def drop(connection: Any, *, is_ours: bool) -> None:
    """Close it from anywhere. A closed loop cannot close it in good order, and a forked child must not ask the loop:
    what tells it of sockets is shared with the parent, whose loop would hear nothing of its own one any more."""
    writer = connection._writer
    if writer is None:
        return
    if is_ours:
        with suppress(RuntimeError):
            connection._close()
            return
    connection._writer = connection._reader = None
    writer.get_extra_info("socket")._sock.close()


class AsyncSubscription:
    """Waits for a message and for being woken. A read that has begun goes on through several waits."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._token = here.token
        self._reading: asyncio.Task[Any] | None = None

    @classmethod
    async def open(cls, kind: Any, options: Any, channel: bytes) -> AsyncSubscription:
        """On a connection like others of its pool, which is not counted and never given back."""
        connection = kind(**{**options, "socket_timeout": None})
        self = cls(connection)
        try:
            await connection.connect()
            await connection.send_command(b"SUBSCRIBE", channel)
            await connection.read_response(disable_decoding=True, push_request=True)
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return self

    @property
    def is_here(self) -> bool:
        return asyncio.get_running_loop() is self._loop

    async def wait(self, seconds: float) -> bytes | None:
        reading = self._reading = self._reading or asyncio.create_task(self._read())
        woken = asyncio.create_task(self._woken.wait())
        try:
            await asyncio.wait({reading, woken}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
        self._woken.clear()
        if not reading.done():
            return None
        self._reading = None
        return message_of(reading.result())

    async def _read(self) -> Any:
        return await self._connection.read_response(disable_decoding=True, push_request=True)

    async def ping(self) -> None:
        await self._connection.send_command(b"PING", check_health=False)
        reading = self._reading = self._reading or asyncio.create_task(self._read())
        done, _ = await asyncio.wait({reading}, timeout=ANSWER)
        if not done:
            raise exceptions.ConnectionError(f"the server said nothing for {ANSWER:g} s on the connection that listens")

    def wake(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._woken.set)

    async def close(self) -> None:
        self._woken.set()
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await reading
        await self._connection.disconnect(nowait=True)
        await asyncio.sleep(0)  # in which the loop, which may end now, gives up the socket

    def drop(self) -> None:
        self._reading = None
        drop(self._connection, is_ours=self._token is here.token)
