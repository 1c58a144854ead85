"""Everybody but the poller: writers, time, workers, the settler, and who hands the partition round."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.explorer import Step
from tests.model.waking.agenda import (
    Rules,
    add,
    call_round,
    free,
    is_full,
    is_last,
    leave,
    make_room,
    report,
    with_agenda,
    with_rows,
)
from tests.model.waking.bugs import Slip
from tests.model.waking.state import Entry, Memory, Outcome, Stage, Status, Table, Told

_NOT_DUE = (Status.LATER, Status.STRANDED)


def pass_time(table: Table) -> Iterator[Step]:
    """Retries fall due, leases that nobody knows of expire, open transactions commit."""
    for row, status in enumerate(table.rows):
        match status:
            case Status.LATER:
                yield Step(f"row {row} falls due", with_rows(table, [row], Status.FREE))
            case Status.STRANDED:
                yield Step(f"the lease on row {row} expires", with_rows(table, [row], Status.FREE))
            case Status.OPEN:
                yield Step(f"row {row} is committed, and nobody sees it", with_rows(table, [row], Status.FREE))
            case _:
                pass


# ------------------------------------------------------------ writers


def write(rules: Rules, table: Table, memory: Memory) -> Iterator[Step]:
    """The next row is committed, then told."""
    row = next((row for row, status in enumerate(table.rows) if status is Status.UNWRITTEN), None)
    if row is not None:
        yield _write(rules, table, memory, row)
    for told in sorted(memory.untold):
        after = _tell(rules, memory._replace(untold=memory.untold - {told}), told)
        yield Step(f"the writer of row {told} tells of it", table, after)


def _write(rules: Rules, table: Table, memory: Memory, row: int) -> Step:
    how, key = rules.world.told[row], rules.world.keys[row]
    committed = with_rows(table, [row], Status.FREE)
    if how is Told.NOT:
        return Step(f"row {row} is committed by a stranger", committed, memory)
    if how is Told.EXPECTED:
        after = memory._replace(expected=memory.expected | {row}, patience=rules.world.patience)
        after = with_agenda(after, soon=memory.agenda.soon | {key})
        return Step(f"row {row} is written, and its commit expected", with_rows(table, [row], Status.OPEN), after)
    if Slip.TOLD_BEFORE_THE_COMMIT in rules.slips:
        return Step(f"row {row} is told", with_rows(table, [row], Status.OPEN), _tell(rules, memory, row))
    return Step(f"row {row} is committed", committed, memory._replace(untold=memory.untold | {row}))


def _tell(rules: Rules, memory: Memory, row: int) -> Memory:
    key = rules.world.keys[row]
    if rules.world.told[row] is Told.EVERYWHERE:
        return call_round(memory)
    if not memory.owned:  # who owns it is told, and is not in this world
        return memory
    return call_round(memory) if is_full(rules, memory.agenda, key) else add(rules, memory, key)


def fall_due(rules: Rules, table: Table, memory: Memory) -> Iterator[Step]:
    """What was called for later is ready now: never before the database takes it for due."""
    agenda = memory.agenda
    for key in sorted(agenda.later):
        is_early = any(table.rows[row] in _NOT_DUE for row in rules.rows_of(key))
        if not is_early or Slip.RETRY_IS_LOOKED_AT_EARLY in rules.slips:
            after = add(rules, with_agenda(memory, later=agenda.later - {key}), key)
            yield Step(f"the time of key {key} has come", table, after)
    if agenda.soon:
        yield from _look_for_expected(rules, table, memory)


def _look_for_expected(rules: Rules, table: Table, memory: Memory) -> Iterator[Step]:
    is_open = any(table.rows[row] is Status.OPEN for row in memory.expected)
    if is_open and memory.patience == 1:  # a transaction ends before the last look for it
        return
    counts = Slip.EVERY_LOOK_COUNTS_AS_EXPECTED not in rules.slips
    after = with_agenda(memory._replace(patience=max(0, memory.patience - counts)), soon=frozenset())
    for key in sorted(memory.agenda.soon):
        after = add(rules, after, key)
    yield Step("it is time to look for what is expected", table, after)


# ------------------------------------------------------------ workers


def work(rules: Rules, table: Table, memory: Memory) -> Iterator[Step]:
    """Take a row out of the lane, look who wants room, start it and end it."""
    busy = memory.popped | memory.running
    row = _next(rules, memory) if len(busy) < rules.world.workers else None
    if row is not None:
        lane = tuple(other for other in memory.lane if other != row)
        yield Step(f"a worker takes row {row}", table, memory._replace(lane=lane, popped=memory.popped | {row}))
    for row in sorted(memory.popped):
        yield _start(rules, table, memory, row)
    for row in sorted(memory.running):
        yield from _end(rules, table, memory, row)


def _next(rules: Rules, memory: Memory) -> int | None:
    """The first whose key no other worker is at."""
    busy = rules.keys_of(memory.popped | memory.running)
    return next((row for row in memory.lane if rules.world.keys[row] not in busy), None)


def _start(rules: Rules, table: Table, memory: Memory, row: int) -> Step:
    memory = memory._replace(popped=memory.popped - {row})
    if Slip.ROOM_IS_NOT_TOLD not in rules.slips:
        memory = make_room(rules, memory)
    if memory.owned and row not in memory.late:
        return Step(f"row {row} is started", table, memory._replace(running=memory.running | {row}))
    after = leave(rules, report(rules, memory, row, Outcome.RELEASE), {rules.world.keys[row]})
    return Step(f"row {row} may not be started any more", table, after)


def _end(rules: Rules, table: Table, memory: Memory, row: int) -> Iterator[Step]:
    keys, budget = {rules.world.keys[row]}, table.budget
    memory = memory._replace(running=memory.running - {row})
    done = report(rules, memory, row, Outcome.DONE)
    yield Step(f"row {row} is delivered", table, leave(rules, done, keys) if row in memory.late else done)
    if budget.failures:
        poorer = table._replace(budget=budget._replace(failures=budget.failures - 1))
        after = leave(rules, report(rules, memory, row, Outcome.RETRY), keys)
        yield Step(f"the delivery of row {row} fails", poorer, after, is_fault=True)


# ------------------------------------------------------------ the settler


def settle(rules: Rules, table: Table, memory: Memory) -> Iterator[Step]:
    """Each outcome is written, its row let go, its key freed and then announced."""
    if rules.world.settles_at_once:
        yield from _settle_at_once(rules, table, memory)
        return
    for entry in memory.settling:
        rest = memory._replace(settling=tuple(each for each in memory.settling if each != entry))
        match entry.stage:
            case Stage.PENDING:
                yield _write_outcome(table, rest, entry)
            case Stage.ANSWERED:
                yield _let_go(rules, table, rest, entry)
            case Stage.LET_GO:
                yield _free(rules, table, rest, entry)
            case Stage.FREED:
                yield Step(f"{entry.outcome} of row {entry.row} is announced", table, _announce(rules, rest, entry))


def _settle_at_once(rules: Rules, table: Table, memory: Memory) -> Iterator[Step]:
    """All of it in one step, for worlds that look at something else."""
    for entry in memory.settling:
        rest = memory._replace(settling=tuple(each for each in memory.settling if each != entry))
        written = _write_outcome(table, rest, entry)
        is_freed = is_last(rules, memory, entry.row)
        after = rest._replace(held=rest.held - {entry.row}, late=rest.late - {entry.row})
        after = free(rules, after, rules.world.keys[entry.row]) if is_freed else after
        if written.table != table:
            after = _announce(rules, after, entry)
        yield Step(written.words, written.table, after)


def _write_outcome(table: Table, memory: Memory, entry: Entry) -> Step:
    row = entry.row
    was_accepted = table.rows[row] is Status.LEASED
    status = {Outcome.DONE: Status.DONE, Outcome.RETRY: Status.LATER, Outcome.RELEASE: Status.FREE}[entry.outcome]
    table = with_rows(table, [row], status) if was_accepted else table
    words = f"{entry.outcome} of row {row} is {'written' if was_accepted else 'refused'}"
    return Step(words, table, _with(memory, entry._replace(was_accepted=was_accepted), Stage.ANSWERED))


def _let_go(rules: Rules, table: Table, memory: Memory, entry: Entry) -> Step:
    row = entry.row
    was_last = is_last(rules, memory, row)
    if was_last and Slip.FREED_BEFORE_LET_GO in rules.slips:
        after = _with(free(rules, memory, rules.world.keys[row]), entry, Stage.LET_GO)
        return Step(f"the key of row {row} is freed", table, after)
    memory = memory._replace(held=memory.held - {row}, late=memory.late - {row})
    is_freed = not was_last or Slip.FREED_WHEN_REPORTED in rules.slips
    return Step(f"row {row} is let go", table, _with(memory, entry, Stage.FREED if is_freed else Stage.LET_GO))


def _free(rules: Rules, table: Table, memory: Memory, entry: Entry) -> Step:
    row = entry.row
    if Slip.FREED_BEFORE_LET_GO in rules.slips:
        after = _with(memory._replace(held=memory.held - {row}), entry, Stage.FREED)
        return Step(f"row {row} is let go", table, after)
    after = _with(free(rules, memory, rules.world.keys[row]), entry, Stage.FREED)
    return Step(f"the key of row {row} is freed", table, after)


def _with(memory: Memory, entry: Entry, stage: Stage) -> Memory:
    """The entry at its next stage; gone when there is nothing left to announce."""
    if stage is Stage.FREED and (entry.outcome is Outcome.DONE or not entry.was_accepted):
        return memory
    return memory._replace(settling=tuple(sorted((*memory.settling, entry._replace(stage=stage)))))


def _announce(rules: Rules, memory: Memory, entry: Entry) -> Memory:
    key = rules.world.keys[entry.row]
    if entry.outcome is Outcome.DONE:
        return memory
    if entry.outcome is Outcome.RELEASE:
        return memory if Slip.RELEASE_IS_NOT_TOLD in rules.slips else add(rules, memory, key)
    if Slip.RETRY_IS_NOT_TOLD in rules.slips:
        return memory
    return with_agenda(memory, later=memory.agenda.later | {key})


# ------------------------------------------------------------ what is lost


def _are_whole_keys(rules: Rules, table: Table, leased: list[int]) -> bool:
    """Nothing else is left of their keys: whatever follows another's row is told to nobody here, but for the rounds."""
    rest = (row for key in rules.keys_of(leased) for row in rules.rows_of(key))
    return all(row in leased or table.rows[row] is Status.DONE for row in rest)


def lose(rules: Rules, table: Table, memory: Memory) -> Iterator[Step]:
    """All leases run out and another instance takes the rows, or nobody does; the partition goes, and comes back."""
    budget = table.budget
    leased = [row for row, status in enumerate(table.rows) if status is Status.LEASED and row in memory.held]
    if budget.leases and leased and _are_whole_keys(rules, table, leased):
        taken = with_rows(table, leased, Status.DONE)._replace(budget=budget._replace(leases=budget.leases - 1))
        late = memory._replace(late=frozenset(memory.held))
        yield Step("all leases run out, and another instance has delivered the rows", taken, late, is_fault=True)
    if budget.deadlines and memory.held:
        poorer = table._replace(budget=budget._replace(deadlines=budget.deadlines - 1))
        late = memory._replace(late=frozenset(memory.held))
        yield Step("all deadlines pass, and nobody has taken the rows yet", poorer, late, is_fault=True)
    if budget.moves and memory.owned:
        poorer = table._replace(budget=budget._replace(moves=budget.moves - 1))
        after = leave(rules, memory._replace(owned=False), set(rules.world.keys))
        yield Step("the partition is lost", poorer, after, is_fault=True)
    if not memory.owned:
        after = memory._replace(owned=True)
        after = after if Slip.GAIN_IS_NOT_TOLD in rules.slips else call_round(after)
        yield Step("the partition is gained", table, after)
