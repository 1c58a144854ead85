"""The same work by hand: the store's own scripts, sent by the driver as it is, with no checks and nothing kept alive.

It is meant to be hard to beat: one connection that stays open, scripts by their SHA, ids from a counter, the payload
encoded by the same encoder that the outbox uses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Self

import msgspec
import redis
import redis.asyncio

from aftercommit.stores.redis.scripts import Command, KeyNames, scripts_of
from bench.hand import text

_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder().decode

_OWNER: Final = b"hand"
_LEASE: Final = 30_000_000

#: What a claim tells before the rows.
_HEAD: Final = 4

_USED: Final = ("append", "claim", "settle")


def row(number: int) -> tuple[Any, ...]:
    """The arguments of one append: no commands of the user's, and one row that is born free."""
    event_id = b"%026d" % number
    envelope = _pack((text(number), "application/json", 1, 0, None, None, None, None, None))
    return (0, event_id, b"", b"000" + event_id, b"OrderPlaced", b"__GLOBAL__", envelope, b"", 0, b"", 0)


class _Said:
    """What is sent, in either colour."""

    def __init__(self, url: str, table: str) -> None:
        self._url = url
        scripts = scripts_of(KeyNames(table))
        self._texts = [scripts[name].text for name in _USED]
        self._append, self._claim_script, self._settle_script = (scripts[name] for name in _USED)

    def _row(self, number: int) -> Command:
        return self._append.by_sha(row(number))

    def _claim(self, limit: int) -> Command:
        return self._claim_script.by_sha((_OWNER, limit, _LEASE, 0, b"", b""))

    def _settle(self, claimed: Sequence[Any]) -> Command:
        """What is done is deleted, as it is by default; of failures, which there are none, ten would be kept."""
        words: list[Any] = [1, 10, 0]
        for _, packed, _, _ in claimed:
            kept = _unpack(packed)
            words += [kept[0], kept[1], _OWNER, kept[10], b"done", 0, b"", b"", b""]
        return self._settle_script.by_sha(words)


class RedisHand(_Said):
    """On one connection."""

    def open(self) -> Self:
        self._client = redis.Redis.from_url(self._url, single_connection_client=True)
        for each in self._texts:
            self._client.script_load(each)
        return self

    def write(self, number: int) -> None:
        assert self._client.execute_command(*self._row(number)) == b"OK"

    def drain(self, limit: int, handle: Callable[[Any], object]) -> int:
        """Claims, calls a function for each row, and sends its marks together with the next claim."""
        count, claimed = 0, self._client.execute_command(*self._claim(limit))[_HEAD:]
        while claimed:
            for _, _, envelope, _ in claimed:
                handle(_unpack(envelope)[0])
            count += len(claimed)
            with self._client.pipeline(transaction=False) as pipeline:
                pipeline.execute_command(*self._settle(claimed))
                pipeline.execute_command(*self._claim(limit))
                claimed = pipeline.execute()[1][_HEAD:]
        return count

    def close(self) -> None:
        self._client.close()


class AsyncRedisHand(_Said):
    """The same, awaited."""

    async def open(self) -> Self:
        self._client = redis.asyncio.Redis.from_url(self._url, single_connection_client=True)
        for each in self._texts:
            await self._client.script_load(each)
        return self

    async def write(self, number: int) -> None:
        assert await self._client.execute_command(*self._row(number)) == b"OK"

    async def drain(self, limit: int, handle: Callable[[Any], Awaitable[None]]) -> int:
        count, claimed = 0, (await self._client.execute_command(*self._claim(limit)))[_HEAD:]
        while claimed:
            for _, _, envelope, _ in claimed:
                await handle(_unpack(envelope)[0])
            count += len(claimed)
            async with self._client.pipeline(transaction=False) as pipeline:
                pipeline.execute_command(*self._settle(claimed))
                pipeline.execute_command(*self._claim(limit))
                claimed = (await pipeline.execute())[1][_HEAD:]
        return count

    async def close(self) -> None:
        await self._client.aclose()
