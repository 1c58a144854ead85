"""Where connections come from, in either colour: a pool of the outbox's own, or what the user has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from aftercommit.runtime.process import here
from aftercommit.stores.postgres.faults import of_the_parent
from aftercommit.stores.postgres.link import Link, Pool, modes_of
from aftercommit.stores.sql import connections
from aftercommit.stores.sql.connections import LARGEST, abandoned
from aftercommit.stores.sql.engines import EnginePool

_FIX: Final = "keep transactions short, or pass a larger pool"


@dataclass(eq=False)
class _Place:
    """Where the pool keeps a connection: opened when it is first needed, and again when it did not survive a rest."""

    link: Link | None = None
    #: The event loop that it belongs to.
    home: Any = None
    process: object = field(default_factory=lambda: here.token)

    async def close(self) -> None:
        if self.link is not None and self.home is type(self.link).home():
            await self.link.leave()
        self.drop()

    def drop(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            abandoned.append(link) if self.process is not here.token else link.drop()

    def is_lost(self) -> bool:
        """Whoever had it was on a loop that has ended."""
        return self.link is not None and bool(self.home) and self.home.is_closed()


class OwnPool:
    """Connections of the outbox's own, opened where they are needed, so that whoever waits for one hears why there is
    none. Behind a pooler nothing is prepared on them: another session would not know."""

    def __init__(self, kind: type[Link], connect: Callable[[bool], Awaitable[Link]], *, asks: bool = True) -> None:
        """`connect` is told whether the connection may prepare. One that `asks` finds that out."""
        self._kind = kind
        self._connect = connect
        self._asks = asks
        self._pool = connections.Pool(_Place, kind.turn, largest=LARGEST, fix=_FIX, is_lost=_Place.is_lost)
        self.is_direct = False

    async def take(self) -> Link:
        place = await self._pool.take()
        if place.link is not None and place.home is not self._kind.home():
            place.drop()
        if place.link is None:
            try:
                place.home, place.link = self._kind.home(), await self._opened()
            except BaseException:
                await self._pool.give(place, is_sound=False)
                raise
            place.link.place = place
        return place.link

    async def _opened(self) -> Link:
        """The one that finds it out prepares nothing for that, and is kept where no pooler stands before the server."""
        asks = self._asks
        link = await self._connect(asks or self.is_direct)
        if not asks:
            return link
        try:
            self.is_direct, self._asks = await link.is_direct(), False
        except BaseException:
            link.drop()
            raise
        if self.is_direct:
            return link
        await link.leave()
        return await self._connect(False)

    async def give(self, link: Link) -> None:
        await self._pool.give(link.place, is_sound=not (link.is_gone or link.is_begun))

    async def apart(self) -> Link:
        return await self._connect(False)

    async def check(self) -> None:
        self._pool.clear()

    async def close(self) -> None:
        await self._pool.close()

    def abandon(self) -> None:
        self._pool.abandon()


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
        await self._pool.close()

    def abandon(self) -> None:
        self._is_parents = True


class Engine(GivenPool):
    """The pool of the user's SQLAlchemy engine, of either colour. In a forked child it opens connections anew."""

    def __init__(self, engine: Any, kind: type[Link]) -> None:
        self._kind = kind
        self._options = engine.get_execution_options()
        self._engine = EnginePool(engine, self._linked, lambda link: link.is_gone)
        super().__init__(self._engine)

    def _linked(self, lent: Any) -> Link:
        """What the engine would set for a transaction, and what its asyncpg connections keep to themselves."""
        link, keeper, options = self._kind(lent.driver_connection), lent.dbapi_connection, self._options
        isolation = options.get("isolation_level") or getattr(keeper, "isolation_level", None) or ""
        link.modes = modes_of(
            None if str(isolation).upper() == "AUTOCOMMIT" else getattr(isolation, "name", isolation),
            options.get("postgresql_readonly", getattr(keeper, "readonly", None) or None),
            options.get("postgresql_deferrable", getattr(keeper, "deferrable", None) or None),
        )
        return link

    def abandon(self) -> None:
        self._engine.abandon()
