"""The beginning of engines, and their end, whatever breaks it off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aftercommit.ports import EventStore, Runtime

if TYPE_CHECKING:
    from aftercommit.engine import Engine


def new_engine(*rooms_below: Any) -> Engine:
    """Of one start."""
    from aftercommit.engine import Engine  # noqa: PLC0415  (an outbox that nobody uses yet needs none)

    return Engine(*rooms_below)


class Ending:
    """Engines that were closed and have not ended yet: a close() is under way, or was broken off."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._engines: set[Engine] = set()

    def __bool__(self) -> bool:
        return bool(self._engines)

    def add(self, engine: Engine) -> None:
        self._engines.add(engine)

    async def end(self, runtime: Runtime) -> None:
        """To the end although the caller is cancelled; what breaks it off all the same, the next call goes on with."""
        await runtime.shielded(self._end(), self._hurry)

    async def _end(self) -> None:
        try:
            for engine in tuple(self._engines):
                if engine.runtime.is_here():
                    await engine.stop()
                self._engines.discard(engine)
        finally:
            await self._store.close()

    def _hurry(self) -> None:
        for engine in self._engines:
            engine.dispatcher.hurry()
