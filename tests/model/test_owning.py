"""Heartbeats, takes and gifts may cross: what is given stays given, and no partition is nobody's for ever."""

from __future__ import annotations

from typing import Final

import pytest

from tests.model.explorer import explore
from tests.model.owning import Fault, OwningProtocol

#: Which promise each fault breaks.
BREAKS: Final = {
    Fault.GIFT_IS_FORGOTTEN: "given is given",
    Fault.GIFT_STAYS_AFTER_A_FAILURE: "nothing lost",
    Fault.FAILED_GIFT_FORGETS_OLDER_ONES: "given is given",
    Fault.GIFT_IS_REMEMBERED_WITHOUT_EPOCH: "nothing lost",
    Fault.GIVEN_BEFORE_IT_IS_LET_GO: "given is given",
    Fault.OLD_BEAT_UNDOES_A_TAKE: "taken is taken",
    Fault.BEAT_FINDS_NOTHING_NEW: "nothing lost",
}


def test_an_instance_owns_what_it_took_and_not_what_it_gave() -> None:
    found = explore(OwningProtocol())

    assert not found.broken, str(found)
    assert found.states >= 1_000


@pytest.mark.parametrize("fault", BREAKS, ids=lambda fault: fault.name)
def test_no_rule_of_ownership_can_be_left_out(fault: Fault) -> None:
    found = explore(OwningProtocol(fault))

    print(f"{fault.value}\n{found}")
    assert found.broken.startswith(f"{BREAKS[fault]}: "), str(found)


def test_every_fault_is_looked_for() -> None:
    assert BREAKS.keys() == set(Fault)
