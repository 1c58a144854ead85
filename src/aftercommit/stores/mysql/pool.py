"""Where connections come from: a pool of our own, or the user's. A broken one never comes back."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from aftercommit.errors import InvalidOption, StoreBusy
from aftercommit.stores.mysql.link import Link, abandoned
from aftercommit.stores.sql.execution import Fault

#: How long one waits for a connection when all are in use, in seconds.
PATIENCE: Final = 30.0


class Slots(Protocol):
    """So many at a time, in either colour."""

    async def take(self) -> Callable[[], None]:
        """Wait for a place; call the result to leave it."""
        ...

    def reset(self) -> None:
        """All places are free: in a forked child the parent's users do not exist."""


class Lender(Protocol):
    """Where an executor gets its connections."""

    async def take(self, *opening: str) -> Link:
        """A connection on which these statements have been run."""
        ...

    async def give(self, link: Link) -> None: ...

    async def close(self) -> None: ...

    def abandon(self) -> None:
        """In a forked child: leave the parent's connections alone."""


class Pool:
    """Connections of our own: kept when they come back, opened when none is idle."""

    def __init__(
        self, connect: Callable[[], Awaitable[Link]], fault_of: Callable[[Exception], Fault], slots: Slots
    ) -> None:
        self._connect = connect
        self._fault_of = fault_of
        self._slots = slots
        self._idle: list[Link] = []
        #: What is lent since the last close(), and how its place is left.
        self._lent: dict[Link, Callable[[], None]] = {}
        self._lock = threading.Lock()

    async def take(self, *opening: str) -> Link:
        """An idle one that died meanwhile is passed over."""
        leave = await self._slots.take()
        try:
            while (link := self._pop()) is not None:
                if await is_alive(link, opening, self._fault_of):
                    break
            else:
                link = await self._connect()
                await opened(link, opening)
        except BaseException:
            leave()
            raise
        self._lent[link] = leave
        return link

    def _pop(self) -> Link | None:
        while True:
            with self._lock:
                link = self._idle.pop() if self._idle else None
            if link is None or link.is_here:
                return link
            link.drop()  # of an event loop that has ended

    async def give(self, link: Link) -> None:
        """Take it back, if it is as it was lent: open, out of every transaction, in autocommit mode."""
        is_sound = link.is_open and not link.is_in_transaction and link.is_autocommit
        with self._lock:  # what comes back now is either among those that close() takes, or sees that it is late
            leave = self._lent.pop(link, None)
            is_kept = is_sound and leave is not None
            if is_kept:
                self._idle.append(link)
        if not is_kept:
            link.drop()
        if leave is not None:
            leave()

    async def close(self) -> None:
        """Close what is idle; what is lent is closed when it comes back."""
        with self._lock:
            idle, self._idle = self._idle, []
            late, self._lent = self._lent, {}
        for leave in late.values():
            leave()
        try:
            for link in idle:
                if link.is_here:
                    await link.close()
        finally:  # of another event loop, or not come to
            for link in idle:
                link.drop()

    def abandon(self) -> None:
        """In a forked child: a thread of the parent may hold the lock, and the places."""
        self._lock = threading.Lock()
        self._slots.reset()
        abandoned.extend((*self._idle, *self._lent))
        self._idle, self._lent = [], {}


class Source(Protocol):
    """A pool of the user's, as the drivers' modules wrap it."""

    async def take(self) -> Link: ...

    async def give(self, link: Link) -> None:
        """Give it back; a dead one is not kept."""

    async def check(self) -> None:
        """One was dead, so others may be."""

    def abandon(self) -> None: ...


class GivenPool:
    """Connections of the user's own pool, in the user's settings. Nothing is set on them that outlives a loan."""

    def __init__(self, source: Source, fault_of: Callable[[Exception], Fault]) -> None:
        self._source = source
        self._fault_of = fault_of

    async def take(self, *opening: str) -> Link:
        link = await self._source.take()
        try:
            _refuse_charset(link)
            if await is_alive(link, opening, self._fault_of):
                return link
        except BaseException:
            await self._source.give(link)
            raise
        await self._source.give(link)
        await self._source.check()
        return await self._fresh(opening)

    async def _fresh(self, opening: tuple[str, ...]) -> Link:
        link = await self._source.take()
        try:
            await opened(link, opening)
        except BaseException:
            await self._source.give(link)
            raise
        return link

    async def give(self, link: Link) -> None:
        await self._source.give(link)

    async def close(self) -> None:
        """It is the user's."""

    def abandon(self) -> None:
        self._source.abandon()


def _refuse_charset(link: Link) -> None:
    if link.charset != "utf8mb4":
        raise InvalidOption(
            f"the connections that were given speak {link.charset}, in which not every event can be said",
            fix="open them with charset=utf8mb4",
        )


async def opened(link: Link, opening: tuple[str, ...]) -> None:
    """Run these on it; when that fails, it is closed."""
    try:
        for sql in opening:
            await link.run(sql)
    except BaseException:
        link.drop()
        raise


async def is_alive(link: Link, opening: tuple[str, ...], fault_of: Callable[[Exception], Fault]) -> bool:
    """Whether they could be run. Every transaction begins so: what died while nobody used it is found here."""
    try:
        await opened(link, opening)
    except Exception as error:
        if fault_of(error) is not Fault.UNREACHABLE:
            raise
        return False
    return True


def no_connection(count: int) -> StoreBusy:
    return StoreBusy(
        f"all {count} connections to the database were in use for {PATIENCE:.0f} s",
        fix="keep transactions short, or raise pool_size in the URL",
    )
