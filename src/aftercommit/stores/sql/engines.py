"""Connections lent by a SQLAlchemy engine: its pool, its settings, its way to connect. The engine is never closed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from aftercommit.errors import StoreBusy

T = TypeVar("T")


def is_engine(target: object) -> bool:
    """Without importing SQLAlchemy: whoever has an engine has imported it."""
    return any(
        each.__module__.startswith("sqlalchemy.") and each.__name__ in ("Engine", "AsyncEngine")
        for each in type(target).__mro__
    )


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


class EngineSource:
    """A blocking engine. Below its transactions and events: the outbox steers the driver's connection itself."""

    def __init__(self, engine: Any, is_dead: Callable[[Any], bool]) -> None:
        self._engine = engine
        self._is_dead = is_dead
        self._lent: dict[int, Any] = {}

    def take(self) -> Any:
        with none_free_is_busy():
            lent = self._engine.raw_connection()
        connection = lent.driver_connection
        self._lent[id(connection)] = lent
        return connection

    def give(self, connection: Any) -> None:
        lent = self._lent.pop(id(connection))
        if self._is_dead(connection):
            lent.invalidate()
        lent.close()

    def apart(self) -> Any:
        """As the engine opens one, but not out of its pool: it may be small."""
        lent = self._engine.pool.recreate().connect()
        connection = lent.driver_connection
        lent.detach()
        return connection

    def check(self) -> None:
        """One was dead, so others may be. Those in use are not touched."""
        self._engine.dispose()

    def close(self) -> None:
        """It is the user's."""

    def abandon(self) -> None:
        self._engine.dispose(close=False)


class AwaitedEngine:
    """An engine of either colour, awaited."""

    def __init__(self, engine: Any, is_dead: Callable[[Any], bool]) -> None:
        is_async = engine.dialect.is_async
        self._source = EngineSource(engine.sync_engine if is_async else engine, is_dead)
        self._call = _greenlet_call() if is_async else _call

    async def take(self) -> Any:
        return await self._call(self._source.take)

    async def give(self, connection: Any) -> None:
        await self._call(self._source.give, connection)

    async def check(self) -> None:
        await self._call(self._source.check)

    def abandon(self) -> None:
        self._source.abandon()


async def _call(function: Callable[..., T], *given: Any) -> T:
    return function(*given)


def _greenlet_call() -> Callable[..., Coroutine[Any, Any, Any]]:
    from sqlalchemy.util import greenlet_spawn  # noqa: PLC0415  (whoever has an engine has it)

    return greenlet_spawn


class AsyncEngineSource:
    """An async engine."""

    def __init__(self, engine: Any, is_dead: Callable[[Any], bool]) -> None:
        self._engine = engine
        self._is_dead = is_dead
        self._lent: dict[int, Any] = {}

    async def take(self) -> Any:
        with none_free_is_busy():
            lent = await self._engine.connect()
        try:
            connection = (await lent.get_raw_connection()).driver_connection
        except BaseException:
            await lent.close()
            raise
        self._lent[id(connection)] = lent
        return connection

    async def give(self, connection: Any) -> None:
        lent = self._lent.pop(id(connection))
        if self._is_dead(connection):
            await lent.invalidate()
        await lent.close()

    async def check(self) -> None:
        """One was dead, so others may be. Those in use are not touched."""
        await self._engine.dispose()

    async def close(self) -> None:
        """It is the user's."""

    def abandon(self) -> None:
        self._engine.sync_engine.dispose(close=False)
