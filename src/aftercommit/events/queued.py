"""What waits in a lane, as users see it: an event, where it came from, and how often it has failed."""

from __future__ import annotations

from enum import Enum

import msgspec

from aftercommit.events.envelope import EventEnvelope


class Source(Enum):
    """How an event came to this delivery: from memory right after its commit, or out of the table."""

    HOT = "hot"
    COLD = "cold"


class QueuedEvent(msgspec.Struct, frozen=True):
    """An event on its way to a listener."""

    envelope: EventEnvelope
    source: Source = Source.HOT
    #: Failed attempts before this one.
    attempts: int = 0
