"""Heads and runs of keys: how they are asked for, how a run is locked and leased, and what comes of the rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec

from aftercommit.events.order import Head, HeadsRequest, HeadState, KeyClaimRequest, KeyRule, OrderKey
from aftercommit.ports import Tx
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.execution import Executor
from aftercommit.stores.sql.rows import POSITION, as_group
from aftercommit.stores.sql.statements import Statement, Statements

#: How many rows of a key are looked at where rows that are not due are passed over.
REACH: Final = 1000

#: How many rows a walk by the page reads at a time: many where keys are short, few where they are long and all but the
#: first row of each is read for nothing.
_PAGE: Final = 100
_GLANCE: Final = 10

#: How many keys are asked for in one statement.
_ARMS: Final = 100

#: A list that is not empty must be given, and there is no such partition.
_NONE: Final = (-1,)


class RunsByStatement(msgspec.Struct, eq=False, dict=True):
    """How a database finds the heads of keys, and leases what they may give. One statement for each: it lists, locks
    and leases."""

    _executor: Executor
    _sql: Statements
    _dialect: Dialect

    async def heads(self, request: HeadsRequest, *, is_alone: bool) -> list[Any]:
        """The first unfinished row of each key, as `head_of` takes it; as part of somebody's transaction, or alone."""
        heads = self._sql["heads"]
        return await self._executor.fetch(heads.sql, heads.values(walk_values(request, self._dialect)), writes=False)

    async def claim_keys(self, request: KeyClaimRequest, values: Mapping[str, object]) -> list[Any]:
        """The rows that were leased."""
        claim = self._sql["claim_keys"]
        return await self._executor.fetch(claim.sql, claim.values(values))


class RunsByLocking(RunsByStatement):
    """Rows are listed, locked and leased step by step in one transaction. What is listed without a lock may have
    changed before it is locked; then it ends its run."""

    #: Whether a list has everything that was written before the rows in it.
    is_snapshot = True

    async def claim_keys(self, request: KeyClaimRequest, values: Mapping[str, object]) -> list[Any]:
        async def work(tx: Tx) -> list[Any]:
            lock, mark = self._sql["run_lock"], self._sql["claim_mark"]
            listed = await self._candidates(tx, request, values)
            if not listed:
                return []
            seen = as_group([(each.position, each.epoch, int(each.is_due)) for each in listed])
            rows = {row[POSITION]: row for row in await tx.fetch(lock.sql, lock.values({**values, "candidates": seen}))}
            if not self.is_snapshot:
                listed = _up_to_ends(await self._candidates(tx, request, values), listed)
            run = unbroken(listed, rows, stops=request.rule.stops)
            leased = [each.position for each in run if each.is_due]
            if leased:
                await tx.execute(mark.sql, mark.values({**values, "positions": as_group(leased)}))
            passed = [each.position for each in run if not each.is_due]
            if leased and passed and "pass_over" in self._sql:
                # Others who have listed these rows meanwhile, because they fell due, shall see that somebody was here.
                statement = self._sql["pass_over"]
                await tx.execute(statement.sql, statement.bind(positions=as_group(passed)))
            return [rows[position] for position in leased]

        return await self._executor.transact(work)

    async def _candidates(self, tx: Tx, request: KeyClaimRequest, values: Mapping[str, object]) -> list[Candidate]:
        look = self._sql["run_candidates"]
        return [Candidate(*row) for row in await tx.fetch(look.sql, look.values(values))]


class ConfirmedRuns(RunsByLocking):
    """For SQL Server. A list of rows is no snapshot there: a scan may pass the place of a row that is written then, and
    come to one that was written after it. A second list, taken when the rows of the first are locked, has both."""

    is_snapshot = False


def _up_to_ends(candidates: list[Candidate], before: list[Candidate]) -> list[Candidate]:
    """Of each key what does not go beyond its list before."""
    ends = {each.number: each.position for each in before}
    return [each for each in candidates if each.position <= ends.get(each.number, -1)]


class PagedRuns(RunsByLocking):
    """For MySQL and MariaDB. There a statement can neither go from key to key nor take the first rows of each of many
    keys by index. So a walk goes by the page, and a statement has an arm for each key whose front it asks for."""

    async def heads(self, request: HeadsRequest, *, is_alone: bool) -> list[Any]:
        async def work(tx: Tx) -> list[Any]:
            walked = await self._walk(tx, request, is_alone=is_alone)
            if not walked:
                return []
            statement = self._sql["heads"]
            values = statement.bind(heads=as_group(walked), blocks=request.rule.blocks)
            heads = await tx.fetch(statement.sql, values)
            return heads if request.rule.stops else await self._with_waits(tx, heads, request.rule)

        return await self._executor.transact(work, writes=False)

    async def _walk(self, tx: Tx, request: HeadsRequest, *, is_alone: bool) -> list[tuple[int, str, int]]:
        """The first row of each key, each page behind the last key of the one before."""
        statement, rows = self._sql["walk"], _PAGE
        heads: list[tuple[int, str, int]] = []
        partitions, after = rest_of(request)
        while partitions and len(heads) < request.limit:
            stretch = _ascending(partitions)
            others = tuple(stretch[1:]) or _NONE
            # What was finished stays in the index while a transaction is open that wrote before, and each such entry
            # costs a look at its row; but not to one who reads what is not committed. A walk only says where to claim,
            # and claims go by what is committed.
            if is_alone:
                await tx.execute(self._sql["walk_freely"].sql)
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

    async def _candidates(self, tx: Tx, request: KeyClaimRequest, values: Mapping[str, object]) -> list[Candidate]:
        rows, rule = list[Any](), request.rule
        for sql, bound in _arms(self._sql["run_front"], request.keys, rows=request.run if rule.stops else REACH):
            rows += await tx.fetch(sql, bound)
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


def rest_of(request: HeadsRequest) -> tuple[list[int], str]:
    """What is left of a walk: it goes on in the partition in which it stopped, behind its last key."""
    partitions, after = list(request.partitions), request.after
    if after is None or after.partition not in partitions:
        return partitions, ""
    return partitions[partitions.index(after.partition) :], after.key


def walk_values(request: HeadsRequest, dialect: Dialect) -> dict[str, object]:
    """The parameters of `heads`."""
    partitions, after_key = rest_of(request)
    return {
        "partitions": dialect.list(partitions),
        "after_key": after_key,
        "limit": request.limit,
        "reach": REACH,
        "stops": request.rule.stops,
        "blocks": request.rule.blocks,
    }


def head_of(row: Sequence[Any]) -> Head:
    partition, key, is_blocked, leased_for, due_in = row
    order_key = OrderKey(partition, key)
    if is_blocked:
        return Head(order_key, HeadState.BLOCKED)
    if leased_for is not None:
        return Head(order_key, HeadState.LEASED, leased_for / 1_000_000)
    if due_in > 0:
        return Head(order_key, HeadState.LATER, due_in / 1_000_000)
    return Head(order_key, HeadState.READY)


def run_values(request: KeyClaimRequest, dialect: Dialect) -> dict[str, object]:
    """The parameters of a claim of keys, but for those of its lease."""
    return {
        **asked_values(request.keys, dialect),
        "run": request.run,
        "reach": REACH,
        "stops": request.rule.stops,
        "blocks": request.rule.blocks,
    }


def asked_values(keys: Sequence[OrderKey], dialect: Dialect) -> dict[str, object]:
    """Keys as parameters of a statement."""
    if dialect.array is None:
        return {"asked": as_group(keys)}
    return {
        "partitions": dialect.array([key.partition for key in keys]),
        "keys": dialect.array([key.key for key in keys]),
    }


class Candidate(NamedTuple):
    """A row that may be leased, or passed over because it is not due, as it was seen before it was locked."""

    number: int
    position: int
    is_due: bool
    epoch: int


def unbroken(candidates: Sequence[Candidate], locked: Collection[int], *, stops: bool) -> list[Candidate]:
    """The runs: of each key what stands before the first row that was not locked; all or nothing where rows are passed
    over."""
    broken = {each.number for each in candidates if each.position not in locked} if not stops else set[int]()
    kept = []
    for each in candidates:
        if each.position not in locked:
            broken.add(each.number)
        if each.number not in broken:
            kept.append(each)
    return kept
