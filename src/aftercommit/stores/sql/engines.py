"""Connections lent by a SQLAlchemy engine: its pool, its settings, its way to connect. The engine is never closed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from aftercommit.errors import StoreBusy
from aftercommit.stores.sql.connections import abandoned, cut

T = TypeVar("T")


@contextmanager
def none_free_is_busy() -> Iterator[None]:
    from sqlalchemy.exc import TimeoutError  # noqa: A004, PLC0415  (whoever has an engine has it)

    try:
        yield
    except TimeoutError as error:
        raise StoreBusy(
            f"no connection of the engine became free: {error}",
            fix="keep transactions short, or create the engine with a larger pool",
        ) from error


class Lent(Protocol):
    """What is made of a driver's connection."""

    raw: Any


L = TypeVar("L", bound=Lent)


class EnginePool(Generic[L]):
    """The pool of an engine of either colour, awaited. Below its transactions and events: the outbox steers the
    driver's connection itself."""

    def __init__(self, engine: Any, link: Callable[[Any], L], is_dead: Callable[[L], bool]) -> None:
        """`link` is called with what the pool lends: the driver's connection, and what SQLAlchemy has around it."""
        is_async = engine.dialect.is_async
        self._engine = engine.sync_engine if is_async else engine
        self._call = _greenlet_call() if is_async else _call
        self._link = link
        self._is_dead = is_dead
        self._lent: dict[int, tuple[Any, L]] = {}

    async def take(self) -> L:
        with none_free_is_busy():
            lent = await self._call(self._engine.raw_connection)
        link = self._link(lent)
        self._lent[id(link.raw)] = lent, link
        return link

    async def give(self, link: L) -> None:
        lent, _ = self._lent.pop(id(link.raw))
        if self._is_dead(link):
            await self._call(lent.invalidate)
        await self._call(lent.close)

    async def apart(self) -> L:
        """As the engine opens one, but not out of its pool: it may be small."""
        lent = await self._call(self._engine.pool.recreate().connect)
        link = self._link(lent)
        await self._call(lent.detach)
        return link

    async def check(self) -> None:
        """One was dead, so others may be. Those in use are not touched."""
        await self._call(self._engine.dispose)

    def idle(self) -> list[L]:
        """Of pools that keep them in a queue, as those of either colour do by default."""
        queue = getattr(self._engine.pool, "_pool", None)
        kept = getattr(queue, "queue", None) or getattr(getattr(queue, "_queue", None), "_queue", None) or ()
        return [self._link(each) for each in kept]

    async def close(self) -> None:
        """It is the user's."""

    def abandon(self) -> None:
        """What is idle, and what the outbox has in use; not what the user has."""
        for link in [*self.idle(), *(link for _, link in self._lent.values())]:
            abandoned.append(link)
            cut(link)
        self._lent.clear()
        self._engine.dispose(close=False)


async def _call(function: Callable[[], T]) -> T:
    return function()


def _greenlet_call() -> Callable[..., Coroutine[Any, Any, Any]]:
    from sqlalchemy.util import greenlet_spawn  # noqa: PLC0415  (whoever has an engine has it)

    return greenlet_spawn
