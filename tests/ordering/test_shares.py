"""Fair shares: what one instance takes and gives, and that a fleet of them comes to rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aftercommit.events.order import FleetView, Holder, Member
from aftercommit.ordering.fleet import Plan, living, plan, target_of

STALE = timedelta(seconds=30)


def member(id: str, *, silent_for: float = 0.0, is_leaving: bool = False) -> Member:
    return Member(id, "host", 1, datetime(2024, 1, 1, tzinfo=UTC), silent_for, is_leaving)


def view(members: Iterable[str | Member], owned: Mapping[str, Iterable[int]], over: Iterable[int] = ()) -> FleetView:
    """Everything that nobody is said to own is nobody's; the time of `over` is over. All epochs are 5."""
    owners = {number: owner for owner, numbers in owned.items() for number in numbers}
    over = set(over)
    return FleetView(
        [member(each) if isinstance(each, str) else each for each in members],
        [Holder(n, owners.get(n), 5, None if n not in owners else (-1.0 if n in over else 20.0)) for n in range(256)],
    )


def planned(now: FleetView, me: str = "i-1", *, is_steady: bool = False) -> Plan:
    return plan(now, me=me, stale_after=STALE, is_steady=is_steady)


def aged(view: FleetView, seconds: float) -> FleetView:
    return FleetView(view.members, [later(each, seconds) for each in view.partitions])


def later(holder: Holder, seconds: float) -> Holder:
    left = None if holder.expires_in is None else holder.expires_in - seconds
    return Holder(holder.partition, holder.owner, holder.epoch, left)


# ---------------------------------------------------------------- targets


def test_who_is_no_member_has_no_share() -> None:
    """TC-265"""
    assert target_of("a", {}) == 0
    assert target_of("x", {"a": 0, "b": 0}) == 0


@pytest.mark.parametrize(
    ("members", "targets"),
    [
        ("a", [256]),  # TC-266
        ("ba", [128, 128]),  # TC-267
        ("cab", [85, 86, 85]),  # TC-268
    ],
)
def test_shares_are_even_and_complete(members: str, targets: list[int]) -> None:
    assert [target_of(id, dict.fromkeys(members, 0)) for id in members] == targets


@given(st.dictionaries(st.text(min_size=1), st.integers(0, 256), min_size=1, max_size=300))
def test_any_shares_are_even_complete_and_the_same_for_all(shares: dict[str, int]) -> None:
    """TC-269: whatever the order, and whatever each of them owns now."""
    targets = [target_of(id, shares) for id in shares]
    assert sum(targets) == 256
    assert max(targets) - min(targets) <= 1
    assert targets == [target_of(id, dict(sorted(shares.items()))) for id in shares]


def test_one_more_stays_with_who_has_it() -> None:
    """Nothing moves only because ids sort otherwise."""
    assert [target_of(id, {"a": 85, "b": 86, "c": 85}) for id in "abc"] == [85, 86, 85]


# ---------------------------------------------------------------- members


def test_the_silent_and_the_leaving_do_not_count() -> None:
    """TC-272, TC-307"""
    found = view([member("a", silent_for=30.0), member("b", silent_for=30.1), member("c", is_leaving=True)], {})
    assert living(found, STALE) == {"a"}
    assert len(planned(found, "a").take) == 256


def test_who_is_no_member_any_more_does_nothing() -> None:
    owned = {"i-1": range(256)}
    assert planned(view(["i-2"], owned), is_steady=True) == ({}, {})
    assert planned(view(["i-2", member("i-1", silent_for=31.0)], owned), is_steady=True) == ({}, {})


# ---------------------------------------------------------------- taking


def test_a_lone_instance_takes_everything() -> None:
    """TC-270, TC-286: with the epochs that it saw."""
    assert planned(view(["i-1"], {})) == (dict.fromkeys(range(256), 5), {})


def test_only_what_is_missing_is_taken() -> None:
    """TC-276"""
    assert list(planned(view(["i-1"], {"i-1": [17]})).take) == [n for n in range(256) if n != 17]
    assert planned(view(["i-1", "i-2"], {"i-1": range(128)})).take == {}


def test_what_somebody_owns_in_time_is_not_taken() -> None:
    """TC-277: not even of one who is no member any more."""
    assert planned(view(["i-1"], {"i-1": [0], "gone": range(1, 256)})).take == {}


def test_what_is_over_is_taken_lowest_first() -> None:
    """TC-279, TC-273"""
    owned = {"i-1": range(100), "i-2": range(100, 128), "i-old": range(128, 178), "i-3": range(178, 256)}
    assert list(planned(view(["i-1", "i-2"], owned, over=range(128, 178))).take) == list(range(128, 156))


def test_less_than_the_share_is_better_than_nothing() -> None:
    """TC-278 is not ours: what there is is taken."""
    owned = {"i-1": range(56), "i-2": range(56, 156), "i-old": range(156, 206), "i-3": range(206, 256)}
    assert list(planned(view(["i-1", "i-2"], owned, over=range(156, 206))).take) == list(range(156, 206))


def test_what_is_mine_and_over_is_still_mine() -> None:
    assert planned(view(["i-1"], {"i-1": range(256)}, over=range(256))) == ({}, {})


def test_nothing_stays_orphaned_because_its_heir_does_not_come() -> None:
    """i-2 is short and alive, and does nothing: in the end others take beyond their share, and give nothing up."""
    now = view(["i-1", "i-2"], {"i-1": range(128), "i-2": range(128, 256)}, over=range(256))
    assert planned(now, is_steady=True).take == {}, "just over"
    orphaned = aged(now, 31.0)
    assert planned(orphaned).take == {}
    assert planned(orphaned, is_steady=True) == (dict.fromkeys(range(128, 256), 5), {})
    assert planned(view(["i-1", "i-2"], {"i-1": range(200)}), is_steady=True).give == {}


# ---------------------------------------------------------------- giving


def test_what_is_too_much_is_given_highest_first() -> None:
    """TC-274"""
    now = view(["i-1", "i-2"], {"i-1": range(150), "i-2": range(150, 256)})
    assert planned(now, is_steady=True) == ({}, dict.fromkeys(range(149, 127, -1), 5))
    assert planned(now, "i-2", is_steady=True) == ({}, {})


def test_nothing_is_given_without_too_much() -> None:
    """TC-275"""
    even = view(["i-1", "i-2"], {"i-1": range(128), "i-2": range(128, 256)})
    assert planned(even, is_steady=True).give == {}
    fewer = view(["i-1", "i-2"], {"i-1": range(100), "i-2": range(100, 256)})
    assert planned(fewer, is_steady=True).give == {}


def test_nothing_is_given_while_members_come_and_go() -> None:
    now = view(["i-1", "i-2"], {"i-1": range(256)})
    assert planned(now).give == {}
    assert len(planned(now, is_steady=True).give) == 128


# ---------------------------------------------------------------- a whole fleet


class Simulation:
    """Partitions with epochs, and members who look in any order, once in ten seconds."""

    def __init__(self, *members: str) -> None:
        self.members: dict[str, float] = dict.fromkeys(members, 0.0)
        self.holders = [Holder(number, None, 0, None) for number in range(256)]
        self.seen: dict[str, frozenset[str]] = {}
        self.moves = 0

    def look(self, me: str) -> None:
        view = FleetView([member(id, silent_for=silent) for id, silent in self.members.items()], list(self.holders))
        alive = living(view, STALE)
        self.act(me, plan(view, me=me, stale_after=STALE, is_steady=self.seen.get(me) == alive))
        self.seen[me] = alive

    def act(self, me: str, wanted: Plan) -> None:
        for number, epoch in wanted.give.items():
            if (self.holders[number].owner, self.holders[number].epoch) == (me, epoch):
                self.holders[number] = Holder(number, None, epoch + 1, 0.0)
        for number, epoch in wanted.take.items():
            holder = self.holders[number]
            if holder.epoch == epoch and (holder.owner is None or (holder.expires_in or 0) <= 0):
                self.holders[number] = Holder(number, me, epoch + 1, 20.0)
                self.moves += 1

    def leave(self, me: str) -> None:
        del self.members[me]
        self.seen.pop(me, None)
        self.holders = [Holder(h.partition, None, h.epoch + 1, 0.0) if h.owner == me else h for h in self.holders]

    def hear(self, me: str, *, silent_for: float) -> None:
        """What it owns ends when it is silent for long; back in time it has it still."""
        self.members[me] = silent_for
        left = 20.0 - silent_for
        self.holders = [Holder(h.partition, me, h.epoch, left) if h.owner == me else h for h in self.holders]

    def alive(self) -> list[str]:
        return [id for id, silent in self.members.items() if not silent]

    def settle(self, random: Random | None = None) -> None:
        """Everybody looks once in each round, in any order."""
        for _ in range(6):
            for id in (random or Random(0)).sample(self.alive(), len(self.alive())):
                self.look(id)
            self.pass_time(10.0)

    def pass_time(self, seconds: float) -> None:
        """What the living own is prolonged all the while."""
        alive = self.alive()
        self.holders = [each if each.owner in alive else later(each, seconds) for each in self.holders]

    def counts(self) -> list[int]:
        owned = Counter(each.owner for each in self.holders)
        return [owned[id] for id in self.alive()]


STEPS = st.lists(
    st.tuples(st.sampled_from(["join", "leave", "fall silent", "come back", "look"]), st.sampled_from("abcdefg")),
    max_size=40,
)


@settings(max_examples=40)
@given(STEPS, st.randoms(use_true_random=False))
def test_any_fleet_comes_to_rest_with_even_shares(steps: list[tuple[str, str]], random: Random) -> None:
    """Whatever joins, leaves, stalls and looks there were; and then nothing moves any more."""
    fleet = Simulation("z")
    for step, id in steps:
        match step:
            case "join" if id not in fleet.members:
                fleet.members[id] = 0.0
            case "leave" if id in fleet.members:
                fleet.leave(id)
            case "fall silent" if id in fleet.members:
                fleet.hear(id, silent_for=31.0)
            case "come back" if id in fleet.members:
                fleet.hear(id, silent_for=0.0)
            case "look" if id in fleet.alive():
                fleet.look(id)
    fleet.settle(random)
    assert sum(fleet.counts()) == 256
    assert max(fleet.counts()) - min(fleet.counts()) <= 1
    moves = fleet.moves
    fleet.settle(random)
    assert fleet.moves == moves


@settings(max_examples=20)
@given(st.integers(1, 9), st.sampled_from(["a", "member 0!", "z"]))
def test_one_who_joins_moves_no_more_than_its_share(count: int, newcomer: str) -> None:
    """Wherever its id sorts."""
    fleet = Simulation(*(f"member {number}" for number in range(count)))
    fleet.settle()
    fleet.moves = 0
    fleet.members[newcomer] = 0.0
    fleet.settle()
    assert fleet.moves == 256 // (count + 1)


@settings(max_examples=20)
@given(st.integers(2, 9), st.data())
def test_one_who_leaves_or_dies_moves_no_more_than_its_share(count: int, data: st.DataObject) -> None:
    fleet = Simulation(*(f"member {number}" for number in range(count)))
    fleet.settle()
    fleet.moves = 0
    who = data.draw(st.sampled_from(sorted(fleet.members)))
    share = fleet.counts()[fleet.alive().index(who)]
    if data.draw(st.booleans()):
        fleet.leave(who)
    else:
        fleet.hear(who, silent_for=31.0)
    fleet.settle()
    assert fleet.moves == share
