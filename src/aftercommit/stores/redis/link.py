"""The way to the server in either colour: commands on a connection that is lent for them. Under threads nothing here
suspends."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

import redis

from aftercommit.ports import Colour
from aftercommit.stores.redis.scripts import Command

#: Seconds within which a server that is there takes a connection, and answers.
CONNECT: Final = 5.0
ANSWER: Final = 15.0

#: What a pool has to be told to lend a connection. Before 5.3 it is for what, of which it makes nothing.
LENT_FOR: Final[tuple[str, ...]] = () if redis.VERSION >= (5, 3) else ("",)

#: How often a command follows a slot to another node of a cluster. It has run on none before.
MOVES: Final = 5


class Link(Protocol):
    """Commands in, replies out. Replies are bytes, integers, None and lists of them, whatever the client decodes; an
    error of one command is its reply. A command is never sent twice: the first may have run."""

    colour: Colour

    async def call(self, *commands: Command) -> list[Any]:
        """All on one connection, one after the other. Raises when the server is away."""

    async def listen(self, channel: bytes) -> Subscription:
        """A connection that does nothing but hear a channel."""

    def over(self, pool: Any) -> Link:
        """The same way, over connections of another pool of the driver's."""

    async def close(self) -> None: ...

    def abandon(self) -> None:
        """In a forked child: leave the parent's connections alone."""


class Subscription(Protocol):
    """A connection that hears a channel. One waits at a time; `wake` may be called from any thread."""

    @property
    def is_here(self) -> bool:
        """Whether it can be used from here; under asyncio it belongs to a loop."""

    async def wait(self, seconds: float) -> bytes | None:
        """What comes in within the time: a message, an empty one for anything else; None when nothing did, or it was
        woken. Raises when the connection is broken."""

    async def ping(self) -> None:
        """The server has to answer soon, which `wait` hears."""

    def wake(self) -> None: ...

    async def close(self) -> None: ...

    def drop(self) -> None:
        """When its event loop has ended, or in a forked child."""


#: What stands before a short word. To make it takes longer than all else that is done for a word.
_HEADS: Final = [b"\r\n$%d\r\n" % size for size in range(256)]


def packed(commands: Sequence[Command]) -> list[bytes]:
    """As they go over the wire. The driver's own way takes three times as long."""
    parts: list[bytes] = []
    for command in commands:
        # A script's name and keys are the same in every call of it.
        same = 3 + int(command[2]) if command[0] == b"EVALSHA" else 1
        parts += (b"*%d" % len(command), _same(command[:same]), _words(command[same:]), b"\r\n")
    return [b"".join(parts)]


def _words(words: Command) -> bytes:
    """Each behind its length, and the end of what was before them."""
    parts: list[bytes] = []
    for word in words:
        encoded = word if isinstance(word, bytes) else str(word).encode()
        size = len(encoded)
        parts.append(_HEADS[size] if size < len(_HEADS) else b"\r\n$%d\r\n" % size)
        parts.append(encoded)
    return b"".join(parts)


_same: Final = lru_cache(maxsize=256)(_words)


def message_of(reply: object) -> bytes:
    """The text of a message; nothing of what else is heard on a channel."""
    if isinstance(reply, Sequence) and len(reply) == 3 and reply[0] in (b"message", "message"):
        text = reply[2]
        return text if isinstance(text, bytes) else str(text).encode()
    return b""
