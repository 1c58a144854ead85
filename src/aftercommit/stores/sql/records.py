"""The table as people look at it: dead letters, replays, purges, counts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from aftercommit.events.claims import Backlog, DeadEvent, DeadFilter
from aftercommit.events.envelope import EventStatus
from aftercommit.events.order import BlockedKey
from aftercommit.events.redact import storable
from aftercommit.stores.sql.changes import ByStatement
from aftercommit.stores.sql.execution import Executor
from aftercommit.stores.sql.rows import Times, dead_of, to_micros
from aftercommit.stores.sql.statements import Statements

#: More rows than a table has.
_ALL: Final = 2**62


@dataclass(eq=False)
class SqlRecords:
    """Reads and cleans the table. Each call is a transaction of its own."""

    _executor: Executor
    _sql: Statements
    _times: Times
    _changes: ByStatement
    _explained: Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]]

    async def query_dead(self, where: DeadFilter, limit: int) -> list[DeadEvent]:
        rows = await self._read("query_dead", {**_filter(where), "limit": limit})
        return [dead_of(row, self._times) for row in rows]

    async def count_dead(self, where: DeadFilter) -> int:
        return int((await self._read("count_dead", _filter(where)))[0][0])

    async def replay(self, event_id: str, handler_id: str | None) -> int:
        return await self._change("replay", {"event_id": event_id, "handler_id": handler_id})

    async def replay_after(self, where: DeadFilter, position: int, limit: int) -> tuple[int, int | None]:
        values = {**_filter(where), "position": position, "limit": limit}
        replayed: list[int] = await self._explained(self._changes.replay_after(values))
        return len(replayed), max(replayed) if len(replayed) == limit else None

    async def discard(self, event_id: str, handler_id: str | None, reason: str) -> int:
        error = storable(f"discarded: {reason}" if reason else "discarded")
        return await self._change("discard", {"event_id": event_id, "handler_id": handler_id, "error": error})

    async def purge(self, older_than: timedelta, *, dead: bool, limit: int) -> int:
        age = to_micros(older_than)
        deleted = await self._change("purge", {"status": EventStatus.DONE.value, "older_than": age, "limit": limit})
        if dead and deleted < limit:
            rest = limit - deleted
            deleted += await self._change("purge", {"status": EventStatus.DEAD.value, "older_than": age, "limit": rest})
        return deleted

    async def purge_aged(self, older_than: timedelta, *, limit: int) -> int:
        return await self._change("purge_aged", {"older_than": to_micros(older_than), "limit": limit})

    async def backlog(self) -> Backlog:
        new, retry, dead, leased, oldest = (await self._read("backlog", {}))[0]
        return Backlog(new, retry, dead, leased, timedelta(microseconds=max(0, oldest)))

    async def count_done(self, limit: int | None) -> int:
        return int((await self._read("count_done", {"limit": _ALL if limit is None else limit}))[0][0])

    async def pending(self) -> dict[int, int]:
        return {int(number): int(count) for number, count in await self._read("pending", {})}

    async def blocked(self, limit: int) -> list[BlockedKey]:
        rows = await self._read("blocked", {"limit": limit})
        return [BlockedKey(key, event_id, handler, kind, error or "") for key, event_id, handler, kind, error in rows]

    async def _read(self, name: str, values: Mapping[str, object]) -> list[Any]:
        statement = self._sql[name]
        read = self._executor.fetch(statement.sql, statement.values(values), writes=False)
        rows: list[Any] = await self._explained(read)
        return rows

    async def _change(self, name: str, values: Mapping[str, object]) -> int:
        statement = self._sql[name]
        return int(await self._explained(self._executor.execute(statement.sql, statement.values(values))))


def _filter(where: DeadFilter) -> dict[str, object]:
    return {"event_type": where.event_type, "aggregate_type": where.aggregate_type}
