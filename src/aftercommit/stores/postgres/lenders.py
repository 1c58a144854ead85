"""Where connections come from, in either colour: a pool of the outbox's own, or what the user has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aftercommit.errors import StoreBusy
from aftercommit.runtime.process import here
from aftercommit.stores.postgres.faults import of_the_parent
from aftercommit.stores.postgres.link import Link, Pool
from aftercommit.stores.sql.connections import LARGEST, abandoned, cut
from aftercommit.stores.sql.engines import EnginePool


class OpenPool(Pool, Protocol):
    """One that the outbox has opened."""

    def idle(self) -> list[Link]:
        """What it has at hand."""


class OwnPool:
    """Opened by its first use, closed with the outbox. Under asyncio a pool belongs to the loop that it was opened on;
    on another loop there is another one. Behind a pooler nothing is prepared in it: another session would not know."""

    def __init__(
        self,
        kind: type[Link],
        conninfo: str,
        connect: Callable[[type[Link], str], Awaitable[Link]],
        open_pool: Callable[[type[Link], str, bool], Awaitable[OpenPool]],
    ) -> None:
        self._kind = kind
        self.conninfo = conninfo
        self._connect = connect
        self._open_pool = open_pool
        self._pool: OpenPool | None = None
        self._home: object = 0
        self._opening = kind.lock()
        self._lent: set[Link] = set()
        self.is_direct = False

    async def take(self) -> Link:
        pool = self._pool
        if pool is None or self._home is not self._kind.home():
            pool = await self._opened()
        try:
            link = await pool.take()
        except StoreBusy:
            await self._is_direct()  # none is free, or none can be opened
            raise
        self._lent.add(link)
        return link

    async def _opened(self) -> OpenPool:
        if self._home is not (home := self._kind.home()):
            self.abandon()  # of a loop that has ended, so its connections can only be left alone
            self._home = home
        async with self._opening:
            if self._pool is None:
                self.is_direct = await self._is_direct()
                self._pool = await self._open_pool(self._kind, self.conninfo, self.is_direct)
            return self._pool

    async def _is_direct(self) -> bool:
        """A pool would try for a long while and then say only that it took too long; a connection says why."""
        link = await self.apart()
        try:
            return await link.is_direct()
        finally:
            await link.leave()

    async def give(self, link: Link) -> None:
        self._lent.discard(link)
        if self._pool is not None and link.pool is self._pool:
            await self._pool.give(link)
        else:
            await link.close()  # of an earlier life

    async def apart(self) -> Link:
        return await self._connect(self._kind, self.conninfo)

    async def check(self) -> None:
        if self._pool is not None:
            await self._pool.check()

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None and self._home is self._kind.home():
            await pool.close()

    def abandon(self) -> None:
        if self._pool is not None:
            abandoned.append(self._pool)
            if here.is_forked:
                for link in [*self._pool.idle(), *self._lent]:
                    abandoned.append(link)
                    cut(link)
        self._pool = None
        self._lent = set()
        self._opening = self._kind.lock()  # a thread of the parent may hold the old one


class GivenPool:
    """The user's own pool. It is used and never closed."""

    #: What stands before the server is not known.
    is_direct = False

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._is_parents = False

    async def take(self) -> Link:
        if self._is_parents:
            raise of_the_parent()
        return await self._pool.take()

    async def give(self, link: Link) -> None:
        try:
            if link.is_changed:
                await link.restore()
        finally:
            await self._pool.give(link)

    async def apart(self) -> Link:
        """As the pool opens one, but not out of it: it may be small."""
        if self._is_parents:
            raise of_the_parent()
        return await self._pool.apart()

    async def check(self) -> None:
        if not self._is_parents:
            await self._pool.check()

    async def close(self) -> None:
        """It is the user's."""

    def abandon(self) -> None:
        self._is_parents = True


class Engine(GivenPool):
    """The pool of the user's SQLAlchemy engine, of either colour. In a forked child it opens connections anew."""

    def __init__(self, engine: Any, kind: type[Link]) -> None:
        self._engine = EnginePool(engine, kind, lambda link: link.is_gone)
        super().__init__(self._engine)

    def abandon(self) -> None:
        self._engine.abandon()


class Opened:
    """Connections that the user's own function opens; idle ones are kept for the next."""

    is_direct = False

    def __init__(self, connect: Callable[[], Link]) -> None:
        self._connect = connect
        self._idle: list[Link] = []
        self._is_closed = False

    async def take(self) -> Link:
        self._is_closed = False
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    async def give(self, link: Link) -> None:
        if link.is_changed and not link.is_gone:
            await link.restore()
        if link.is_gone or link.is_begun or self._is_closed or len(self._idle) >= LARGEST:
            await link.close()
        else:
            self._idle.append(link)

    async def apart(self) -> Link:
        return self._connect()

    async def check(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    async def close(self) -> None:
        self._is_closed = True
        await self.check()

    def abandon(self) -> None:
        abandoned.extend(self._idle)
        self._idle = []
