"""The protocol keeps its promises in every state of every small world, and not one of its rules can be left out."""

from __future__ import annotations

from typing import Final

import pytest

from tests.model.bugs import Bug
from tests.model.explorer import explore
from tests.model.protocol import LeaseProtocol
from tests.model.worlds import LARGE_WORLDS, WORLDS

#: The walks are long, and the machine may be busy with other tests.
pytestmark = pytest.mark.timeout(900)

#: How many states each world has at least. A rule that makes them fewer has shut something out.
STATES: Final = {
    "hot path": 110_000,
    "two hot": 170_000,
    "pair": 230_000,
    "passed dead": 120_000,
    "first of a key": 180_000,
    "first of a key unseen": 130_000,
    "first of a key in a partition": 1_100,
    "run": 5_000,
    "slow claims": 120_000,
    "slow settles": 370_000,
    "slow settles of a key": 280_000,
    "own strays": 800,
    "partition": 340_000,
    "slow claims of a partition": 600,
    "slow marks": 2_500,
    "slow marks in a partition": 1_600,
    "killers": 16_000,
    "replays": 1_000,
    "killers once": 250,
    "a killer and slow marks": 3_000,
    "hung": 1_400,
    "hung beside a killer": 13_000,
    "one event": 400,
    "one event in a partition": 4_000,
}

#: In which world a bug shows, and which promise it breaks first.
FOUND_IN: Final = {
    Bug.UNFENCED_SETTLE: ("pair", "fenced"),
    Bug.FENCE_WITHOUT_OWNER: ("slow settles", "fenced"),
    Bug.FENCE_WITHOUT_EPOCH: ("slow settles", "fenced"),
    Bug.RELEASE_WITHOUT_FENCE: ("pair", "fenced"),
    Bug.RENEWAL_MATCHES_AFTER_SETTLE: ("slow settles", "fenced"),
    Bug.SETTLE_KEEPS_OWNER: ("pair", "one holder"),
    Bug.TAKEOVER_KEEPS_EPOCH: ("slow settles", "fenced"),
    Bug.FREE_CLAIM_KEEPS_EPOCH: ("slow settles", "fenced"),
    Bug.OUTCOME_WRITTEN_AGAIN: ("slow settles", "fenced"),
    Bug.OLD_RUN_GOES_ON: ("replays", "replayed is delivered anew"),
    Bug.ANSWER_DROPS_NEWER_LEASE: ("slow settles", "one holder"),
    Bug.UNLEASED_HOT_PATH: ("hot path", "one holder"),
    Bug.DEADLINE_IGNORED: ("pair", "one holder"),
    Bug.DEADLINE_AFTER_EXPIRY: ("pair", "one holder"),
    Bug.NO_EXPIRY: ("one event", "nothing lost"),
    Bug.BORN_LEASED_IN_ORDERED_MODE: ("pair", "order"),
    Bug.RUN_WITHOUT_ITS_HEAD: ("pair", "order"),
    Bug.HEAD_NOT_DUE_IS_PASSED: ("pair", "order"),
    Bug.DEAD_HEAD_IS_PASSED: ("pair", "order"),
    Bug.REST_KEPT_AFTER_FAILURE: ("pair", "order"),
    Bug.REST_KEPT_AFTER_LOSS: ("pair", "order"),
    Bug.REST_KEPT_AFTER_REPORT: ("pair", "order"),
    Bug.TWO_AT_ONCE: ("pair", "order"),
    Bug.NOBODY_LOOKS: ("first of a key", "order"),
    Bug.LOOK_WITHOUT_LOCK: ("first of a key", "order"),
    Bug.LOOK_AND_LOCK_AT_ONCE: ("first of a key", "order"),
    Bug.LOCK_ENDS_EARLY: ("first of a key", "order"),
    Bug.LOOK_PASSES_LEASED: ("first of a key", "order"),
    Bug.LOOK_PASSES_DEAD: ("first of a key", "order"),
    Bug.PARTITION_IS_A_LOCK: ("partition", "one holder"),
    Bug.GIVE_BACK_DROPS_RUNNING: ("partition", "one holder"),
    Bug.OWNER_IS_NOT_ASKED: ("slow claims of a partition", "given is given"),
    Bug.NO_PARTITION_EXPIRY: ("one event in a partition", "nothing lost"),
    Bug.DEADLINE_BEFORE_THE_MARK_ONLY: ("slow marks", "one holder"),
    Bug.OWNER_BEFORE_THE_MARK_ONLY: ("slow marks in a partition", "given is given"),
    Bug.MARK_IS_KEPT: ("slow marks in a partition", "killers end"),
    Bug.MARK_TAKES_ALL_COUNTS: ("a killer and slow marks", "killers end"),
    Bug.GIVEN_BACK_IS_INNOCENT: ("a killer and slow marks", "killers end"),
    Bug.KILLERS_NOT_COUNTED: ("killers", "killers end"),
    Bug.WAITING_IS_COUNTED: ("killers", "killers end"),
    Bug.SUSPECTS_SIDE_BY_SIDE: ("killers", "killers end"),
    Bug.LAST_COUNT_SIDE_BY_SIDE: ("killers once", "killers end"),
    Bug.LIVING_IS_BLAMED: ("hung beside a killer", "killers end"),
    Bug.HUNG_SUSPECT_KEEPS_ITS_PLACE: ("hung", "nothing lost"),
    Bug.SUSPECT_LEAVES_EARLY: ("killers", "killers end"),
}

#: A second line of defence: alone it is missed by nobody.
HIDDEN: Final = {Bug.REPLAY_KEEPS_EPOCH}


#: Walked to their end in the long form only. Each has a smaller sister, and what bugs are looked for in it is as well.
LONG: Final = {"two hot", "passed dead", "first of a key unseen", "slow settles of a key", "partition"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in WORLDS]
)
def test_every_promise_is_kept_in_every_state(name: str) -> None:
    found = explore(LeaseProtocol(WORLDS[name]))

    assert not found.broken, str(found)
    assert found.states >= STATES[name]


def test_the_worlds_have_more_than_a_million_states() -> None:
    assert STATES.keys() == WORLDS.keys()
    assert sum(states for name, states in STATES.items() if name not in LONG) > 1_000_000


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LARGE_WORLDS)
def test_every_promise_is_kept_in_larger_worlds(name: str) -> None:
    found = explore(LeaseProtocol(LARGE_WORLDS[name]), at_most=5_000_000)

    assert not found.broken, str(found)


@pytest.mark.parametrize("bug", FOUND_IN, ids=lambda bug: bug.name)
def test_no_rule_can_be_left_out(bug: Bug) -> None:
    name, promise = FOUND_IN[bug]

    found = explore(LeaseProtocol(WORLDS[name], bug))

    print(f"{bug.value}\n{found}")
    assert found.broken.startswith(f"{promise}: "), str(found)


def test_every_bug_is_looked_for() -> None:
    assert FOUND_IN.keys() | HIDDEN == set(Bug)


def test_the_epoch_of_a_replay_stands_in_for_the_epoch_of_a_claim() -> None:
    # Given a world in which rows become free by a replay only
    world = WORLDS["own strays"]

    # When either rule is left out, the other still keeps old settles away from the replayed row
    for bug in (Bug.REPLAY_KEEPS_EPOCH, Bug.FREE_CLAIM_KEEPS_EPOCH):
        assert not explore(LeaseProtocol(world, bug)).broken

    # Then only both together let one through
    found = explore(LeaseProtocol(world, Bug.REPLAY_KEEPS_EPOCH, Bug.FREE_CLAIM_KEEPS_EPOCH))
    assert found.broken == "fenced: DEAD of one who is not the holder changes the row"


def test_a_counter_example_is_the_shortest_and_reads_as_a_story() -> None:
    found = explore(LeaseProtocol(WORLDS["pair"], Bug.HEAD_NOT_DUE_IS_PASSED))

    assert found.broken == "order: event 2 has its first effect before event 1"
    assert list(found.trace) == [
        "event 1 is written, born free",
        "event 2 is written, born free",
        "A claims event 1",
        "A starts event 1",
        "A's handler of event 1 ends in RETRY",
        "A settles event 1 as RETRY",
        "A claims event 2",
        "A starts event 2",
        "A completes event 2",
    ]
