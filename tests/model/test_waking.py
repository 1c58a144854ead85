"""Whoever is told of is looked at, whatever comes between; and not one rule of waking can be left out."""

from __future__ import annotations

from typing import Final

import pytest

from tests.model.explorer import explore
from tests.model.waking.bugs import Slip
from tests.model.waking.protocol import WakingProtocol
from tests.model.waking.worlds import LARGE_WORLDS, WORLDS

#: The machine may be busy with other tests.
pytestmark = pytest.mark.timeout(900)

#: How many states each world has at least. A rule that makes them fewer has shut something out.
STATES: Final = {
    "one key": 1_500,
    "failed claims": 1_000,
    "long runs": 2_500,
    "two keys": 4_000,
    "retries": 4_000,
    "deadlines": 200,
    "room": 1_400,
    "leaving": 4_500,
    "rounds": 6_000,
    "expected": 7_000,
    "partition": 4_000,
    "strangers": 4_000,
    "forgotten": 2_500,
}

#: In which world a slip shows: from some state on, not every event comes to its end.
FOUND_IN: Final = {
    Slip.FLAG_CLEARED_AFTER_THE_LOOK: "rounds",
    Slip.ROUND_FLAG_CLEARED_AFTER_THE_ROUND: "rounds",
    Slip.ROUND_JOINS_THE_ONE_UNDER_WAY: "rounds",
    Slip.ROUND_PASSES_WHAT_IS_HELD: "partition",
    Slip.HELD_IS_ASKED_BEFORE_PARKING: "one key",
    Slip.HELD_KEY_IS_DROPPED: "one key",
    Slip.FAILED_CLAIM_FORGETS_ITS_KEYS: "failed claims",
    Slip.ADD_WHILE_TAKEN_IS_LOST: "long runs",
    Slip.FULL_RUN_IS_NOT_CALLED_AGAIN: "one key",
    Slip.LOOK_ENDS_WITHOUT_THE_REST: "two keys",
    Slip.ROOM_IS_NOT_TOLD: "room",
    Slip.ROOM_IS_NOT_LOOKED_AT_AGAIN: "room",
    Slip.LEAVING_MAKES_NO_ROOM: "leaving",
    Slip.FREED_BEFORE_LET_GO: "one key",
    Slip.FREED_WHEN_REPORTED: "one key",
    Slip.FREED_KEY_IS_NOT_CALLED: "one key",
    Slip.RELEASE_IS_NOT_TOLD: "deadlines",
    Slip.RETRY_IS_NOT_TOLD: "retries",
    Slip.RETRY_IS_LOOKED_AT_EARLY: "retries",
    Slip.TOLD_BEFORE_THE_COMMIT: "one key",
    Slip.EXPECTED_ONCE: "expected",
    Slip.EVERY_LOOK_COUNTS_AS_EXPECTED: "expected",
    Slip.GAIN_IS_NOT_TOLD: "partition",
    Slip.OWNED_IS_READ_BEFORE_THE_FLAG: "partition",
    Slip.NO_ROUNDS: "strangers",
}


@pytest.mark.parametrize("name", WORLDS)
def test_whoever_is_told_of_is_looked_at(name: str) -> None:
    found = explore(WakingProtocol(WORLDS[name]))

    assert not found.broken, str(found)
    assert found.states >= STATES[name]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LARGE_WORLDS)
def test_whoever_is_told_of_is_looked_at_in_larger_worlds(name: str) -> None:
    found = explore(WakingProtocol(LARGE_WORLDS[name]))

    assert not found.broken, str(found)


@pytest.mark.parametrize("slip", FOUND_IN, ids=lambda slip: slip.name)
def test_no_rule_of_waking_can_be_left_out(slip: Slip) -> None:
    found = explore(WakingProtocol(WORLDS[FOUND_IN[slip]], slip))

    print(f"{slip.value}\n{found}")
    assert found.broken.startswith("nothing lost: "), str(found)


def test_every_slip_is_looked_for() -> None:
    assert FOUND_IN.keys() == set(Slip)
    assert STATES.keys() == WORLDS.keys()


def test_the_story_of_a_key_that_is_freed_between_the_question_and_the_parking() -> None:
    found = explore(WakingProtocol(WORLDS["one key"], Slip.HELD_IS_ASKED_BEFORE_PARKING))

    # The poller hears that the key is held, the settler lets go of it and frees it, and only then it is parked.
    story = ["the poller asks for key 0", "row 0 is let go", "the key of row 0 is freed"]
    places = [len(found.trace) - list(reversed(found.trace)).index(words) for words in story]
    assert places == sorted(places)
    assert found.trace[-1] == "key 0 is held and stays parked"
