"""The way to the server for threads, over connections of the driver's pools."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from redis import RedisCluster, exceptions
from redis.connection import ConnectionPool
from redis.exceptions import MovedError, ResponseError

from aftercommit.ports import Colour
from aftercommit.stores.redis.link import ANSWER, LENT_FOR, MOVES, message_of, packed
from aftercommit.stores.redis.scripts import Command


class BlockingLink:
    """Over a pool: the outbox's own, which `make` opens again after a close, or the user's, which stays the user's."""

    colour = Colour.BLOCKING

    def __init__(self, make: Callable[[], ConnectionPool], *, is_own: bool) -> None:
        self._make = make
        self._is_own = is_own
        self._pool: ConnectionPool | None = None

    @classmethod
    def over_pool(cls, pool: ConnectionPool) -> Self:
        return cls(lambda: pool, is_own=False)

    def _lender(self) -> ConnectionPool:
        if self._pool is None:
            self._pool = self._make()
        return self._pool

    async def call(self, *commands: Command) -> list[Any]:
        return _call(self._lender(), commands)

    async def listen(self, channel: bytes) -> BlockingSubscription:
        return BlockingSubscription(_apart(self._lender()), channel)

    def over(self, pool: Any) -> BlockingLink:
        return BlockingLink.over_pool(pool)

    async def close(self) -> None:
        pool = self._pool
        if self._is_own and pool is not None:
            self._pool = None
            pool.disconnect()

    def abandon(self) -> None:
        if self._is_own:
            self._pool = None  # its connections close the child's copies of their sockets, and say nothing


class BlockingClusterLink:
    """Over a cluster client of the user's. All keys of an outbox lie in one slot, so one node has them."""

    colour = Colour.BLOCKING

    def __init__(self, client: RedisCluster, key: bytes) -> None:
        self._client = client
        self._key = key

    def _lender(self) -> ConnectionPool:
        node = self._client.get_node_from_key(self._key)
        if node is None:
            raise exceptions.ConnectionError("no node of the cluster has the slot of the outbox")
        pool: ConnectionPool = self._client.get_redis_connection(node).connection_pool
        return pool

    async def call(self, *commands: Command) -> list[Any]:
        replies: list[Any] = []
        for _ in range(MOVES):
            try:
                replies = _call(self._lender(), commands)
            except exceptions.ConnectionError:
                with suppress(Exception):  # the next call shall find the node that took over
                    self._client.nodes_manager.initialize()
                raise
            if not isinstance(replies[0], MovedError):
                return replies
            self._client.nodes_manager.initialize()
        return replies

    async def listen(self, channel: bytes) -> BlockingSubscription:
        return BlockingSubscription(_apart(self._lender()), channel)

    def over(self, pool: Any) -> BlockingLink:
        return BlockingLink.over_pool(pool)

    async def close(self) -> None: ...

    def abandon(self) -> None: ...


def _call(pool: ConnectionPool, commands: tuple[Command, ...]) -> list[Any]:
    connection = pool.get_connection(*LENT_FOR)
    try:
        connection.send_packed_command(packed(commands))
        return [_reply(connection) for _ in commands]
    except BaseException:
        connection.disconnect()  # what it has still to say must not be heard by another
        raise
    finally:
        pool.release(connection)


def _reply(connection: Any) -> Any:
    try:
        return connection.read_response(disable_decoding=True)
    except ResponseError as error:
        return error


def _apart(pool: ConnectionPool) -> Any:
    """A connection like those of the pool, which is not counted and never given back."""
    return pool.connection_class(**{**pool.connection_kwargs, "socket_timeout": None})


class BlockingSubscription:
    """Waits for its socket and for a pair of sockets by which it is woken."""

    is_here = True

    def __init__(self, connection: Any, channel: bytes) -> None:
        self._connection = connection
        self._ear, self._mouth = socket.socketpair()
        self._mouth.setblocking(False)
        try:
            connection.connect()
            connection.send_command(b"SUBSCRIBE", channel)
            connection.read_response(disable_decoding=True, push_request=True)
        except BaseException:
            self.drop()
            raise

    async def wait(self, seconds: float) -> bytes | None:
        connection = self._connection
        if not connection.can_read(timeout=0):  # of what was read with an earlier message
            ready, _, _ = select.select([connection._sock, self._ear], [], [], seconds)
            if self._ear in ready:
                self._ear.recv(4096)
                return None
            if not ready:
                return None
        return message_of(connection.read_response(disable_decoding=True, push_request=True))

    async def ping(self) -> None:
        self._connection.send_command(b"PING", check_health=False)
        if not self._connection.can_read(timeout=ANSWER):
            raise exceptions.ConnectionError(f"the server said nothing for {ANSWER:g} s on the connection that listens")

    def wake(self) -> None:
        with suppress(OSError):  # it is full of calls, or closed
            self._mouth.send(b".")

    async def close(self) -> None:
        self.wake()
        self.drop()

    def drop(self) -> None:
        self._connection.disconnect()
        self._ear.close()
        self._mouth.close()
