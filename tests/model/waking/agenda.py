"""What everybody does with the agenda: add to it, free what is parked, and wake the poller."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from tests.model.waking.bugs import Slip
from tests.model.waking.state import Agenda, Entry, Memory, Outcome, Phase, Status, Table, World


@dataclass(frozen=True)
class Rules:
    """A world and the slips in it."""

    world: World
    slips: frozenset[Slip] = frozenset()

    @cached_property
    def _rows(self) -> dict[int, list[int]]:
        keys = self.world.keys
        return {key: [row for row, each in enumerate(keys) if each == key] for key in keys}

    def rows_of(self, key: int) -> list[int]:
        return self._rows[key]

    def keys_of(self, rows: Collection[int]) -> frozenset[int]:
        return frozenset(self.world.keys[row] for row in rows)


def add(rules: Rules, memory: Memory, key: int) -> Memory:
    """Look at this key now, or as soon as no row of it is in memory."""
    agenda, poller = memory.agenda, memory.poller
    if key in agenda.parked:
        return memory
    is_claimed = poller.key == key and poller.phase in (Phase.CLAIMING, Phase.ARRIVED)
    if is_claimed and Slip.ADD_WHILE_TAKEN_IS_LOST in rules.slips:
        return memory
    if is_full(rules, agenda, key):
        return memory
    return with_agenda(memory, ready=agenda.ready | {key}, woken=True)


def is_full(rules: Rules, agenda: Agenda, key: int) -> bool:
    """Whether this key would be one too many to remember."""
    return key not in agenda.ready | agenda.parked and len(agenda.ready) >= rules.world.capacity


def call_round(memory: Memory) -> Memory:
    """Look everywhere."""
    return with_agenda(memory, round=True, woken=True)


def free(rules: Rules, memory: Memory, key: int) -> Memory:
    """No row of this key is in memory any more."""
    agenda = memory.agenda
    if key not in agenda.parked:
        return memory
    memory = with_agenda(memory, parked=agenda.parked - {key})
    if Slip.FREED_KEY_IS_NOT_CALLED in rules.slips:
        return memory
    return with_agenda(memory, ready=agenda.ready | {key}, woken=True)


def make_room(rules: Rules, memory: Memory) -> Memory:
    """Tell the poller when it waits for room and there is some."""
    has_room = rules.world.lane - len(memory.lane) >= rules.world.wanted
    if not (memory.wants_room and has_room):
        return memory
    return with_agenda(memory._replace(wants_room=False), woken=True)


def leave(rules: Rules, memory: Memory, keys: Collection[int]) -> Memory:
    """What waits of these keys goes back to the table."""
    leaving = [row for row in memory.lane if rules.world.keys[row] in keys]
    if not leaving:
        return memory
    memory = memory._replace(lane=tuple(row for row in memory.lane if row not in leaving))
    for row in leaving:
        memory = report(rules, memory, row, Outcome.RELEASE)
    return memory if Slip.LEAVING_MAKES_NO_ROOM in rules.slips else make_room(rules, memory)


def report(rules: Rules, memory: Memory, row: int, outcome: Outcome) -> Memory:
    """An outcome is in the settler's hands."""
    if Slip.FREED_WHEN_REPORTED in rules.slips and is_last(rules, memory, row):
        memory = free(rules, memory, rules.world.keys[row])
    return memory._replace(settling=tuple(sorted((*memory.settling, Entry(row, outcome)))))


def is_last(rules: Rules, memory: Memory, row: int) -> bool:
    return not any(rules.world.keys[other] == rules.world.keys[row] for other in memory.held - {row})


def with_agenda(memory: Memory, **changes: object) -> Memory:
    return memory._replace(agenda=memory.agenda._replace(**changes))  # type: ignore[arg-type]


def with_rows(table: Table, rows: Collection[int], status: Status) -> Table:
    after = tuple(status if row in rows else each for row, each in enumerate(table.rows))
    return table._replace(rows=after)


def head_of(rules: Rules, table: Table, key: int) -> Status | None:
    """The first row of a key that is in the table and not ended."""
    statuses = (table.rows[row] for row in rules.rows_of(key))
    return next((each for each in statuses if each not in (Status.DONE, Status.UNWRITTEN, Status.OPEN)), None)
