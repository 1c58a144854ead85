"""Listening over psycopg's async connections."""

from __future__ import annotations

from typing import Any

import psycopg

from aftercommit.stores.postgres.bell import Bell
from aftercommit.stores.postgres.dialect import WHO_SERVES
from aftercommit.stores.postgres.wakeups_psycopg import Wire, listen_sql


class AsyncPsycopgEar(Bell):
    """The loop rings when the socket has something to read, and only while somebody waits for it."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        super().__init__()
        self._wire = Wire(connection)

    async def is_direct(self) -> bool:
        return self._wire.is_served_by(await self._ask(WHO_SERVES))

    async def listen(self, channel: str) -> None:
        await self._ask(listen_sql(channel))

    async def _ask(self, words: str) -> bytes | None:
        asking = self._wire.asked(words)
        try:
            seconds = next(asking)
            while True:
                seconds = asking.send(await self.wait(seconds))
        except StopIteration as answer:
            value: bytes | None = answer.value
            return value

    async def wait(self, seconds: float) -> bool:
        with self.ringing_for(self._wire.socket):
            return await self.rung(seconds)

    def take(self) -> list[str]:
        return self._wire.take()

    async def close(self) -> None:
        self.ring_no_more()
        self.wake()
        await self._wire.connection.close()  # type: ignore[misc]
