"""What is passed is exactly what is through, whatever the order in which events end."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from aftercommit.events.claims import Lease, RowKey, Undecodable
from aftercommit.ports.replication import Began, Change, Ended, Wrote
from aftercommit.tail.progress import Passed, Progress

AT = datetime(2026, 1, 1, tzinfo=UTC)


def wrote(name: str, *, is_captured: bool = True) -> Wrote:
    key = RowKey(name, "")
    return Wrote(key, Undecodable(Lease(key, "me", 1, 0.0), ValueError()), is_captured, {})


def progress(**options: int) -> Progress:
    return Progress(threading.Lock(), Passed(0, 0, None), **{"old_until": 0, **options})


@given(st.lists(st.lists(st.booleans(), max_size=4), max_size=5), st.data())
def test_what_is_passed_is_what_is_through(transactions: list[list[bool]], data: st.DataObject) -> None:
    """Against a model: the longest beginning without an event that is open."""
    looked, changes, names = progress(), [], []
    for number, rows in enumerate(transactions, 1):
        changes.append(Began(number * 100, AT))
        for row, is_captured in enumerate(rows):
            changes.append(wrote(f"{number}-{row}", is_captured=is_captured))
            names += [f"{number}-{row}"] if is_captured else []
        changes.append(Ended(number * 100, AT))
    read = data.draw(st.integers(0, len(changes)))
    for change in changes[:read]:
        looked.read(change)
    ended = set()
    for name in data.draw(st.permutations(names)):
        if looked.finish(RowKey(name, "")):
            ended.add(name)
        passed = looked.pass_by()
        place = count = 0
        for change in changes[:read]:
            if isinstance(change, Wrote) and change.is_captured and change.key.event_id not in ended:
                break
            count += 1
            if isinstance(change, Ended):
                place, count = change.ends_at, 0
        assert (passed.place, passed.changes) == (place, count)
    assert looked.skip == read  # as long as the slot knows of nothing
    place = looked.pass_by().place
    looked.told()
    assert looked.skip == read - sum(1 for each in changes[:read] if _ends_until(each, changes) <= place)


def _ends_until(change: Change, changes: list[Change]) -> int:
    """Where the transaction of a change ends."""
    rest = changes[[each is change for each in changes].index(True) :]
    return next(each.ends_at for each in rest if isinstance(each, Ended))


def test_what_is_read_again_is_not_given_again() -> None:
    looked = progress()
    looked.read(Began(100, AT))
    assert looked.read(wrote("a")) is not None
    assert looked.read(wrote("a")) is None
    assert looked.finish(RowKey("a", ""))
    assert not looked.finish(RowKey("a", ""))


def test_only_what_was_passed_by_others_would_come_again_with_them() -> None:
    looked = progress()
    for change in (Began(100, AT), wrote("a"), wrote("b"), wrote("c")):
        looked.read(change)
    looked.finish(RowKey("b", ""))
    assert [entry.key.event_id for entry in looked.left_behind()] == ["a"]


def test_what_ends_while_its_row_is_leased_is_told() -> None:
    """Or the row would be delivered again when that lease is over."""
    looked = progress()
    for change in (Began(100, AT), wrote("a"), wrote("b")):
        looked.read(change)
    moving = looked.move([RowKey("a", ""), RowKey("b", "")])
    looked.finish(RowKey("b", ""))
    assert looked.moved(moving) == [RowKey("b", "")]
    assert looked.pass_by().changes == 3


def test_what_was_committed_before_a_tail_began_may_be_old() -> None:
    looked = progress(old_until=100)
    first = [looked.read(each) for each in (wrote("rest of what was begun"), Ended(50, AT), Began(100, AT), wrote("a"))]
    then = [looked.read(each) for each in (Ended(100, AT), Began(101, AT), wrote("b"))]
    assert [entry.is_old for entry in (*first, *then) if entry is not None] == [True, True, False]
