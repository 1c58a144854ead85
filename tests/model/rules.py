"""What is explored: how large the world is, what may happen in it, and which rules have been left out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from tests.model.bugs import Bug
from tests.model.state import NO_FAULTS, Budget, Copy, Lost, Memory, Outcome, Phase, Row, Statement, Table


class Stalls(Enum):
    """How instances may sleep, at any point, for longer than a lease."""

    NONE = "never"
    #: All leases of the instance run out together.
    LONG = "long"
    #: Each lease runs out by itself, as those do that were claimed or renewed at different times.
    ANY = "any"


@dataclass(frozen=True)
class World:
    """A small world. What is not mentioned does not happen in it."""

    instances: int
    #: The key of each event in order of position; None: in no order with others.
    keys: tuple[int | None, ...]
    #: How many events are in the table from the start; the others are written at any time.
    written: int = 0
    budget: Budget = NO_FAULTS
    #: How a delivery may fail; each failure is taken from the budget.
    failures: tuple[Outcome, ...] = (Outcome.RETRY, Outcome.DEAD)
    #: Whether a dead row holds back the later ones of its key.
    blocks: bool = True
    #: At most so many rows of a key are claimed at once.
    run: int = 3
    has_hot_path: bool = False
    #: Writers of a key wait for each other, and an event that finds nothing unfinished of its key is born leased.
    has_hot_keys: bool = False
    stalls: Stalls = Stalls.ANY
    renews: bool = True
    #: A claim, and the commit of a hot row, may never be heard of.
    loses_answers: bool = False
    #: What a claim has leased reaches memory later.
    has_slow_claims: bool = False
    #: Settles are sent, written and answered in separate steps, and any answer may be lost.
    has_slow_settles: bool = False
    has_partition: bool = False
    #: Events whose handler kills the process.
    killers: frozenset[int] = frozenset()
    #: What others had meanwhile is given back when it is claimed again. Elsewhere it goes on, to keep the world small:
    #: that breaks nothing but the promise to what was replayed.
    gives_back_overtaken: bool = False
    #: Whether it is remembered what began before a replay.
    watches_replays: bool = False
    #: Events whose handler never ends.
    hung: frozenset[int] = frozenset()
    max_abandoned: int = 2
    #: The mark of a suspect is written, and answered later.
    has_slow_marks: bool = False

    @property
    def has_suspects(self) -> bool:
        return bool(self.killers or self.hung) or self.has_slow_marks

    @property
    def has_innocents(self) -> bool:
        """Whether nothing but a killer ends a process, or a delivery, before its outcome is known."""
        return self.has_suspects and self.stalls is Stalls.NONE


@dataclass(frozen=True)
class Rules:
    """A world and the bugs in it."""

    world: World
    bugs: frozenset[Bug] = frozenset()

    def later(self, place: int) -> list[int]:
        """The places of the later events of the same key."""
        key = self.world.keys[place]
        return [p for p in range(place + 1, len(self.world.keys)) if key is not None and self.world.keys[p] == key]

    def earlier(self, place: int) -> list[int]:
        key = self.world.keys[place]
        return [p for p in range(place) if key is not None and self.world.keys[p] == key]


def name_of(place: int) -> str:
    return f"event {place + 1}"


def instance(me: int) -> str:
    return "ABC"[me]


def with_row(table: Table, place: int, row: Row) -> Table:
    return table._replace(rows=(*table.rows[:place], row, *table.rows[place + 1 :]))


def with_copy(memory: Memory, place: int, copy: Copy | None) -> Memory:
    return memory._replace(copies=(*memory.copies[:place], copy, *memory.copies[place + 1 :]))


def with_arriving(memory: Memory, place: int, copy: Copy | None) -> Memory:
    return memory._replace(arriving=(*memory.arriving[:place], copy, *memory.arriving[place + 1 :]))


def with_stray(memory: Memory, place: int, stray: Statement | None) -> Memory:
    return memory._replace(strays=(*memory.strays[:place], stray, *memory.strays[place + 1 :]))


def let_go(rules: Rules, memory: Memory, place: int) -> Memory:
    """Everything later of the key leaves memory and is released."""
    for later in rules.later(place):
        copy = memory.copies[later]
        if copy is not None and copy.phase is Phase.WAITING:
            memory = with_copy(memory, later, released(copy))
    return memory


def reported(copy: Copy, outcome: Outcome) -> Copy:
    """It has an outcome and will not be started again, so nobody asks for its deadline. What began before others had
    the row says nothing of what they made of it."""
    if copy.is_overtaken or outcome is Outcome.RELEASE:
        copy, outcome = copy._replace(is_overtaken=False, is_old=False), Outcome.RELEASE
    return copy._replace(phase=Phase.REPORTED, outcome=outcome, is_late=True)


def released(copy: Copy) -> Copy:
    return reported(copy, Outcome.RELEASE)


def forget(memory: Memory, lost: Lost) -> Memory:
    """Every lease and statement on these rows has an old epoch, or is not the holder's any more."""
    for place in {*lost.raised, *lost.taken}:
        names = ("fits",) * (place in lost.raised) + ("holds",) * (place in lost.taken)
        memory = _marked(memory, place, dict.fromkeys(names, False))
    for place in lost.replayed:
        copy = memory.copies[place]
        is_of_old = copy is not None and copy.phase in (Phase.DELIVERING, Phase.REPORTED)
        if copy is not None and is_of_old and not copy.is_overtaken and copy.outcome is not Outcome.RELEASE:
            memory = with_copy(memory, place, copy._replace(is_old=True))
    return memory


def _marked(memory: Memory, place: int, change: dict[str, Any]) -> Memory:
    copy, arriving, stray = memory.copies[place], memory.arriving[place], memory.strays[place]
    if copy is not None:
        sent = copy.sent and copy.sent._replace(**change)
        memory = with_copy(memory, place, copy._replace(**change, sent=sent))
    if arriving is not None:
        memory = with_arriving(memory, place, arriving._replace(**change))
    if stray is not None:
        memory = with_stray(memory, place, stray._replace(**change))
    return memory
