"""An outcome on its way into the table, and what the store is asked to write of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from aftercommit.delivery.leases import Holding
from aftercommit.events.claims import Settlement
from aftercommit.events.outcome import RELEASE, Done, Outcome, Release


class Unsettled(msgspec.Struct, eq=False, gc=False):
    """An outcome on its way into the table."""

    holding: Holding
    outcome: Outcome
    #: The epoch under which it was last sent.
    epoch: int
    #: A try of it ended in an error, so it may have been written.
    is_ambiguous: bool = False
    #: The store has taken or refused it.
    is_answered: bool = False


def settlements_of(group: Iterable[Unsettled]) -> list[Settlement]:
    """What the store is asked to write, each outcome under the lease that stands now."""
    settlements = []
    for entry in group:
        holding, lease = entry.holding, entry.holding.lease
        is_claimed_anew = entry.is_ambiguous and lease.epoch != entry.epoch
        if holding.is_overtaken or (is_claimed_anew and not isinstance(entry.outcome, Done)):
            # It may be written, and the row was claimed anew: a failure must not count twice, nor end a replayed event.
            entry.outcome = RELEASE
        if holding.is_suspect and isinstance(entry.outcome, Release):
            entry.outcome = replace(entry.outcome, is_suspect=True)
        entry.epoch = lease.epoch
        settlements.append(Settlement(lease, entry.outcome))
    return settlements
