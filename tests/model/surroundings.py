"""What happens around deliveries: writers, time, operators, and the partition that is handed round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.model.bugs import Bug
from tests.model.explorer import Step
from tests.model.rules import Rules, Stalls, forget, instance, name_of, released, with_arriving, with_copy, with_row
from tests.model.settling import is_fenced_in, settled_row
from tests.model.state import GONE, Copy, Lost, Memory, Outcome, Partition, Phase, Row, Status, Table


def write(rules: Rules, table: Table) -> Iterator[Step]:
    """The next event is committed by somebody, free. Whoever has locked its key is waited for."""
    if table.lock is not None:
        return
    for place, row in enumerate(table.rows):
        if row.status is Status.UNWRITTEN:
            yield Step(f"{name_of(place)} is written, born free", with_row(table, place, Row(Status.NEW)))
            return


def pass_time(rules: Rules, table: Table) -> Iterator[Step]:
    """Retries fall due, and what belongs to nobody alive expires."""
    for place, row in enumerate(table.rows):
        if row.is_unfinished and not row.is_due:
            yield Step(f"{name_of(place)} falls due", with_row(table, place, row._replace(is_due=True)))
        if row.owner == GONE and not row.is_expired and Bug.NO_EXPIRY not in rules.bugs:
            expired = with_row(table, place, row._replace(is_expired=True))
            yield Step(f"the lease on {name_of(place)} expires, its owner is gone", expired)
    if table.partition == Partition(GONE) and Bug.NO_PARTITION_EXPIRY not in rules.bugs:
        unowned = table._replace(partition=Partition(GONE, is_expired=True))
        yield Step("the partition expires, its owner is gone", unowned)


def operate(rules: Rules, table: Table) -> Iterator[Step]:
    """Somebody replays or discards a dead event."""
    if not table.budget.replays:
        return
    poorer = table._replace(budget=table.budget._replace(replays=table.budget.replays - 1))
    for place, row in enumerate(table.rows):
        if row.status is Status.DEAD:
            replayed = with_row(poorer, place, Row(Status.NEW, owner=row.owner, had_effect=row.had_effect))
            raised = () if Bug.REPLAY_KEEPS_EPOCH in rules.bugs else (place,)
            lost = Lost(raised=raised, replayed=(place,) if rules.world.watches_replays else ())
            yield Step(f"{name_of(place)} is replayed", replayed, lost=lost, is_fault=True)
            discarded = with_row(poorer, place, row._replace(status=Status.DONE, had_effect=True))
            yield Step(f"{name_of(place)} is discarded", discarded, is_fault=True)


def stall(rules: Rules, me: int, table: Table, memory: Memory) -> Iterator[Step]:
    """The local deadline of a lease passes, and later the lease itself. Nothing tells the instance so."""
    mine = [place for place, row in enumerate(table.rows) if row.owner == me and row.is_unfinished]
    if rules.world.stalls is Stalls.LONG:
        yield from _stall(rules, me, table, memory, mine)
        return
    for place in mine:
        if rules.world.stalls is Stalls.ANY or _lease(memory, place) is None:
            yield from _stall(rules, me, table, memory, [place])


def _lease(memory: Memory, place: int) -> Copy | None:
    return memory.arriving[place] or memory.copies[place]


def _stall(rules: Rules, me: int, table: Table, memory: Memory, places: Sequence[int]) -> Iterator[Step]:
    who, events = instance(me), ", ".join(map(name_of, places))
    is_known = any(_lease(memory, place) for place in places)
    late = memory
    for place in places:
        late = _with_late_lease(late, place)
    if late != memory:
        yield Step(f"{who}'s deadline for {events} passes", table, late, is_fault=True)
    if late == memory or Bug.DEADLINE_AFTER_EXPIRY in rules.bugs:
        expired = table
        for place in places:
            expired = with_row(expired, place, expired.rows[place]._replace(is_expired=True))
        if expired != table:
            yield Step(f"{who}'s lease on {events} expires", expired, memory, is_fault=is_known)


def _with_late_lease(memory: Memory, place: int) -> Memory:
    lease = _lease(memory, place)
    if lease is None or lease.is_late or not lease.fits:
        return memory
    change = with_arriving if memory.arriving[place] else with_copy
    return change(memory, place, lease._replace(is_late=True))


def share(rules: Rules, me: int, table: Table, memory: Memory) -> Iterator[Step]:
    """Take, keep, lose or give back the partition. Nobody is told at once, so two may believe that it is theirs."""
    partition, who = table.partition, instance(me)
    if partition is None:
        return
    if partition.owner != me and (partition.owner is None or partition.is_expired):
        taken = table._replace(partition=Partition(me))
        yield Step(f"{who} takes the partition", taken, memory._replace(believes=True))
    if partition.owner == me and not partition.is_expired:
        expired = table._replace(partition=Partition(me, is_expired=True))
        yield Step(f"{who} is silent and its partition expires", expired, memory, is_fault=True)
    if partition.owner == me and partition.is_expired:
        yield Step(f"{who} is heard again and keeps the partition", table._replace(partition=Partition(me)), memory)
    if partition.owner == me:
        yield _give_back(rules, me, table._replace(partition=Partition()), memory, f"{who} gives the partition back")
    elif memory.believes:
        yield _give_back(rules, me, table, memory, f"{who} hears that the partition is not its own any more")


def _give_back(rules: Rules, me: int, table: Table, memory: Memory, words: str) -> Step:
    """Unstarted rows are released; the running one holds its key by its lease."""
    memory = memory._replace(believes=False)
    lost = None
    for place, copy in enumerate(memory.copies):
        if copy is None:
            continue
        if copy.phase is Phase.WAITING:
            memory = with_copy(memory, place, released(copy))
        elif copy.phase is Phase.DELIVERING and Bug.GIVE_BACK_DROPS_RUNNING in rules.bugs:
            row = table.rows[place]
            if is_fenced_in(rules, me, row, copy):
                table = with_row(table, place, settled_row(rules, row, Outcome.RELEASE))
                memory = forget(memory, Lost((place,), (place,)))
                lost = Lost(raised=(place,))
    return Step(words, table, memory, lost)
