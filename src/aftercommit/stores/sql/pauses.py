"""What is paused, in a small table beside the events."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any

import msgspec

from aftercommit.events.pauses import PUT_OFF_AT_MOST, Pause, PauseKey, PauseKind
from aftercommit.stores.sql.execution import Executor
from aftercommit.stores.sql.rows import Times, to_micros
from aftercommit.stores.sql.statements import Statements


class SqlPauses(msgspec.Struct, eq=False, dict=True):
    """Each call is a transaction of its own, or two."""

    _executor: Executor
    _sql: Statements
    _times: Times
    _explained: Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]]

    async def pause(
        self, key: PauseKey, *, reason: str, by: str, lasts: timedelta | None, until: datetime | None
    ) -> None:
        await self._change("forget_pauses")
        await self._change(
            "pause",
            kind=key.kind.value,
            name=key.name,
            reason=reason,
            paused_by=by,
            lasts=None if lasts is None else to_micros(lasts),
            paused_until=None if until is None else self._times.write(until),
        )

    async def resume(self, key: PauseKey) -> bool:
        return bool(await self._change("resume", kind=key.kind.value, name=key.name))

    async def all(self) -> list[Pause]:
        rows = await self._explained(self._executor.fetch(self._sql["pauses"].sql, writes=False))
        return [self._pause(*row) for row in rows if row[-1] is None or row[-1] > 0]

    def _pause(
        self, kind: str, name: str, reason: str | None, by: str, at: Any, until: Any, lasted: int, ends_in: int | None
    ) -> Pause:
        return Pause(
            PauseKind(kind),
            name,
            reason or "",
            by,
            self._times.read(at),
            None if until is None else self._times.read(until),
            timedelta(microseconds=int(lasted)),
            None if ends_in is None else timedelta(microseconds=int(ends_in)),
        )

    async def hasten(self, event_type: str | None, handler_id: str | None) -> int:
        within = to_micros(PUT_OFF_AT_MOST)
        return await self._change("hasten", event_type=event_type, handler_id=handler_id, within=within)

    async def _change(self, statement_name: str, /, **values: object) -> int:
        statement = self._sql[statement_name]
        return int(await self._explained(self._executor.execute(statement.sql, statement.values(values))))
