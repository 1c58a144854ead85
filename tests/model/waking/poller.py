"""The poller: it waits for the agenda, walks a piece of a round, takes a key, claims its run, and hands over."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.explorer import Step
from tests.model.waking.agenda import Rules, add, call_round, head_of, with_agenda, with_rows
from tests.model.waking.bugs import Slip
from tests.model.waking.state import Memory, Phase, Poller, Status, Table

_ROUND_FLAG_CLEARED_LATE = {Slip.ROUND_FLAG_CLEARED_AFTER_THE_ROUND, Slip.OWNED_IS_READ_BEFORE_THE_FLAG}


def look(rules: Rules, table: Table, memory: Memory) -> Iterator[Step]:
    """Its next step, wherever it is."""
    match memory.poller.phase:
        case Phase.WAITING:
            yield from _wait(rules, table, memory)
        case Phase.LOOKING:
            yield from _begin(rules, table, memory)
        case Phase.FULL:
            yield Step("the poller asks to be told of room", table, _want_room(rules, memory))
        case Phase.WALKING:
            yield from _walk(rules, table, memory)
        case Phase.HEAD_SEEN:
            key = memory.poller.key
            yield Step(f"the round calls key {key}", table, _call_head(rules, memory))
        case Phase.CHECKING:
            yield _check(rules, table, memory)
        case Phase.CLAIMING:
            yield from _claim(rules, table, memory)
        case Phase.ARRIVED:
            yield Step("the claim reaches memory", table, _hand_over(rules, memory))


def _wait(rules: Rules, table: Table, memory: Memory) -> Iterator[Step]:
    agenda, poller = memory.agenda, memory.poller
    if agenda.woken:
        keeps = Slip.FLAG_CLEARED_AFTER_THE_LOOK in rules.slips
        keeps_round = bool(rules.slips & _ROUND_FLAG_CLEARED_LATE)
        joins = bool(poller.sweep) and Slip.ROUND_JOINS_THE_ONE_UNDER_WAY in rules.slips
        begins = poller.begins or (agenda.round and not joins and not (keeps_round and poller.sweep))
        after = with_agenda(memory, woken=keeps, round=agenda.round and keeps_round)
        after = _at(after, Phase.LOOKING, begins=begins, owns=memory.owned)
        yield Step("the poller wakes", table, after)
    elif rules.world.has_rounds and Slip.NO_ROUNDS not in rules.slips:
        yield Step("the interval is over", table, call_round(memory))


def _begin(rules: Rules, table: Table, memory: Memory) -> Iterator[Step]:
    poller, room = memory.poller, rules.world.lane - len(memory.lane)
    if room <= 0:
        yield Step("the poller finds no room", table, _at(memory, Phase.FULL))
        return
    owns = memory.owned
    if Slip.OWNED_IS_READ_BEFORE_THE_FLAG in rules.slips:
        owns, memory = poller.owns, with_agenda(memory, round=False)
    sweep = poller.sweep
    if poller.begins:
        sweep = tuple(dict.fromkeys(rules.world.keys)) if owns else ()
    words = "the poller begins a round" if poller.begins else "the poller goes on"
    yield Step(words, table, _at(memory, Phase.WALKING, begins=False, sweep=sweep, owns=owns))


def _want_room(rules: Rules, memory: Memory) -> Memory:
    memory = _at(memory, Phase.WAITING)
    has_room = rules.world.lane - len(memory.lane) >= rules.world.wanted
    if has_room and Slip.ROOM_IS_NOT_LOOKED_AT_AGAIN not in rules.slips:
        return with_agenda(memory, woken=True)
    return memory._replace(wants_room=True)


def _walk(rules: Rules, table: Table, memory: Memory) -> Iterator[Step]:
    """Further on the round, which it must when nothing is ready, or take a key."""
    poller, ready = memory.poller, memory.agenda.ready
    if poller.sweep and len(ready) < rules.world.capacity:
        key, *rest = poller.sweep
        head = head_of(rules, table, key)
        words = f"the round passes key {key}, whose head is {head or 'nothing'}"
        after = _at(memory, Phase.WALKING, sweep=tuple(rest))
        skips = head is Status.LEASED and Slip.ROUND_PASSES_WHAT_IS_HELD in rules.slips
        if head is not None and not skips:
            after = _at(after, Phase.HEAD_SEEN, key=key, seen=head)
        yield Step(words, table, after)
    for key in sorted(ready):
        yield _take(rules, table, memory, key)
    if not ready and not poller.sweep:
        yield Step("there is nothing to take", table, _end(rules, memory))


def _call_head(rules: Rules, memory: Memory) -> Memory:
    """A key that this process holds itself is called too: more of it may wait behind what is in memory."""
    poller, agenda = memory.poller, memory.agenda
    after = _at(memory, Phase.WALKING, key=-1, seen=False)
    if poller.seen not in (Status.FREE, Status.LEASED):
        return with_agenda(after, later=agenda.later | {poller.key})
    return with_agenda(add(rules, after, poller.key), woken=agenda.woken)


def _take(rules: Rules, table: Table, memory: Memory, key: int) -> Step:
    """Parked before the question whether it is held: whoever lets go of it in between finds it parked."""
    agenda = memory.agenda
    memory = with_agenda(memory, ready=agenda.ready - {key})
    if not memory.poller.owns:
        return Step(f"the poller forgets key {key}, which is another's", table, memory)
    if Slip.HELD_IS_ASKED_BEFORE_PARKING in rules.slips:
        is_held = key in rules.keys_of(memory.held)
        return Step(f"the poller asks for key {key}", table, _at(memory, Phase.CHECKING, key=key, seen=is_held))
    memory = with_agenda(memory, parked=agenda.parked | {key})
    return Step(f"the poller takes key {key}", table, _at(memory, Phase.CHECKING, key=key))


def _check(rules: Rules, table: Table, memory: Memory) -> Step:
    key, parked = memory.poller.key, memory.agenda.parked
    is_held = key in rules.keys_of(memory.held)
    if Slip.HELD_IS_ASKED_BEFORE_PARKING in rules.slips:
        is_held = bool(memory.poller.seen)
    if not is_held:
        memory = with_agenda(memory, parked=parked - {key})
        return Step(f"key {key} is not held", table, _at(memory, Phase.CLAIMING, seen=False))
    kept = parked - {key} if Slip.HELD_KEY_IS_DROPPED in rules.slips else parked | {key}
    memory = _at(with_agenda(memory, parked=kept), Phase.WALKING, key=-1, seen=False)
    return Step(f"key {key} is held and stays parked", table, memory)


def _claim(rules: Rules, table: Table, memory: Memory) -> Iterator[Step]:
    key, budget = memory.poller.key, table.budget
    limit = min(rules.world.run, rules.world.lane - len(memory.lane))
    run: list[int] = []
    for row in rules.rows_of(key):
        if table.rows[row] is Status.FREE and len(run) < limit:
            run.append(row)
        elif table.rows[row] is not Status.DONE:
            break
    leased = with_rows(table, run, Status.LEASED)
    arrived = _at(memory, Phase.ARRIVED, rows=tuple(run), seen=len(run) == limit)
    yield Step(f"{len(run)} rows of key {key} are claimed", leased, arrived)
    if budget.claims:
        poorer = table._replace(budget=budget._replace(claims=budget.claims - 1))
        yield Step(f"the claim of key {key} fails", poorer, _put_back(rules, memory), is_fault=True)
    if budget.answers and run:
        poorer = with_rows(table, run, Status.STRANDED)._replace(budget=budget._replace(answers=budget.answers - 1))
        words = f"the claim of key {key} is written, and fails for who asked"
        yield Step(words, poorer, _put_back(rules, memory), is_fault=True)


def _put_back(rules: Rules, memory: Memory) -> Memory:
    key = memory.poller.key
    after = with_agenda(_at(memory, Phase.WAITING, key=-1), woken=True)
    return after if Slip.FAILED_CLAIM_FORGETS_ITS_KEYS in rules.slips else add(rules, after, key)


def _hand_over(rules: Rules, memory: Memory) -> Memory:
    """A full run may have more behind it: its key is called again, and waits until these are out of memory. That is
    the end of the look."""
    poller = memory.poller
    after = memory._replace(held=memory.held | set(poller.rows), lane=(*memory.lane, *poller.rows))
    after = after._replace(expected=after.expected - set(poller.rows))
    after = _at(after, Phase.WAITING, key=-1, seen=False, rows=())
    if poller.seen and Slip.FULL_RUN_IS_NOT_CALLED_AGAIN not in rules.slips:
        after = add(rules, after, poller.key)
    return _end(rules, after)


def _end(rules: Rules, memory: Memory) -> Memory:
    agenda, poller = memory.agenda, memory.poller
    goes_on = bool(agenda.ready or poller.sweep) and Slip.LOOK_ENDS_WITHOUT_THE_REST not in rules.slips
    woken = goes_on or (agenda.woken and Slip.FLAG_CLEARED_AFTER_THE_LOOK not in rules.slips)
    keeps_round = bool(poller.sweep) or Slip.ROUND_FLAG_CLEARED_AFTER_THE_ROUND not in rules.slips
    memory = with_agenda(memory, woken=woken, round=agenda.round and keeps_round)
    return _expect_again(rules, _at(memory, Phase.WAITING))


def _expect_again(rules: Rules, memory: Memory) -> Memory:
    """What was not found yet is looked for again, as long as there is patience."""
    if not memory.expected:
        return memory._replace(patience=0)
    patience = memory.patience - (Slip.EVERY_LOOK_COUNTS_AS_EXPECTED in rules.slips)
    if patience <= 0 or Slip.EXPECTED_ONCE in rules.slips:
        return memory._replace(expected=frozenset(), patience=0)
    keys = rules.keys_of(memory.expected)
    return with_agenda(memory._replace(patience=patience), soon=memory.agenda.soon | keys)


def _at(memory: Memory, phase: Phase, **changes: object) -> Memory:
    poller: Poller = memory.poller._replace(phase=phase, **changes)  # type: ignore[arg-type]
    return memory._replace(poller=poller)
