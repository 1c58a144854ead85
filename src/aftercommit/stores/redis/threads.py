"""The way to the server for threads, over connections of the driver's pools."""

from __future__ import annotations

import select
import socket
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Self

from redis import RedisCluster, exceptions
from redis.connection import ConnectionPool
from redis.exceptions import MovedError, ResponseError

from aftercommit.ports import Colour
from aftercommit.runtime.process import here
from aftercommit.stores.redis.link import ANSWER, LENT_FOR, MOVES, message_of, packed
from aftercommit.stores.redis.scripts import Command

#: The state of a TCP connection that neither side has ended, as Linux tells it.
_ESTABLISHED: Final = b"\x01"


class BlockingLink:
    """Over a pool: the outbox's own, which `make` opens again after a close, or the user's, which stays the user's."""

    colour = Colour.BLOCKING

    def __init__(self, make: Callable[[], ConnectionPool], *, is_own: bool) -> None:
        self._make = make
        self._is_own = is_own
        self._kept: Kept | None = None

    @classmethod
    def over_pool(cls, pool: ConnectionPool) -> Self:
        return cls(lambda: pool, is_own=False)

    def _lender(self) -> Kept:
        kept = self._kept
        if kept is None or kept.process is not here.token:
            kept = self._kept = Kept(self._make())
        return kept

    async def call(self, *commands: Command) -> list[Any]:
        kept = self._kept
        if kept is None or kept.process is not here.token:
            kept = self._lender()
        return kept.call(commands) if self._is_own else _call(kept.pool, commands)

    async def listen(self, channel: bytes) -> BlockingSubscription:
        return BlockingSubscription(_apart(self._lender().pool), channel)

    def over(self, pool: Any) -> BlockingLink:
        return BlockingLink.over_pool(pool)

    async def close(self) -> None:
        kept = self._kept
        if self._is_own and kept is not None:
            self._kept = None
            kept.pool.disconnect()

    def abandon(self) -> None:
        if self._is_own:
            self._kept = None  # its connections close the child's copies of their sockets, and say nothing


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


class Kept:
    """The connections of a pool of the outbox's own. Those that are idle stay here: the way into a pool of the driver's
    and out of it costs as much as a command does. It counts, opens and closes them all the same."""

    def __init__(self, pool: ConnectionPool) -> None:
        self.pool = pool
        self.process = here.token
        self._idle: deque[Connected] = deque()
        self._lock = threading.Lock()
        #: Connections that are out of the pool, idle ones as well, and callers that are after one. They are more than
        #: it may open only while somebody waits. If all callers counted as waiting, one would make others: what went
        #: back to the pool for its sake would be missed here by the next one, who would ask the pool, and so on.
        self._out = 0

    def call(self, commands: tuple[Command, ...]) -> list[Any]:
        one = self._take()
        try:
            replies = _replies(one.connection, commands)
        except BaseException as error:
            try:
                one.connection.disconnect()  # what it has still to say must not be heard by another
            finally:  # or the pool would count it for ever
                self._give_back(one)
            if isinstance(error.__context__, BlockingIOError):  # as the kernel says it, and the driver repeats it
                raise exceptions.TimeoutError(f"the server said nothing for {one.patience:g} s") from error
            raise
        self._keep(one)
        return replies

    def _keep(self, one: Connected) -> None:
        """Those who wait go first. One may have begun to wait meanwhile, and have found nothing here."""
        if self._out <= self.pool.max_connections:
            self._idle.append(one)
            if self._out <= self.pool.max_connections:
                return
            try:
                one = self._idle.pop()
            except IndexError:  # others have taken it
                return
        self._give_back(one)

    def _take(self) -> Connected:
        try:
            one = self._idle.pop()
        except IndexError:
            return self._from_pool()
        if one.is_quiet():
            return one
        self._give_back(one)  # to be opened again
        return self._from_pool()

    def _from_pool(self) -> Connected:
        with self._lock:
            self._out += 1
        try:
            if self._out > self.pool.max_connections:
                with suppress(IndexError):  # one that came back before it was known that somebody waits
                    self._give_back(self._idle.pop())
            return Connected(self.pool.get_connection(*LENT_FOR))
        except BaseException:
            with self._lock:
                self._out -= 1
            raise

    def _give_back(self, one: Connected) -> None:
        self.pool.release(one.connection)
        with self._lock:
            self._out -= 1


class Connected:
    """A connection that is open, and can tell whether it still is."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._socket = sock = connection._sock
        self.patience = sock.gettimeout() or 0.0
        self._look: Callable[[], object] = partial(connection.can_read, 0)
        self._wanted: tuple[object, ...] = (False, [])
        if sys.platform == "linux" and sock.family != socket.AF_UNIX:
            # The only look that does not let go of the GIL, which other threads then have to give back.
            self._look = partial(sock.getsockopt, socket.IPPROTO_TCP, socket.TCP_INFO, 1)
            self._wanted = (_ESTABLISHED,)
        elif hasattr(select, "poll"):
            poll = select.poll()
            poll.register(sock, select.POLLIN)
            self._look = partial(poll.poll, 0)
        if sys.platform == "linux" and type(sock) is socket.socket and self.patience:
            _let_the_kernel_wait(sock, self.patience)

    def is_quiet(self) -> bool:
        """Nobody has ended it, and nothing has come in, where that can be seen: what is idle has nothing to hear."""
        if self.connection._sock is not self._socket:
            return False
        try:
            return self._look() in self._wanted
        except (exceptions.ConnectionError, exceptions.TimeoutError, OSError):
            return False


def _let_the_kernel_wait(sock: socket.socket, seconds: float) -> None:
    """A timeout of Python's asks the kernel twice, and lets go of the GIL twice, for each send and each read."""
    limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))
    with suppress(OSError):  # a platform that has other numbers there keeps Python's
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        sock.settimeout(None)


def _call(pool: ConnectionPool, commands: tuple[Command, ...]) -> list[Any]:
    connection = pool.get_connection(*LENT_FOR)
    try:
        return _replies(connection, commands)
    except BaseException:
        connection.disconnect()  # what it has still to say must not be heard by another
        raise
    finally:
        pool.release(connection)


def _replies(connection: Any, commands: tuple[Command, ...]) -> list[Any]:
    connection.send_packed_command(packed(commands))
    replies: list[Any] = []
    for _ in commands:
        try:
            replies.append(connection.read_response(disable_decoding=True))
        except ResponseError as error:
            replies.append(error)
    return replies


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
