"""What a state is made of: rows and a partition in the table, and in the memory of an instance one copy of each row.

Epochs are not counted. All that a fence asks of an epoch is whether it still is the row's, so whatever carries one has
a flag, `fits`, that is lost when the row's epoch is raised. Next to it stands what no instance can see: `holds`, the
truth about who holds the row. A protocol is right when nobody whose `holds` is lost can change the row.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

#: The owner of a lease whose process is gone.
GONE: Final = -1


class Status(StrEnum):
    UNWRITTEN = "unwritten"
    NEW = "NEW"
    DONE = "DONE"
    RETRY = "RETRY"
    DEAD = "DEAD"


class Outcome(StrEnum):
    DONE = "DONE"
    RETRY = "RETRY"
    DEFER = "DEFER"
    DEAD = "DEAD"
    RELEASE = "RELEASE"


class Phase(StrEnum):
    #: In a lane.
    WAITING = "waiting"
    #: A suspect whose mark is written; the answer travels, and may travel for long.
    MARKED = "marked"
    #: Its deadline was checked. The handler runs now, or starts after a stall of any length.
    DELIVERING = "delivering"
    #: It has an outcome, which is on its way into the table.
    REPORTED = "reported"


class Row(NamedTuple):
    """One event in the table."""

    status: Status = Status.UNWRITTEN
    is_due: bool = True
    owner: int | None = None
    is_expired: bool = False
    abandoned: int = 0
    #: Nobody sees this: its first effect has taken place, or an operator has ended it without one.
    had_effect: bool = False
    #: Nobody counts this: how many processes it has killed.
    kills: int = 0

    @property
    def is_unfinished(self) -> bool:
        return self.status in (Status.NEW, Status.RETRY)

    @property
    def is_claimable(self) -> bool:
        return self.is_unfinished and self.is_due and (self.owner is None or self.is_expired)


class Partition(NamedTuple):
    """Who may look for rows. It spreads the work and is no lock."""

    owner: int | None = None
    is_expired: bool = False


class Budget(NamedTuple):
    """How often the world may still be unkind. Stalls are not counted."""

    crashes: int = 0
    failures: int = 0
    replays: int = 0


NO_FAULTS: Final = Budget()


class Table(NamedTuple):
    rows: tuple[Row, ...]
    budget: Budget
    partition: Partition | None = None
    #: The instance whose transaction has locked the key.
    lock: int | None = None


class Statement(NamedTuple):
    """A settle that was sent and not answered yet."""

    outcome: Outcome
    fits: bool = True
    holds: bool = True
    #: What the database made of it, while the answer travels; None before.
    was_accepted: bool | None = None


class Copy(NamedTuple):
    """A row in the memory of an instance, with its lease."""

    phase: Phase = Phase.WAITING
    outcome: Outcome | None = None
    #: The local deadline has passed.
    is_late: bool = False
    fits: bool = True
    holds: bool = True
    is_suspect: bool = False
    #: A suspect that was under way when a process ended, or whose next count is its last: no other runs beside it.
    is_alone: bool = False
    #: A suspect that has run for a lease's time, and whose process lives.
    has_lived: bool = False
    #: And another has begun beside it since, so that its own count was taken back.
    is_cleared: bool = False
    #: Others had the row before it was claimed again. What began under the old lease settles nothing under the new one.
    is_overtaken: bool = False
    #: It was counted as a delivery that began, and has not begun.
    is_marked: bool = False
    sent: Statement | None = None
    #: A try of the outcome was not answered, so it may have been written.
    is_unsure: bool = False
    #: Nobody sees this: the outcome is in the table.
    was_written: bool = False
    #: Nobody sees this: the event was replayed after its delivery began.
    is_old: bool = False


class Writing(NamedTuple):
    """A transaction that writes the next event of a key."""

    is_locked: bool = False
    #: Whether its INSERT has found nothing unfinished of the key; None before.
    is_first: bool | None = None


class Memory(NamedTuple):
    """One instance: its copies, the claim that is on its way to it, and settles that it has given up waiting for."""

    copies: tuple[Copy | None, ...]
    arriving: tuple[Copy | None, ...]
    strays: tuple[Statement | None, ...]
    #: It takes the partition for its own.
    believes: bool = True
    writing: Writing | None = None


class Lost(NamedTuple):
    """What others lose by a step: these rows have a new epoch, those a new holder; deliveries of those were in vain."""

    raised: tuple[int, ...] = ()
    taken: tuple[int, ...] = ()
    replayed: tuple[int, ...] = ()
