"""How MySQL and MariaDB look for keys. There a statement can neither go from key to key nor take the first rows of each
of many keys by index; several statements can, and one with an arm for each key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, takewhile
from operator import itemgetter
from typing import Any, Final, NamedTuple

from aftercommit.events.order import HeadsRequest, KeyClaimRequest, KeyRule, OrderKey
from aftercommit.ports import Tx
from aftercommit.stores.sql.in_steps import InSteps
from aftercommit.stores.sql.rows import as_group
from aftercommit.stores.sql.runs import REACH, Candidate, rest_of
from aftercommit.stores.sql.statements import Statement

#: How many rows a walk reads at a time: many where keys are short, few where they are long and all but the first row
#: of each is read for nothing.
_PAGE: Final = 100
_GLANCE: Final = 10

#: How many keys are asked for in one statement.
_ARMS: Final = 100

#: A list that is not empty must be given, and there is no such partition.
_NONE: Final = (-1,)


class MysqlSteps(InSteps):
    """Walks by the page, and asks for the fronts of keys one by one in one statement."""

    async def heads(self, request: HeadsRequest) -> list[Any]:
        async def work(tx: Tx) -> list[Any]:
            walked = await self._walk(tx, request)
            if not walked:
                return []
            statement = self._sql["heads"]
            values = statement.bind(heads=as_group(walked), blocks=request.rule.blocks)
            heads = await tx.fetch(statement.sql, values)
            return heads if request.rule.stops else await self._with_waits(tx, heads, request.rule)

        return await self._executor.transact(work, writes=False)

    async def _walk(self, tx: Tx, request: HeadsRequest) -> list[tuple[int, str, int]]:
        """The first row of each key, each page behind the last key of the one before."""
        statement, rows = self._sql["walk"], _PAGE
        heads: list[tuple[int, str, int]] = []
        partitions, after = rest_of(request)
        while partitions and len(heads) < request.limit:
            stretch = _ascending(partitions)
            others = tuple(stretch[1:]) or _NONE
            page = await tx.fetch(
                statement.sql, statement.bind(first=stretch[0], after_key=after, others=others, rows=rows)
            )
            firsts = [next(key) for _, key in groupby(page, key=itemgetter(0, 1))]
            heads += firsts
            if len(page) < rows:
                partitions, after = partitions[len(stretch) :], ""
            else:
                partitions, after = partitions[partitions.index(page[-1][0]) :], page[-1][1]
            rows = _PAGE if len(firsts) > max(1, rows // 20) else _GLANCE
        return heads[: request.limit]

    async def _with_waits(self, tx: Tx, heads: list[Any], rule: KeyRule) -> list[Any]:
        """Where rows that are not due are passed over, all that lies in front counts, and not the head alone."""
        keys = [OrderKey(head[0], head[1]) for head in heads]
        waits = dict[int, Any]()
        for sql, values in _arms(self._sql["waits"], keys, rows=REACH, blocks=rule.blocks):
            waits |= {row[0]: row[1:] for row in await tx.fetch(sql, values)}
        return [
            (*head[:3], *waits[number]) if waits[number][1] is not None else head for number, head in enumerate(heads)
        ]

    async def _candidates(self, tx: Tx, request: KeyClaimRequest) -> list[Candidate]:
        rows, rule = list[Any](), request.rule
        for sql, values in _arms(self._sql["run_front"], request.keys, rows=request.run if rule.stops else REACH):
            rows += await tx.fetch(sql, values)
        rows.sort(key=itemgetter(0, 1))
        return [
            Candidate(row.number, row.position, bool(row.is_due), row.epoch)
            for _, front in groupby(map(_Row._make, rows), key=itemgetter(0))
            for row in _listed([row for row in front if not (rule.blocks and row.is_behind_dead)], request)
        ]


class _Row(NamedTuple):
    """One of the first rows of a key."""

    number: int
    position: int
    is_due: int
    is_leased: int
    epoch: int
    dead: int | None

    @property
    def is_behind_dead(self) -> bool:
        return self.dead is not None and self.position > self.dead


def _listed(front: Sequence[_Row], request: KeyClaimRequest) -> Sequence[_Row]:
    """What is due and free, up to the first row that is not. Where rows that are not due are passed over: all up to the
    last row of the run, and nothing when somebody is at the key."""
    if request.rule.stops:
        return list(takewhile(lambda row: row.is_due and not row.is_leased, front))
    if any(row.is_leased for row in front):
        return ()
    due = [number for number, row in enumerate(front) if row.is_due][: request.run]
    return front[: due[-1] + 1] if due else ()


def _ascending(partitions: Sequence[int]) -> Sequence[int]:
    """As many of them as one statement finds in this order."""
    ends = (number for number in range(1, len(partitions)) if partitions[number] <= partitions[number - 1])
    return partitions[: next(ends, len(partitions))]


def _arms(statement: Statement, keys: Sequence[OrderKey], **values: object) -> Iterator[tuple[str, list[object]]]:
    """Statements with an arm for each key, and their values."""
    for start in range(0, len(keys), _ARMS):
        some = list(enumerate(keys))[start : start + _ARMS]
        bound = (statement.bind(number=number, partition=key.partition, key=key.key, **values) for number, key in some)
        yield " UNION ALL ".join([f"({statement.sql})"] * len(some)), [value for arm in bound for value in arm]
