"""A round passes every key that is there all the time, wherever it begins and in however many pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aftercommit.events.order import OrderKey
from aftercommit.ordering.keys import Sweep

keys = st.sets(st.builds(OrderKey, st.integers(0, 4), st.sampled_from("abcdef")), max_size=20)


def walk(sweep: Sweep, table: set[OrderKey], limit: int) -> list[OrderKey]:
    """One piece, as a store answers it: partition by partition in the order asked for, behind the key."""
    stretch = sweep.stretch()
    partitions, after = stretch
    assert len(set(partitions)) == len(partitions)
    seen = [
        key
        for number, partition in enumerate(partitions)
        for key in sorted(table)
        if key.partition == partition and (number > 0 or after is None or key > after)
    ][:limit]
    sweep.passed(stretch, seen[-1] if len(seen) == limit else None)
    return seen


@given(table=keys, limit=st.integers(1, 7), before=st.integers(0, 6))
def test_a_round_sees_everything_wherever_it_begins(table, limit, before):
    sweep = Sweep()
    sweep.begin(range(5))
    for _ in range(before):  # an earlier round, left somewhere in its middle
        if not sweep.is_over:
            walk(sweep, table, limit)

    sweep.begin(range(5))
    seen = []
    for _ in range(100):
        if sweep.is_over:
            break
        seen += walk(sweep, table, limit)

    assert sweep.is_over, "a round ends"
    assert set(seen) == table
    assert len(seen) <= len(table) + len({key for key in table if key.partition == seen[0].partition} if seen else ())


@given(table=keys, limit=st.integers(1, 3))
def test_rounds_that_are_begun_again_and_again_still_come_round(table, limit):
    """Every wake-up begins a round. If each began at the front, the last partitions would starve."""
    sweep, seen = Sweep(), set()
    for _ in range(2 * len(table) + 12):
        sweep.begin(range(5))
        seen |= set(walk(sweep, table, limit))

    assert seen == table


@given(table=keys, limit=st.integers(1, 3), owned=st.sets(st.integers(0, 4)))
def test_only_what_is_owned_is_walked(table, limit, owned):
    sweep = Sweep()
    sweep.begin(range(5))
    walk(sweep, table, limit)

    sweep.begin(owned)
    seen = []
    while not sweep.is_over:
        seen += walk(sweep, table, limit)

    assert set(seen) == {key for key in table if key.partition in owned}
