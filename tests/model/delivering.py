"""How a row is delivered: the last look at its deadline, the handler, its end, and the end of a process."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.bugs import Bug
from tests.model.explorer import Step
from tests.model.rules import Rules, instance, let_go, name_of, released, reported, with_copy, with_row
from tests.model.settling import is_fenced_in
from tests.model.state import GONE, Copy, Memory, Outcome, Phase, Table

_WITH_A_WORKER = (Phase.MARKED, Phase.DELIVERING)


def start(rules: Rules, me: int, table: Table, memory: Memory) -> Iterator[Step]:
    """A worker takes a row: of a key one at a time and in order, of the suspects one at a time."""
    for place, copy in enumerate(memory.copies):
        if copy is None or not _is_next(rules, memory, place, copy):
            continue
        if (refusal := _refusal(rules, memory, copy)) is not None:
            words = f"{instance(me)} finds {refusal} {name_of(place)} and lets go of it"
            yield Step(words, table, _dropped(rules, with_copy(memory, place, released(copy)), place))
        elif copy.is_suspect and copy.phase is Phase.WAITING:
            yield _start_suspect(rules, me, table, memory, place, copy)
        else:
            words = f"{instance(me)} starts {name_of(place)}"
            broken = _what_breaks(me, memory, place, copy)
            yield Step(words, table, _delivering(memory, place, copy), broken=broken)


def _is_next(rules: Rules, memory: Memory, place: int, copy: Copy) -> bool:
    return copy.phase is Phase.MARKED or (copy.phase is Phase.WAITING and _may_run(rules, memory, place, copy))


def _refusal(rules: Rules, memory: Memory, copy: Copy) -> str | None:
    """Why a row may not be started: asked right before the start, and for a suspect before its mark as well."""
    is_marked = copy.phase is Phase.MARKED
    if copy.is_overtaken:
        return "that others had"
    asks_for_time = not (is_marked and Bug.DEADLINE_BEFORE_THE_MARK_ONLY in rules.bugs)
    if copy.is_late and asks_for_time and Bug.DEADLINE_IGNORED not in rules.bugs:
        return "the deadline passed for"
    asks_for_owner = not (is_marked and Bug.OWNER_BEFORE_THE_MARK_ONLY in rules.bugs)
    if not memory.believes and asks_for_owner and Bug.OWNER_IS_NOT_ASKED not in rules.bugs:
        return "the partition lost for"
    return None


def _what_breaks(me: int, memory: Memory, place: int, copy: Copy) -> str:
    if not copy.holds:
        return f"one holder: {instance(me)} starts {name_of(place)} and is not its holder"
    if not memory.believes:
        return f"given is given: {instance(me)} starts {name_of(place)} and knows that its partition is lost"
    return ""


def _may_run(rules: Rules, memory: Memory, place: int, copy: Copy) -> bool:
    if copy.is_suspect and not _is_turn_of(rules, memory, copy):
        return False
    before = [memory.copies[other] for other in rules.earlier(place)]
    beside = [*before, *(memory.copies[other] for other in rules.later(place))]
    is_its_turn = not any(each is not None and each.phase is Phase.WAITING for each in before)
    is_alone = not any(each is not None and each.phase in _WITH_A_WORKER for each in beside)
    return (is_its_turn and is_alone) or Bug.TWO_AT_ONCE in rules.bugs


def _is_turn_of(rules: Rules, memory: Memory, suspect: Copy) -> bool:
    """Those of which nobody knows more than that they were in hand when a process ended run side by side."""
    at_work = [copy for copy in memory.copies if copy is not None and _is_suspect_at_work(rules, copy)]
    if Bug.SUSPECTS_SIDE_BY_SIDE in rules.bugs:
        return True
    return not at_work or not any(copy.is_alone for copy in (suspect, *at_work))


def _is_suspect_at_work(rules: Rules, copy: Copy) -> bool:
    """It keeps its place until its outcome is written, for what runs next may kill the process; or until it has lived
    for a lease's time."""
    if not copy.is_suspect or copy.has_lived:
        return False
    return copy.phase in _WITH_A_WORKER or (copy.phase is Phase.REPORTED and Bug.SUSPECT_LEAVES_EARLY not in rules.bugs)


def _start_suspect(rules: Rules, me: int, table: Table, memory: Memory, place: int, copy: Copy) -> Step:
    row = table.rows[place]
    if not is_fenced_in(rules, me, row, copy):
        words = f"{instance(me)} finds the lease of {name_of(place)} lost and lets go of it"
        return Step(words, table, _dropped(rules, with_copy(memory, place, None), place))
    if copy.is_alone and Bug.LIVING_IS_BLAMED not in rules.bugs:
        table, memory = _cleared(rules, me, table, memory)
    broken = "" if copy.holds else "fenced: who is not the holder counts a delivery"
    not_here = {Bug.KILLERS_NOT_COUNTED, Bug.WAITING_IS_COUNTED} & rules.bugs
    counted = with_row(table, place, row._replace(abandoned=row.abandoned + (not not_here)))
    if rules.world.has_slow_marks:
        marked = with_copy(memory, place, copy._replace(phase=Phase.MARKED, is_marked=True))
        return Step(f"{instance(me)} marks {name_of(place)}, a suspect", counted, marked, broken=broken)
    words = f"{instance(me)} starts {name_of(place)}, a suspect"
    return Step(words, counted, _delivering(memory, place, copy), broken=broken)


def _cleared(rules: Rules, me: int, table: Table, memory: Memory) -> tuple[Table, Memory]:
    """Those that have lived are not to blame for what the next one does."""
    for place, copy in enumerate(memory.copies):
        if copy is not None and copy.has_lived and not copy.is_cleared and not copy.is_overtaken:
            row = table.rows[place]
            if is_fenced_in(rules, me, row, copy):
                table = with_row(table, place, row._replace(abandoned=row.abandoned - 1))
            memory = with_copy(memory, place, copy._replace(is_cleared=True))
    return table, memory


def _delivering(memory: Memory, place: int, copy: Copy) -> Memory:
    return with_copy(memory, place, copy._replace(phase=Phase.DELIVERING, is_marked=False))


def _dropped(rules: Rules, memory: Memory, place: int) -> Memory:
    return memory if Bug.REST_KEPT_AFTER_LOSS in rules.bugs else let_go(rules, memory, place)


def live(rules: Rules, me: int, table: Table, memory: Memory) -> Iterator[Step]:
    """A suspect has run for a lease's time. Killers are quicker than that."""
    if not rules.world.hung or Bug.HUNG_SUSPECT_KEEPS_ITS_PLACE in rules.bugs:
        return
    for place, copy in enumerate(memory.copies):
        if copy is None or copy.phase is not Phase.DELIVERING or place in rules.world.killers:
            continue
        if copy.is_suspect and not copy.has_lived:
            words = f"{name_of(place)} has not killed {instance(me)} for a lease's time"
            yield Step(words, table, with_copy(memory, place, copy._replace(has_lived=True)))


def end(rules: Rules, me: int, table: Table, memory: Memory) -> Iterator[Step]:
    """A handler returns, raises, or takes its process with it."""
    for place, copy in enumerate(memory.copies):
        if copy is None or copy.phase is not Phase.DELIVERING or place in rules.world.hung:
            continue
        if place in rules.world.killers:
            yield from _kill(rules, me, table, memory, place)
            continue
        yield _completed(rules, me, table, memory, place, copy)
        if table.budget.failures:
            poorer = table._replace(budget=table.budget._replace(failures=table.budget.failures - 1))
            for outcome in rules.world.failures:
                words = f"{instance(me)}'s handler of {name_of(place)} ends in {outcome}"
                after = with_copy(memory, place, reported(copy, outcome))
                if Bug.REST_KEPT_AFTER_FAILURE not in rules.bugs:
                    after = let_go(rules, after, place)
                yield Step(words, poorer, after, is_fault=True)


def _completed(rules: Rules, me: int, table: Table, memory: Memory, place: int, copy: Copy) -> Step:
    overtaken = [name_of(other) for other in rules.earlier(place) if not table.rows[other].had_effect]
    broken = f"order: {name_of(place)} has its first effect before {overtaken[0]}" if overtaken else ""
    effect = with_row(table, place, table.rows[place]._replace(had_effect=True))
    after = with_copy(memory, place, reported(copy, Outcome.DONE))
    return Step(f"{instance(me)} completes {name_of(place)}", effect, after, broken=broken)


def _kill(rules: Rules, me: int, table: Table, memory: Memory, place: int) -> Iterator[Step]:
    """The first time nobody could know, and each time after that is counted."""
    row = table.rows[place]
    kills = row.kills + 1
    table = with_row(table, place, row._replace(kills=kills))
    is_one_too_many = kills > rules.world.max_abandoned + 1
    broken = f"killers end: {name_of(place)} has killed {kills} processes" if is_one_too_many else ""
    for step in _die(rules, me, table, memory, f"{name_of(place)} kills {instance(me)}"):
        yield Step(step.words, step.table, step.memory, broken=broken)


def crash(rules: Rules, me: int, table: Table, memory: Memory) -> Iterator[Step]:
    """The process is gone with all that it knew; another one starts in its place under a new owner id."""
    if table.budget.crashes:
        poorer = table._replace(budget=table.budget._replace(crashes=table.budget.crashes - 1))
        for step in _die(rules, me, poorer, memory, f"{instance(me)} crashes and starts again"):
            yield Step(step.words, step.table, step.memory, is_fault=True)


def _die(rules: Rules, me: int, table: Table, memory: Memory, words: str) -> Iterator[Step]:
    rows = tuple(row._replace(owner=GONE) if row.owner == me else row for row in table.rows)
    partition = table.partition
    if partition is not None and partition.owner == me:
        partition = partition._replace(owner=GONE)
    nothing = (None,) * len(rows)
    empty = Memory(nothing, nothing, nothing, believes=not rules.world.has_partition)
    lock = None if table.lock == me else table.lock
    yield Step(words, table._replace(rows=rows, partition=partition, lock=lock), empty)
