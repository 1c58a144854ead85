"""One process and its table, as far as waking goes: who has been told of which key, and who will look at it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

Keys = frozenset[int]
Rows = frozenset[int]


class Status(StrEnum):
    """A row in the table."""

    UNWRITTEN = "unwritten"
    #: Its transaction is open, and nobody will see the commit.
    OPEN = "open"
    FREE = "free"
    #: A retry that is not due.
    LATER = "later"
    LEASED = "leased"
    #: Leased to this process, which does not know it: the answer to its claim was lost.
    STRANDED = "stranded"
    DONE = "DONE"


class Told(StrEnum):
    """How somebody who commits a row tells of it."""

    KEY = "key"
    #: An operator, who replays whatever was dead.
    EVERYWHERE = "everywhere"
    #: The commit cannot be seen: the key is to be looked for until it is found.
    EXPECTED = "expected"
    #: Not at all: another instance wrote it and nothing was heard.
    NOT = "not"


class Budget(NamedTuple):
    """How often the world may still be unkind."""

    #: Deliveries that fail and are tried again.
    failures: int = 0
    #: Claims that the store refuses.
    claims: int = 0
    #: Claims that are written, and whose answer is lost.
    answers: int = 0
    #: All leases of the process run out, and another instance delivers the rows.
    leases: int = 0
    #: All local deadlines pass.
    deadlines: int = 0
    #: The partition is given to somebody else.
    moves: int = 0


NO_FAULTS: Final = Budget()


class Table(NamedTuple):
    rows: tuple[Status, ...]
    budget: Budget = NO_FAULTS


class Agenda(NamedTuple):
    """What to look at."""

    ready: Keys = frozenset()
    #: Called while a row of theirs is in memory.
    parked: Keys = frozenset()
    later: Keys = frozenset()
    #: Called for a moment, and again and again, until a commit that nobody sees is found.
    soon: Keys = frozenset()
    round: bool = True
    woken: bool = True


class Phase(StrEnum):
    WAITING = "waiting"
    LOOKING = "looking"
    FULL = "full"
    WALKING = "walking"
    HEAD_SEEN = "head seen"
    CHECKING = "checking"
    CLAIMING = "claiming"
    ARRIVED = "arrived"


class Poller(NamedTuple):
    phase: Phase = Phase.WAITING
    #: This look begins a round.
    begins: bool = False
    #: What is left of the round.
    sweep: tuple[int, ...] = ()
    #: The key that a head was seen of, that is being taken or claimed.
    key: int = -1
    #: What was seen: the status of a head; or that the key was held.
    seen: Status | bool = False
    #: What was claimed.
    rows: tuple[int, ...] = ()
    #: Whether the partition was owned when this look read it.
    owns: bool = True


class Stage(StrEnum):
    """Of an outcome on its way into the table, and back out of memory."""

    PENDING = "pending"
    ANSWERED = "answered"
    LET_GO = "let go"
    FREED = "freed"


class Outcome(StrEnum):
    DONE = "DONE"
    RETRY = "RETRY"
    RELEASE = "RELEASE"


class Entry(NamedTuple):
    row: int
    outcome: Outcome
    stage: Stage = Stage.PENDING
    was_accepted: bool = False
    #: Its row was the last one of its key in memory.
    was_last: bool = False


class Memory(NamedTuple):
    agenda: Agenda = Agenda()
    poller: Poller = Poller()
    #: Rows in memory.
    held: Rows = frozenset()
    #: Those that wait for a worker, in order.
    lane: tuple[int, ...] = ()
    #: Those that a worker has taken out of the lane, and has not looked yet whether somebody wants room.
    popped: Rows = frozenset()
    running: Rows = frozenset()
    #: Past their local deadline.
    late: Rows = frozenset()
    wants_room: bool = False
    #: In order of row.
    settling: tuple[Entry, ...] = ()
    #: Committed, and the writer has not told yet. With a slip: told, and not committed yet.
    untold: Rows = frozenset()
    expected: Rows = frozenset()
    #: How many looks for them are left.
    patience: int = 0
    owned: bool = True


@dataclass(frozen=True)
class World:
    """A small world. What is not mentioned does not happen in it."""

    #: The key of each row, in order of position.
    keys: tuple[int, ...]
    #: How each is told of.
    told: tuple[Told, ...]
    #: How many are in the table from the start.
    written: int = 0
    lane: int = 4
    workers: int = 1
    run: int = 2
    #: So many keys are remembered as ready.
    capacity: int = 10
    #: Whether the poll interval ever ends.
    has_rounds: bool = False
    budget: Budget = NO_FAULTS
    #: How many looks there are for a commit that nobody sees. Its transaction ends before the last of them.
    patience: int = 2

    #: Whether an outcome is written, let go, freed and announced in one step.
    settles_at_once: bool = False
    #: How much room a poller waits for that found none.
    wanted: int = 1
