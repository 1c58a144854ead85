"""Connections that are kept for the next use. A broken one never comes back; nobody waits for one for ever."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from aftercommit.ports import Fault
from aftercommit.runtime.process import here
from aftercommit.stores.mysql.link import Link

#: How long one waits for a connection when all are in use, in seconds.
PATIENCE: Final = 30.0

#: Connections of a parent process. Closing one here would end the parent's session, so they are kept for ever.
abandoned: Final[list[object]] = []


class Slots(Protocol):
    """So many at a time, in either colour."""

    async def take(self) -> Callable[[], None]:
        """Wait for a place; call the result to leave it."""
        ...

    def reset(self) -> None:
        """All places are free: in a forked child the parent's users do not exist."""


class Pool:
    """Lends connections, and opens them when none is idle."""

    def __init__(
        self, connect: Callable[[], Awaitable[Link]], fault_of: Callable[[Exception], Fault], slots: Slots
    ) -> None:
        self._connect = connect
        self._fault_of = fault_of
        self._slots = slots
        self._idle: list[Link] = []
        #: What is lent since the last close(), and how its place is left.
        self._lent: dict[Link, Callable[[], None]] = {}
        self._process = here.token

    async def take(self, *opening: str) -> Link:
        """A connection on which these statements have been run. An idle one that died meanwhile is passed over."""
        leave = await self._slots.take()
        try:
            while (link := self._pop()) is not None:
                if await self._is_alive(link, opening):
                    break
            else:
                link = await self._connect()
                await self._open(link, opening)
        except BaseException:
            leave()
            raise
        self._lent[link] = leave
        return link

    def _pop(self) -> Link | None:
        while self._idle:
            link = self._idle.pop()
            if link.is_here:
                return link
            link.drop()  # of an event loop that has ended
        return None

    async def _is_alive(self, link: Link, opening: tuple[str, ...]) -> bool:
        try:
            await self._open(link, opening)
        except Exception as error:
            if self._fault_of(error) is not Fault.UNREACHABLE:
                raise
            return False
        return True

    async def _open(self, link: Link, opening: tuple[str, ...]) -> None:
        try:
            for sql in opening:
                await link.run(sql)
        except BaseException:
            link.drop()
            raise

    def give(self, link: Link) -> None:
        """Take it back, if it is as it was lent: open, out of every transaction, in autocommit mode."""
        leave = self._lent.pop(link, None)
        if here.token is not self._process:
            abandoned.append(link)
            return
        is_sound = link.is_open and not link.is_in_transaction and link.is_autocommit
        if leave is None or not is_sound:  # it was lent before close(), or it is spoilt
            link.drop()
        else:
            self._idle.append(link)
        if leave is not None:
            leave()

    async def close(self) -> None:
        """Close what is idle; what is lent is closed when it comes back."""
        idle, self._idle = self._idle, []
        late, self._lent = self._lent, {}
        for leave in late.values():
            leave()
        for link in idle:
            if link.is_here:
                await link.close()
            else:
                link.drop()

    def abandon(self) -> None:
        """In a forked child."""
        abandoned.extend((*self._idle, *self._lent))
        self._idle, self._lent = [], {}
        self._process = here.token
        self._slots.reset()
