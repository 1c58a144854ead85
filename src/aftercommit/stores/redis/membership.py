"""The fleet beside the events: who is a member, and who owns which partition."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import msgspec

from aftercommit.events.claims import PARTITION_COUNT
from aftercommit.events.order import FleetView, Holder, Instance, Member
from aftercommit.stores.redis.scripts import Word
from aftercommit.stores.redis.server import Server
from aftercommit.stores.sql.rows import instant, to_micros

_MICRO: Final = 1_000_000

#: Lanes that a script looks at in one go.
_PAGE: Final = 1000

_decode: Final = msgspec.msgpack.Decoder().decode


@dataclass(eq=False)
class RedisMembership:
    """Two hashes. A partition that nobody ever owned is in none of them."""

    _server: Server

    async def join(self, instance: Instance) -> None:
        await self._server.run("fleet_join", instance.id, instance.host[:255], instance.pid)

    async def beat(self, instance_id: str, lasts: timedelta) -> dict[int, int] | None:
        owned = await self._server.run("fleet_beat", instance_id, to_micros(lasts))
        return None if owned is None else _epochs(owned)

    async def view(self) -> FleetView:
        now, members, partitions = await self._server.run("fleet_view")
        held = {int(partitions[n]): _decode(partitions[n + 1]) for n in range(0, len(partitions), 2)}
        return FleetView(
            [_member(members[n].decode(), now, *_decode(members[n + 1])) for n in range(0, len(members), 2)],
            [_holder(number, now, *held.get(number, (False, 0, False))) for number in range(PARTITION_COUNT)],
        )

    async def take(self, instance_id: str, partitions: dict[int, int], lasts: timedelta) -> dict[int, int]:
        if not partitions:
            return {}
        return _epochs(await self._server.run("fleet_take", instance_id, to_micros(lasts), *_seen(partitions)))

    async def give(self, instance_id: str, partitions: dict[int, int]) -> None:
        if partitions:
            await self._server.run("fleet_give", instance_id, *_seen(partitions))

    async def leave(self, instance_id: str) -> None:
        await self._server.run("fleet_leave", instance_id)

    async def bury(self, silent_for: timedelta, *, but: str) -> list[str]:
        return [each.decode() for each in await self._server.run("fleet_bury", to_micros(silent_for), but)]

    async def hold(self, duty: str, mine: str, *, over: str) -> str:
        held: bytes = await self._server.run("duty", duty, mine, over)
        return held.decode()

    async def lags(self) -> dict[int, timedelta]:
        """By the first row of each key, which is the oldest of it."""
        oldest: dict[int, int] = {}
        now, after = 0, b""
        while True:
            now, *lanes = await self._server.run("oldest", after, _PAGE)
            for lane, created_at in lanes:
                number = int(lane[:3])
                oldest[number] = min(oldest.get(number, created_at), created_at)
            if len(lanes) < _PAGE:
                return {number: timedelta(microseconds=max(0, now - since)) for number, since in oldest.items()}
            after = lanes[-1][0]


def _seen(partitions: dict[int, int]) -> list[Word]:
    return [word for fact in partitions.items() for word in fact]


def _epochs(pairs: list[Any]) -> dict[int, int]:
    return {int(number): epoch for number, epoch in pairs}


def _member(id: str, now: int, host: str, pid: int, started_at: int, heard_at: int) -> Member:
    return Member(id, host, pid, instant(started_at), max(0, now - heard_at) / _MICRO)


def _holder(partition: int, now: int, owner: str | bool, epoch: int, expires_at: int | bool) -> Holder:
    expires_in = None if expires_at is False else (expires_at - now) / _MICRO
    return Holder(partition, owner if isinstance(owner, str) else None, epoch, expires_in)
