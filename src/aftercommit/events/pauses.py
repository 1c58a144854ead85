"""A handler or an event type that somebody has paused."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple

import msgspec

#: An event of what is paused comes again after as long as the pause has lasted, but within these: what waits for long
#: is looked at seldom, and what nobody hastens comes by itself.
PUT_OFF_AT_LEAST: Final = timedelta(seconds=5)
PUT_OFF_AT_MOST: Final = timedelta(minutes=10)


class PauseKind(Enum):
    """What a pause is of."""

    HANDLER = "handler"
    TYPE = "type"


class PauseKey(NamedTuple):
    """There is one pause of each."""

    kind: PauseKind
    #: The id of the handler, or the event type.
    name: str

    def __str__(self) -> str:
        return f"the {'handler' if self.kind is PauseKind.HANDLER else 'event type'} {self.name}"


class Pause(msgspec.Struct, frozen=True):
    """One pause, as the database has it. Times are those of its clock."""

    kind: PauseKind
    #: The id of the handler, or the event type.
    name: str
    reason: str
    paused_by: str
    paused_at: datetime
    #: When it ends by itself; None: when somebody calls resume().
    until: datetime | None
    #: How long it had lasted when it was read, and how long it would last yet.
    lasted: timedelta
    ends_in: timedelta | None

    @property
    def key(self) -> PauseKey:
        return PauseKey(self.kind, self.name)
