"""Connections lent by a SQLAlchemy engine: its pool, its settings, its way to connect. The engine is never closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aftercommit.errors import StoreBusy


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
