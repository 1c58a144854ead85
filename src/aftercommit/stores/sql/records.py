"""The table as people look at it: dead letters, replays, purges, counts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from operator import attrgetter
from typing import Any, Final

import msgspec

from aftercommit.events.claims import Backlog
from aftercommit.events.envelope import EventStatus
from aftercommit.events.log import Log
from aftercommit.events.order import BlockedKey
from aftercommit.events.records import EventFilter, EventRecord, Failure, Summary, last_of_each
from aftercommit.events.redact import storable
from aftercommit.ports import Tx
from aftercommit.stores.sql.changes import ByStatement
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.execution import Executor, Fault
from aftercommit.stores.sql.rows import record_of, summary_of, to_micros
from aftercommit.stores.sql.statements import Statements

log = Log("aftercommit.store")

_NOT_REPLAYED: Final = "%s is not replayed: %r, its unique key, is that of %s, which is not done"

#: More rows than a table has.
_ALL: Final = 2**62

#: Behind every id.
LAST_ID: Final = chr(0x10FFFF)

_due: Final = attrgetter("available_at", "position")


class SqlRecords(msgspec.Struct, eq=False, dict=True):
    """Reads and cleans the table. Each call is a transaction of its own."""

    _executor: Executor
    _sql: Statements
    _dialect: Dialect
    _changes: ByStatement
    #: Rows that are done are deleted.
    _deletes: bool
    _explained: Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]]

    async def query_dead(self, where: EventFilter, limit: int, after: EventRecord | None = None) -> list[EventRecord]:
        values = {**_filter(where), "position": 0 if after is None else after.position, "limit": limit}
        return self._records(await self._read("query_dead", values))

    async def count_dead(self, where: EventFilter) -> int:
        return int((await self._read("count_dead", _filter(where)))[0][0])

    async def query_pending(
        self, where: EventFilter, limit: int, after: EventRecord | None = None
    ) -> list[EventRecord]:
        times = self._dialect.times
        floor = (times.earliest, -1) if after is None else (times.write(after.available_at), after.position)
        values = {**_filter(where), "floor_at": floor[0], "floor_position": floor[1], "limit": limit}
        found: list[EventRecord] = []
        for status in self._looks(where):
            found += self._records(await self._read("query_pending", {**values, "status": status}))
        return sorted(found, key=_due)[:limit]

    def _looks(self, where: EventFilter) -> Sequence[int | None]:
        """The status of each look, where one index does not serve both in order."""
        if where.status is not None:
            return (where.status.value,)
        return (EventStatus.NEW.value, EventStatus.RETRY.value) if self._dialect.claims_by_status else (None,)

    async def count_pending(self, where: EventFilter) -> int:
        return int((await self._read("count_pending", {**_filter(where), "status": _status(where)}))[0][0])

    async def query(self, where: EventFilter, limit: int, after: EventRecord | None = None) -> list[EventRecord]:
        before = (LAST_ID, "") if after is None else (after.event_id, after.handler_id)
        values = {**_filter(where), "before_id": before[0], "before_handler": before[1], "limit": limit}
        return self._records(await self._read("query", {**values, "status": _status(where)}))

    async def find(self, event_id: str, *, is_prefix: bool, limit: int) -> list[EventRecord]:
        last = event_id + LAST_ID if is_prefix else event_id
        found = self._records(await self._read("find", {"event_id": event_id, "last_id": last, "limit": limit}))
        return sorted(found, key=attrgetter("position"))

    async def summary(self, limit: int) -> Summary:
        return summary_of(await self._read("summary", {"limit": limit}), limit)

    async def replay(self, event_id: str, handler_id: str | None) -> int:
        return await self._replayed("replay", event_id, handler_id)

    async def replay_done(self, event_id: str, handler_id: str | None) -> int:
        return await self._replayed("replay_done", event_id, handler_id)

    async def _replayed(self, name: str, event_id: str, handler_id: str | None) -> int:
        """None of an event whose unique key another one has by now that is not done: the index refuses it."""
        values = {"event_id": event_id, "handler_id": handler_id}
        for is_last in (False, True):
            try:
                return await self._change(name, values)
            except Exception as error:
                if self._executor.fault_of(error) is not Fault.ROW:
                    raise
                found = await self._read("unique_holder", {"event_id": event_id})
                if found:
                    holder, key = found[0]
                    log.warning(_NOT_REPLAYED, event_id, key, holder)
                    return 0
                if is_last:  # else that one has ended in between
                    raise
        return 0

    async def replay_after(self, where: EventFilter, position: int, limit: int) -> tuple[int, int | None]:
        values = {**_filter(where), "position": position, "limit": limit}
        try:
            replayed: list[int] = await self._explained(self._changes.replay_after(values))
        except Exception as error:
            if self._executor.fault_of(error) is not Fault.ROW:
                raise
            return await self._replay_each(values)  # the unique key of one of them is another's
        return len(replayed), max(replayed) if len(replayed) == limit else None

    async def _replay_each(self, values: Mapping[str, Any]) -> tuple[int, int | None]:
        page = self._records(await self._read("query_dead", values))
        replayed = [await self.replay(record.event_id, record.handler_id) for record in page]
        return sum(replayed), page[-1].position if len(page) == values["limit"] else None

    async def discard(self, event_id: str, handler_id: str | None, reason: str) -> int:
        error = storable(f"discarded: {reason}" if reason else "discarded")
        return await self._change("discard", {"event_id": event_id, "handler_id": handler_id, "error": error})

    async def cancel(self, event_id: str, handler_id: str | None) -> int:
        values = {"event_id": event_id, "handler_id": handler_id}
        if not self._deletes:
            return await self._change("cancel", values)
        withdraw, forget = self._sql["withdraw"], self._sql["forget_orphans"]

        async def work(tx: Tx) -> int:
            withdrawn = await tx.execute(withdraw.sql, withdraw.values(values))
            if withdrawn:
                await tx.execute(forget.sql, forget.values(values))
            return withdrawn

        return int(await self._explained(self._executor.transact(work)))

    async def failures(self, event_id: str, handler_id: str | None) -> list[Failure]:
        rows = await self._read("failures", {"event_id": event_id, "handler_id": handler_id})
        read = self._dialect.times.read
        return last_of_each([Failure(row[0], row[1], read(row[2]), *row[3:]) for row in rows])

    async def purge(self, older_than: timedelta, *, dead: bool, limit: int) -> int:
        age = to_micros(older_than)
        deleted = await self._purge("purge", {"status": EventStatus.DONE.value, "older_than": age, "limit": limit})
        if dead and deleted < limit:
            rest = limit - deleted
            deleted += await self._purge("purge", {"status": EventStatus.DEAD.value, "older_than": age, "limit": rest})
        return deleted

    async def purge_aged(self, older_than: timedelta, *, limit: int) -> int:
        return await self._purge("purge_aged", {"older_than": to_micros(older_than), "limit": limit})

    async def _purge(self, name: str, values: Mapping[str, object]) -> int:
        return int(await self._explained(self._changes.purge(name, values)))

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

    def _records(self, rows: list[Any]) -> list[EventRecord]:
        return [record_of(row, self._dialect.times) for row in rows]

    async def _read(self, name: str, values: Mapping[str, object]) -> list[Any]:
        statement = self._sql[name]
        read = self._executor.fetch(statement.sql, statement.values(values), writes=False)
        rows: list[Any] = await self._explained(read)
        return rows

    async def _change(self, name: str, values: Mapping[str, object]) -> int:
        statement = self._sql[name]
        return int(await self._explained(self._executor.execute(statement.sql, statement.values(values))))


def _filter(where: EventFilter) -> dict[str, object]:
    return {
        "event_type": where.event_type,
        "aggregate_type": where.aggregate_type,
        "handler_id": where.handler_id,
        "aggregate_id": where.aggregate_id,
        "tenant_id": where.tenant_id,
        "event_key": where.key,
        "error": where.error,
        "older_than": None if where.older_than is None else to_micros(where.older_than),
    }


def _status(where: EventFilter) -> int | None:
    return None if where.status is None else where.status.value
