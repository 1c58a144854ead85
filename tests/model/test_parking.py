"""Events pass the lanes without the mutex: nobody sleeps beside one, and quiet is not said too early."""

from __future__ import annotations

from typing import Final

import pytest

from tests.model.explorer import explore
from tests.model.parking import Haste, ParkingProtocol

#: Which promise each haste breaks.
BREAKS: Final = {
    Haste.PARKED_AFTER_THE_LAST_LOOK: "nothing lost",
    Haste.NO_LAST_LOOK: "nothing lost",
    Haste.PARKED_ARE_COUNTED_BEFORE_THE_APPEND: "nothing lost",
    Haste.WOKEN_FOR_NOTHING_IS_PARKED_NO_MORE: "nothing lost",
    Haste.BUSY_AFTER_THE_TAKE: "quiet is quiet",
    Haste.BUSY_IS_ASKED_FIRST: "quiet is quiet",
}


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("events", [1, 2, 3])
def test_no_worker_sleeps_beside_an_event_and_quiet_is_quiet(workers: int, events: int) -> None:
    found = explore(ParkingProtocol(events=events, workers=workers))

    assert not found.broken, str(found)


@pytest.mark.parametrize("haste", BREAKS, ids=lambda haste: haste.name)
def test_no_rule_of_parking_can_be_left_out(haste: Haste) -> None:
    # Some show only where nobody else is there to take what one leaves, some only where somebody is.
    walks = (explore(ParkingProtocol(haste, events=3, workers=workers)) for workers in (1, 2))
    found = next(walk for walk in walks if walk.broken)

    print(f"{haste.value}\n{found}")
    assert found.broken.startswith(f"{BREAKS[haste]}: "), str(found)


def test_every_haste_is_looked_for() -> None:
    assert BREAKS.keys() == set(Haste)
