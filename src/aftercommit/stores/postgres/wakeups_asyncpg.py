"""Listening over asyncpg, which calls back when something comes in."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import asyncpg

from aftercommit.stores.postgres.bell import Bell, answered, one_turn
from aftercommit.stores.postgres.dialect import WHO_SERVES

#: Seconds to take leave of a server that may be gone.
FAREWELL: Final = 1.0


class AsyncpgEar(Bell):
    """A session of asyncpg, a raw one and not what a pool lends."""

    def __init__(self, connection: Any) -> None:
        super().__init__()
        self._connection = connection
        self._heard: list[str] = []
        connection.add_termination_listener(lambda *_: self.wake())

    async def is_direct(self) -> bool:
        # Not prepared under a name, which a pooler's session may have, and in one transaction, so in one session.
        async with answered(self._connection.terminate):
            await self._connection.execute("BEGIN")
            question = await self._connection.prepare(WHO_SERVES, name="")
            served_by = await question.fetchval()
            await self._connection.execute("COMMIT")
        return bool(served_by == self._connection.get_server_pid())

    async def listen(self, channel: str) -> None:
        async with answered(self._connection.terminate):
            await self._connection.add_listener(channel, self._hear)

    def _hear(self, _connection: Any, _process: int, _channel: str, message: str) -> None:
        self._heard.append(message)
        self.wake()

    async def wait(self, seconds: float) -> bool:
        return await self.rung(seconds)

    def take(self) -> list[str]:
        if self._connection.is_closed():
            raise ConnectionResetError("PostgreSQL ended the connection that listens")
        heard, self._heard = self._heard, []
        return heard

    async def close(self) -> None:
        self.wake()
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
            await self._connection.close(timeout=FAREWELL)
        await one_turn()  # what has been cut goes when the loop comes round
