"""The events as people look at them: dead letters, replays, purges, counts. What is long goes by the page, so that no
script keeps the server for long."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from aftercommit.events.claims import PARTITION_COUNT, Backlog, DeadEvent, DeadFilter
from aftercommit.events.order import BlockedKey
from aftercommit.events.redact import storable
from aftercommit.stores.redis.rows import dead_of, whole_row
from aftercommit.stores.redis.scripts import Word
from aftercommit.stores.redis.server import Server
from aftercommit.stores.sql.rows import to_micros

#: Rows that a script looks at in one go.
PAGE: Final = 500

#: What the memory of an outbox is made of.
_KEPT: Final = ("events", "ids", "rows", "free", "leased", "order", "retry", "dead", "dead_keys", "dead_at", "done")


@dataclass(eq=False)
class RedisRecords:
    """Reads and cleans."""

    _server: Server

    async def query_dead(self, where: DeadFilter, limit: int) -> list[DeadEvent]:
        found: list[Any] = []
        position: Any = 0
        while position is not None and len(found) < limit:
            wanted = limit - len(found)
            position, _, *rows = await self._server.run("query_dead", position, *_filter(where), wanted, PAGE)
            found += rows
        return [dead_of(row) for row in found]

    async def count_dead(self, where: DeadFilter) -> int:
        count, position = 0, 0
        while position is not None:
            position, found = await self._server.run("query_dead", position, *_filter(where), 0, PAGE)
            count += found
        return count

    async def replay(self, event_id: str, handler_id: str | None) -> int:
        return int(await self._server.run("replay", *_one(event_id, handler_id)))

    async def replay_after(self, where: DeadFilter, position: int, limit: int) -> tuple[int, int | None]:
        count, at = 0, position
        while True:
            last, replayed = await self._server.run("replay_after", at, *_filter(where), limit - count, PAGE)
            count += replayed
            if last is None or count >= limit:
                return count, int(last) if count >= limit and last is not None else None
            at = int(last)

    async def discard(self, event_id: str, handler_id: str | None, reason: str) -> int:
        error = storable(f"discarded: {reason}" if reason else "discarded")
        return int(await self._server.run("discard", *_one(event_id, handler_id), error))

    async def purge(self, older_than: timedelta, *, dead: bool, limit: int) -> int:
        age = to_micros(older_than)
        deleted = int(await self._server.run("purge", "done", age, limit))
        if dead and deleted < limit:
            deleted += int(await self._server.run("purge", "dead", age, limit - deleted))
        return deleted

    async def purge_aged(self, older_than: timedelta, *, limit: int) -> int:
        deleted, is_more = 0, 1
        while is_more and deleted < limit:
            found, is_more = await self._server.run("purge_aged", to_micros(older_than), limit - deleted, 10 * PAGE)
            deleted += found
        return deleted

    async def backlog(self) -> Backlog:
        new, retry, dead, leased, oldest, rows = await self._server.run("backlog", PAGE)
        return Backlog(new, retry, dead, leased, timedelta(microseconds=oldest), await self._bytes_of(rows))

    async def _bytes_of(self, rows: int) -> int | None:
        """By the server's own estimate, which looks at a few of each; None where it gives none."""
        if not rows:
            return None
        names = self._server.names
        sizes = await self._server.link.call(*((b"MEMORY", b"USAGE", names[noun]) for noun in _KEPT))
        if any(isinstance(size, Exception) for size in sizes):
            return None
        return sum(size or 0 for size in sizes) // rows

    async def count_done(self, limit: int | None) -> int:
        return int(await self._server.run("count_done", limit or 0))

    async def pending(self) -> dict[int, int]:
        counts = await self._server.run("pending", PARTITION_COUNT)
        return {number: count for number, count in enumerate(counts) if count}

    async def blocked(self, limit: int) -> list[BlockedKey]:
        found: list[BlockedKey] = []
        position: Any = 0
        while position is not None and len(found) < limit:
            position, *rows = await self._server.run("blocked", position, PAGE, PAGE)
            for _, packed, envelope, waiting in rows:
                row = whole_row(packed, envelope)
                if row["event_key"] is not None or waiting:
                    key = row["event_id"] if row["event_key"] is None else row["event_key"]
                    error = row["last_error"] or ""
                    found.append(BlockedKey(key, row["event_id"], row["handler_id"], row["event_type"], error))
        return found[:limit]


def _filter(where: DeadFilter) -> tuple[Word, Word]:
    return where.event_type or "", where.aggregate_type or ""


def _one(event_id: str, handler_id: str | None) -> tuple[Word, Word, Word]:
    return event_id, int(handler_id is not None), handler_id or ""
