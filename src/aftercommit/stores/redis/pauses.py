"""What is paused, in a hash beside the events."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from aftercommit.events.pauses import PUT_OFF_AT_MOST, Pause, PauseKey, PauseKind
from aftercommit.stores.redis.records import PAGE
from aftercommit.stores.redis.server import Server
from aftercommit.stores.sql.rows import instant, instant_to_micros, to_micros


@dataclass(eq=False)
class RedisPauses:
    """Each call is one script, but for what is long."""

    _server: Server

    async def pause(
        self, key: PauseKey, *, reason: str, by: str, lasts: timedelta | None, until: datetime | None
    ) -> None:
        time = "" if lasts is None else to_micros(lasts), "" if until is None else instant_to_micros(until)
        await self._server.run("pause", _field(key), reason, by, *time)

    async def resume(self, key: PauseKey) -> bool:
        return bool(await self._server.run("resume", _field(key)))

    async def all(self) -> list[Pause]:
        at, found = await self._server.run("pauses")
        return sorted(
            (_pause(int(at), found[n], found[n + 1]) for n in range(0, len(found), 2)),
            key=lambda pause: (pause.kind.value, pause.name),
        )

    async def hasten(self, event_type: str | None, handler_id: str | None) -> int:
        which = int(event_type is not None), event_type or "", int(handler_id is not None), handler_id or ""
        hastened, passed = 0, 0
        while True:
            found, count = await self._server.run("hasten", to_micros(PUT_OFF_AT_MOST), *which, passed, PAGE)
            hastened += int(count)
            passed += int(found) - int(count)
            if found < PAGE:
                return hastened


def _field(key: PauseKey) -> str:
    return f"{key.kind.value}:{key.name}"


def _pause(now: int, field: bytes, packed: bytes) -> Pause:
    kind, _, name = field.decode().partition(":")
    reason, by, at, ends = msgspec.msgpack.decode(packed)
    return Pause(
        PauseKind(kind),
        name,
        reason,
        by,
        instant(int(at)),
        None if not ends else instant(int(ends)),
        timedelta(microseconds=now - int(at)),
        None if not ends else timedelta(microseconds=int(ends) - now),
    )
