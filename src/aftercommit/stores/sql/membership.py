"""The fleet in the database: who delivers, and who of them owns which partition."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from aftercommit.errors import SchemaMismatch
from aftercommit.events.claims import PARTITION_COUNT
from aftercommit.events.order import FleetView, Holder, Instance, Member
from aftercommit.ports import Tx
from aftercommit.stores.sql.execution import Executor
from aftercommit.stores.sql.rows import Times, as_group, to_micros
from aftercommit.stores.sql.statements import Statements

T = TypeVar("T")

_MICRO = 1_000_000


class SqlMembership(msgspec.Struct, eq=False, dict=True):
    """Two small tables beside the events. An instance's row is locked before partitions, these by their numbers."""

    executor: Executor
    _sql: Statements
    _times: Times
    _explained: Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]]

    async def join(self, instance: Instance) -> None:
        facts = {"id": instance.id, "host": instance.host[:255], "pid": instance.pid}
        await self._transact(lambda tx: self._change(tx, "fleet_join", **facts))

    async def beat(self, instance_id: str, lasts: timedelta) -> dict[int, int] | None:
        async def work(tx: Tx) -> dict[int, int] | None:
            if not await self._change(tx, "fleet_beat", id=instance_id):
                return None
            await self._change(tx, "fleet_prolong", id=instance_id, lasts=to_micros(lasts))
            return await self._owned(tx, instance_id)

        return await self._transact(work)

    async def view(self) -> FleetView:
        async def work(tx: Tx) -> FleetView:
            members = await self._rows(tx, "fleet_members")
            partitions = await self._rows(tx, "fleet_partitions")
            _refuse_gaps(len(partitions))
            return FleetView([self._member(*row) for row in members], [_holder(*row) for row in partitions])

        return await self._transact(work, writes=False)

    def _member(self, id: str, host: str, pid: int, started_at: Any, silent_for: int, status: int) -> Member:
        # A beat that was committed after this look began is heard before it, by a little.
        silence = max(0, silent_for) / _MICRO
        return Member(id, host, pid, self._times.read(started_at), silence, is_leaving=status != 0)

    async def take(self, instance_id: str, partitions: dict[int, int], lasts: timedelta) -> dict[int, int]:
        async def work(tx: Tx) -> dict[int, int]:
            seen = _seen(partitions)
            if "fleet_free" in self._sql:  # where an UPDATE cannot pass over what is locked
                seen = _seen(dict(await self._rows(tx, "fleet_free", seen=seen)))
            await self._change(tx, "fleet_take", id=instance_id, seen=seen, lasts=to_micros(lasts))
            owned = await self._owned(tx, instance_id)
            # An epoch behind the one that was seen, and mine: nobody but me can have raised it.
            return {number: epoch for number, epoch in owned.items() if partitions.get(number) == epoch - 1}

        return await self._transact(work) if partitions else {}

    async def give(self, instance_id: str, partitions: dict[int, int]) -> None:
        if partitions:
            await self._transact(lambda tx: self._change(tx, "fleet_give", id=instance_id, seen=_seen(partitions)))

    async def leave(self, instance_id: str) -> None:
        async def work(tx: Tx) -> None:
            await self._change(tx, "fleet_leave", id=instance_id)
            await self._change(tx, "fleet_give_all", id=instance_id)

        await self._transact(work)

    async def bury(self, silent_for: timedelta, *, but: str) -> list[str]:
        limit = to_micros(silent_for)

        async def work(tx: Tx) -> list[str]:
            silent = await self._rows(tx, "fleet_silent", silent_for=limit, but=but)
            return [id for (id,) in silent if await self._change(tx, "fleet_bury", id=id, silent_for=limit)]

        return await self._transact(work)

    async def lags(self) -> dict[int, timedelta]:
        rows = await self._transact(lambda tx: self._rows(tx, "fleet_lags"), writes=False)
        return {number: timedelta(microseconds=max(0, age)) for number, age in rows}

    async def hold(self, duty: str, mine: str, *, over: str) -> str:
        fact = f"duty {duty}"

        async def work(tx: Tx) -> str:
            if not await self._change(tx, "duty_take", duty=fact, mine=mine, over=over) and not over:
                await self._change(tx, "duty_found", duty=fact, mine=mine)
            return str((await self._rows(tx, "duty", duty=fact))[0][0])

        return await self._transact(work)

    async def _owned(self, tx: Tx, instance_id: str) -> dict[int, int]:
        return dict(await self._rows(tx, "fleet_owned", id=instance_id))

    async def _change(self, tx: Tx, name: str, **values: object) -> int:
        statement = self._sql[name]
        return await tx.execute(statement.sql, statement.bind(**values))

    async def _rows(self, tx: Tx, name: str, **values: object) -> list[Any]:
        statement = self._sql[name]
        return await tx.fetch(statement.sql, statement.bind(**values))

    async def _transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], *, writes: bool = True) -> T:
        value: T = await self._explained(self.executor.transact(work, writes=writes))
        return value


def _seen(partitions: Mapping[int, int]) -> str:
    """Partitions with the epochs under which they were seen, in the order in which they are locked."""
    return as_group(sorted(partitions.items()))


def _refuse_gaps(count: int) -> None:
    """Events of a partition that is not there would wait for ever, and nobody would say so."""
    if count != PARTITION_COUNT:
        raise SchemaMismatch(
            f"the table of partitions has {count} rows, there are {PARTITION_COUNT} partitions",
            fix=f"insert the missing numbers from 0 to {PARTITION_COUNT - 1}; schema_sql() shows how",
        )


def _holder(partition: int, owner: str | None, epoch: int, expires_in: int | None) -> Holder:
    return Holder(partition, owner, epoch, None if expires_in is None else expires_in / _MICRO)
