"""Where connections come from: a pool of our own, or the user's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from aftercommit.errors import InvalidOption
from aftercommit.stores.mysql.executor import MysqlLink
from aftercommit.stores.mysql.link import Link
from aftercommit.stores.sql.connections import Pool, Turn
from aftercommit.stores.sql.engines import AwaitedEngine

_FIX: Final = "keep transactions short, or raise pool_size in the URL"


def own_pool(
    connect: Callable[[], Awaitable[Link]],
    driver_error: type[Exception],
    turn: Callable[[], Turn],
    pool_size: int,
    is_lost: Callable[[MysqlLink], bool] = lambda _: False,
) -> Pool[MysqlLink]:
    """Connections of our own. All that the user has asked for are kept."""
    return Pool(
        lambda: MysqlLink(connect, driver_error), turn, largest=pool_size, kept=pool_size, fix=_FIX, is_lost=is_lost
    )


class GivenPool:
    """Connections of the user's own pool, in the user's settings. Nothing is set on them that outlives a loan."""

    def __init__(self, engine: AwaitedEngine, link: Callable[[Any], Link], driver_error: type[Exception]) -> None:
        self._engine = engine
        self._link = link
        self._driver_error = driver_error

    async def take(self) -> MysqlLink:
        return MysqlLink(self._checked, self._driver_error, self._lose)

    async def _checked(self) -> Link:
        raw = await self._engine.take()
        link = self._link(raw)
        if link.charset != "utf8mb4":
            await self._engine.give(raw)
            raise InvalidOption(
                f"the connections that were given speak {link.charset}, in which not every event can be said",
                fix="open them with charset=utf8mb4",
            )
        return link

    async def _lose(self, link: Link) -> None:
        await self._engine.give(link.raw)
        await self._engine.check()

    async def give(self, one: MysqlLink, /, *, is_sound: bool = True) -> None:
        """The engine looks for itself whether it is sound."""
        if one.link is not None:
            await self._engine.give(one.link.raw)

    async def close(self) -> None:
        """It is the user's."""

    def abandon(self) -> None:
        self._engine.abandon()
