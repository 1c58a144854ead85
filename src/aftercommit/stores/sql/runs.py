"""Heads and runs of keys: how they are asked for, and what comes of the rows that the statements return."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from aftercommit.events.order import Head, HeadsRequest, HeadState, KeyClaimRequest, OrderKey
from aftercommit.stores.sql.execution import Executor
from aftercommit.stores.sql.rows import as_group
from aftercommit.stores.sql.statements import Dialect, Statements

#: How many rows of a key are looked at where rows that are not due are passed over.
REACH: Final = 1000


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


async def heads_at_once(
    request: HeadsRequest, executor: Executor, statements: Statements, dialect: Dialect
) -> list[Any]:
    """The walk as one statement."""
    heads = statements["heads"]
    return await executor.fetch(heads.sql, heads.bind(**walk_values(request, dialect)), writes=False)


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
    keys: dict[str, object] = {"asked": as_group(request.keys)}
    if dialect.array is not None:
        keys = {
            "partitions": dialect.array([key.partition for key in request.keys]),
            "keys": dialect.array([key.key for key in request.keys]),
        }
    return {**keys, "run": request.run, "reach": REACH, "stops": request.rule.stops, "blocks": request.rule.blocks}


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
