"""The way to the server for asyncio, over connections of the driver's pools. They belong to a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Self

from redis import exceptions
from redis.asyncio import ConnectionPool, RedisCluster
from redis.asyncio.cluster import PipelineCommand
from redis.client import NEVER_DECODE
from redis.exceptions import MovedError, ResponseError

from aftercommit.ports import Colour
from aftercommit.runtime.process import here
from aftercommit.stores.redis.link import ANSWER, LENT_FOR, MOVES, message_of, packed
from aftercommit.stores.redis.scripts import Command

#: Bytes that are written without waiting for room. A buffer of the loop's holds as many.
SMALL: Final = 65_536


class AsyncLink:
    """Over a pool: the outbox's own, of which there is one for the loop at hand, or the user's."""

    colour = Colour.ASYNC

    def __init__(self, make: Callable[[], ConnectionPool], *, is_own: bool) -> None:
        self._make = make
        self._is_own = is_own
        self._kept: Kept | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def over_pool(cls, pool: ConnectionPool) -> Self:
        return cls(lambda: pool, is_own=False)

    def _lender(self) -> Kept:
        kept, loop = self._kept, asyncio.get_running_loop()
        if kept is None or self._loop is not loop:
            self.abandon()
            kept = self._kept = Kept(self._make())
            self._loop = loop
        return kept

    async def call(self, *commands: Command) -> list[Any]:
        lender = self._lender()
        return await (lender.call(commands) if self._is_own else _call(lender.pool, commands))

    async def listen(self, channel: bytes) -> AsyncSubscription:
        pool = self._lender().pool
        return await AsyncSubscription.open(pool.connection_class, pool.connection_kwargs, channel)

    def over(self, pool: Any) -> AsyncLink:
        return AsyncLink.over_pool(pool)

    async def close(self) -> None:
        kept = self._kept
        if not self._is_own or kept is None:
            return
        if self._loop is asyncio.get_running_loop():
            self._kept = self._loop = None
            await kept.pool.disconnect()
        else:
            self.abandon()

    def abandon(self) -> None:
        """Also when its loop has ended: then nobody can say good-bye on it."""
        kept = self._kept
        if self._is_own and kept is not None:
            self._kept = self._loop = None
            for connection in _connections(kept.pool):
                drop(connection, is_ours=kept.process is here.token)


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


class Kept:
    """The connections of a pool of the outbox's own. Those that are idle stay here: the way into a pool of the driver's
    and out of it costs as much as a command does. It counts, opens and closes them all the same."""

    def __init__(self, pool: ConnectionPool) -> None:
        self.pool = pool
        self.process = here.token
        self._idle: list[Any] = []
        #: Connections that are out of the pool, idle ones as well, and callers that are after one. They are more than
        #: it may open only while somebody waits.
        self._out = 0

    async def call(self, commands: tuple[Command, ...]) -> list[Any]:
        connection = self._idle.pop() if self._idle else None
        if connection is None or not _is_quiet(connection):
            connection = await self._from_pool(connection)
        try:
            replies = await _replies(connection, commands)
        except BaseException:
            try:
                await connection.disconnect(nowait=True)  # what it has still to say must not be heard by another
            finally:  # or the pool would count it for ever
                await self._give_back(connection)
            raise
        if self._out <= self.pool.max_connections:
            self._idle.append(connection)
        else:
            await self._give_back(connection)
        return replies

    async def _from_pool(self, unsound: Any) -> Any:
        if unsound is not None:
            await self._give_back(unsound)  # to be opened again
        self._out += 1
        try:
            return await self.pool.get_connection(*LENT_FOR)
        except BaseException:
            self._out -= 1
            raise

    async def _give_back(self, connection: Any) -> None:
        await self.pool.release(connection)
        self._out -= 1


def _is_quiet(connection: Any) -> bool:
    """Nothing has come in, neither words nor the end of it: what is idle has nothing to hear. As the driver looks."""
    reader, writer = connection._reader, connection._writer
    return not (reader is None or writer is None or reader._buffer or reader.at_eof() or writer.is_closing())


async def _call(pool: ConnectionPool, commands: tuple[Command, ...]) -> list[Any]:
    connection = await pool.get_connection(*LENT_FOR)
    try:
        return await _replies(connection, commands)
    except BaseException:
        await connection.disconnect(nowait=True)  # what it has still to say must not be heard by another
        raise
    finally:
        await pool.release(connection)


async def _replies(connection: Any, commands: tuple[Command, ...]) -> list[Any]:
    data = packed(commands)
    if len(data[0]) <= SMALL and connection._writer is not None:
        # The driver would wait, in a task of its own, until the server has taken so much that there is room for more.
        connection._writer.write(data[0])
    else:
        await connection.send_packed_command(data)
    replies: list[Any] = []
    for _ in commands:
        try:
            replies.append(await connection.read_response(disable_decoding=True))
        except ResponseError as error:
            replies.append(error)
    return replies


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
