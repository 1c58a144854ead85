"""The events as people look at them: dead letters, replays, purges, counts. What is long goes by the page, so that no
script keeps the server for long."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from operator import attrgetter
from typing import Any, Final

import msgspec

from aftercommit.events.claims import PARTITION_COUNT, Backlog
from aftercommit.events.envelope import EventStatus
from aftercommit.events.order import BlockedKey
from aftercommit.events.records import EventFilter, EventRecord, Failure, Summary
from aftercommit.events.redact import storable
from aftercommit.stores.redis.rows import failure_of, record_of, whole_row
from aftercommit.stores.redis.scripts import Word
from aftercommit.stores.redis.server import Server
from aftercommit.stores.sql.rows import instant_to_micros, summary_of, to_micros

#: Rows that a script looks at in one go.
PAGE: Final = 500

#: Positions that a script tries in one go, and that a query tries at most.
_TRIES: Final = 10 * PAGE
_REACH: Final = 1_000_000

#: What the server has counted.
_BY_STATUS_ALONE: Final = tuple(EventFilter(status=each) for each in (None, EventStatus.NEW, EventStatus.RETRY))

#: What the memory of an outbox is made of.
_KEPT: Final = (
    "events",
    "ids",
    "rows",
    "free",
    "leased",
    "order",
    "retry",
    "dead",
    "dead_keys",
    "dead_at",
    "done",
    "failures",
)


@dataclass(eq=False)
class RedisRecords:
    """Reads and cleans."""

    _server: Server
    #: Rows that are done are deleted.
    _deletes: bool

    async def query_dead(self, where: EventFilter, limit: int, after: EventRecord | None = None) -> list[EventRecord]:
        found: list[Any] = []
        position: Any = 0 if after is None else after.position
        while position is not None and len(found) < limit:
            wanted = limit - len(found)
            position, _, *rows = await self._server.run("query_dead", position, _filter(where), wanted, PAGE)
            found += rows
        return [record_of(row) for row in found]

    async def count_dead(self, where: EventFilter) -> int:
        count, position = 0, 0
        while position is not None:
            position, found = await self._server.run("query_dead", position, _filter(where), 0, PAGE)
            count += found
        return count

    async def query_pending(
        self, where: EventFilter, limit: int, after: EventRecord | None = None
    ) -> list[EventRecord]:
        """Those that are free, as they fall due; then those that somebody holds."""
        found: list[Any] = []
        for index, place in _places(after):
            score, position = place
            while score is not None and len(found) < limit:
                wanted = limit - len(found)
                score, position, _, *rows = await self._server.run(
                    "query_pending", _filter(where), index, score, position, wanted, PAGE
                )
                found += rows
        return [record_of(row) for row in found]

    async def count_pending(self, where: EventFilter) -> int:
        if where in _BY_STATUS_ALONE:
            new, retry, *_ = await self._server.run("backlog", 1)
            return int({None: new + retry, EventStatus.NEW: new, EventStatus.RETRY: retry}[where.status])
        count = 0
        for index, place in _places(None):
            score, position = place
            while score is not None:
                score, position, found = await self._server.run(
                    "query_pending", _filter(where), index, score, position, 0, PAGE
                )
                count += found
        return count

    async def query(self, where: EventFilter, limit: int, after: EventRecord | None = None) -> list[EventRecord]:
        """In order of position, backwards, and no further than a million positions."""
        found: list[Any] = []
        position: Any = b"" if after is None else after.position
        for _ in range(_REACH // _TRIES):
            if position is None or len(found) >= limit:
                break
            wanted = limit - len(found)
            position, *rows = await self._server.run("query", _filter(where), position, wanted, _TRIES)
            found += rows
        return [record_of(row) for row in found]

    async def find(self, event_id: str, *, is_prefix: bool, limit: int) -> list[EventRecord]:
        """By a part of its id by looking at all ids, a page at a time."""
        ids = [event_id.encode()]
        if is_prefix:
            ids = await self._ids_like(event_id, limit)
        found = [record_of(row) for each in ids for row in await self._server.run("find", each)]
        return sorted(found, key=attrgetter("position"))[:limit]

    async def _ids_like(self, prefix: str, limit: int) -> list[bytes]:
        pattern = re.sub(r"([\\*?\[\]])", r"\\\1", prefix).encode() + b"*"
        ids: list[bytes] = []
        cursor: Any = b"0"
        while len(ids) < limit:
            scan = (b"HSCAN", self._server.names["ids"], cursor, b"MATCH", pattern, b"COUNT", PAGE)
            (reply,) = await self._server.link.call(scan)
            if isinstance(reply, Exception):
                raise reply
            cursor, pairs = reply
            ids += pairs[::2]
            if cursor in (b"0", 0, "0"):
                break
        return ids[:limit]

    async def failures(self, event_id: str, handler_id: str | None) -> list[Failure]:
        found = await self._server.run("failures", *_one(event_id, handler_id))
        return [
            failure_of(event_id, handler.decode(), note)
            for handler, packed in found
            for note in (msgspec.msgpack.decode(packed) if packed else ())
        ]

    async def summary(self, limit: int) -> Summary:
        counts: list[tuple[str, str, int, int, int | None]] = []
        for indexes in (("free", "leased"), ("dead",)):
            left = limit
            for index in indexes:
                start, seen = 0, PAGE
                while left > 0 and seen == PAGE:
                    seen, *groups = await self._server.run("summary", index, start, min(PAGE, left))
                    start, left = start + seen, left - seen
                    counts += [
                        (kind.decode(), handler.decode(), status, count, None if index == "dead" else due)
                        for kind, handler, status, count, due in groups
                    ]
        return summary_of(counts, limit)

    async def replay(self, event_id: str, handler_id: str | None) -> int:
        return int(await self._server.run("replay", *_one(event_id, handler_id)))

    async def replay_done(self, event_id: str, handler_id: str | None) -> int:
        return int(await self._server.run("replay_done", *_one(event_id, handler_id)))

    async def replay_after(self, where: EventFilter, position: int, limit: int) -> tuple[int, int | None]:
        count, at = 0, position
        while True:
            last, replayed = await self._server.run("replay_after", at, _filter(where), limit - count, PAGE)
            count += replayed
            if last is None or count >= limit:
                return count, int(last) if count >= limit and last is not None else None
            at = int(last)

    async def discard(self, event_id: str, handler_id: str | None, reason: str) -> int:
        error = storable(f"discarded: {reason}" if reason else "discarded")
        return int(await self._server.run("discard", *_one(event_id, handler_id), error))

    async def cancel(self, event_id: str, handler_id: str | None) -> int:
        return int(await self._server.run("cancel", *_one(event_id, handler_id), int(self._deletes)))

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


def _filter(where: EventFilter) -> bytes:
    """Only what matters, as scripts read it."""
    given = {name: getattr(where, name) for name in EventFilter.__struct_fields__ if getattr(where, name) is not None}
    if where.older_than is not None:
        given["older_than"] = to_micros(where.older_than)
    if where.status is not None:
        given["status"] = where.status.value
    return msgspec.msgpack.encode(given)


def _places(after: EventRecord | None) -> list[tuple[Word, tuple[Any, Any]]]:
    """The indexes of unfinished rows, and where to begin in each: a score, and the position of the row there."""
    start: tuple[Word, Word] = (b"", b"")
    if after is None:
        return [(b"free", start), (b"leased", start)]
    position = f"{after.position:016}"
    if after.locked_by is None or after.lease_until is None:
        return [(b"free", (instant_to_micros(after.available_at), position)), (b"leased", start)]
    return [(b"leased", (instant_to_micros(after.lease_until), position))]


def _one(event_id: str, handler_id: str | None) -> tuple[Word, Word, Word]:
    return event_id, int(handler_id is not None), handler_id or ""
