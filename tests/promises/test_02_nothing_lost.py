"""Promises 1 and 2: a process may die anywhere. What was committed is delivered, what was not never is."""

from __future__ import annotations

import pytest

from aftercommit import EventStatus
from tests.promises.harness import QUICK, Fleet


def healthy_process_delivers_the_rest(fleet: Fleet, runtime: str) -> set[str]:
    """Another process takes over; what had ended by then is not delivered again. Gives all ids."""
    ended, before = fleet.ended(), fleet.journal.counts("effect")
    fleet.delivered_by_this_process(runtime)
    after = fleet.journal.counts("effect")
    assert {event_id: after[event_id] for event_id in ended} == {event_id: before[event_id] for event_id in ended}
    return fleet.all_delivered()


# ------------------------------------------------------------ promise 1


def test_promise_01_atomic_a_process_killed_before_its_commit_leaves_no_row_and_no_effect(
    fleet: Fleet, runtime: str
) -> None:
    """F02."""
    victim = fleet.worker(runtime, crash_at="before commit:3")
    victim.tell("start")
    victim.send("write", count=10)
    fleet.crashed(victim, "before commit")
    begun = [line.what for line in fleet.journal.lines("begin")]
    assert len(begun) == 3

    committed = healthy_process_delivers_the_rest(fleet, runtime)
    assert committed == set(begun[:2])


# ------------------------------------------------------------ promise 2, at every point of an event's walk


@pytest.mark.parametrize(
    "point",
    [
        "after commit:3",
        "before enqueue:3",
        "after enqueue:3",
        "before handler:3",
        "in handler:3",
        "after handler:3",
        "in settle",
        "after settle",
    ],
)
def test_promise_02_nothing_lost_when_a_process_is_killed_on_the_hot_path(
    fleet: Fleet, runtime: str, point: str
) -> None:
    """F01, F14."""
    victim = fleet.worker(runtime, crash_at=point)
    victim.tell("start")
    victim.send("write", count=10)
    fleet.crashed(victim, point)
    assert fleet.statuses()

    healthy_process_delivers_the_rest(fleet, runtime)


@pytest.mark.parametrize("point", ["in claim", "after claim", "in suspect mark", "after suspect mark:2"])
def test_promise_02_nothing_lost_when_a_process_is_killed_on_the_cold_path(
    fleet: Fleet, runtime: str, point: str
) -> None:
    victim = fleet.worker(runtime, crash_at=point)
    victim.tell("write_together", count=10)
    if "suspect" in point:  # the rows of a process that is gone
        fleet.table.change("UPDATE outbox_event SET locked_by = 'gone', lease_until = 1, lease_epoch = 1")
    victim.send("start")
    fleet.crashed(victim, point)
    assert len(fleet.statuses()) == 10

    healthy_process_delivers_the_rest(fleet, runtime)


@pytest.mark.parametrize("point", ["in renewal", "after renewal:2"])
def test_promise_02_nothing_lost_when_a_process_is_killed_while_it_renews(
    fleet: Fleet, runtime: str, point: str
) -> None:
    victim = fleet.worker(runtime, crash_at=point, gated=True, worker_count=1)
    victim.tell("start")
    victim.send("write", count=5, how={"waits": True})
    fleet.crashed(victim, point)
    assert len(fleet.journal.ids("enter")) == 1

    assert len(healthy_process_delivers_the_rest(fleet, runtime)) == 5


def test_promise_02_nothing_lost_when_a_process_is_killed_while_it_writes_a_failure(fleet: Fleet, runtime: str) -> None:
    victim = fleet.worker(runtime, crash_at="in retry", gated=True)
    victim.tell("start")
    victim.send("write_together", count=5, how={"fails": 1})
    fleet.crashed(victim, "in retry")
    assert [row["attempts"] for row in fleet.rows()] == [0] * 5

    assert len(healthy_process_delivers_the_rest(fleet, runtime)) == 5


def test_promise_02_nothing_lost_when_a_process_is_killed_while_it_gives_back(fleet: Fleet, runtime: str) -> None:
    victim = fleet.worker(runtime, crash_at="in release", gated=True, worker_count=1, drain_timeout=0)
    victim.tell("start")
    victim.tell("write_together", count=5, how={"waits": True})
    fleet.until_entered(1)
    victim.send("close")
    fleet.crashed(victim, "in release")

    assert len(healthy_process_delivers_the_rest(fleet, runtime)) == 5


# ------------------------------------------------------------ promise 2, in what people do with ended rows


@pytest.mark.parametrize(("point", "kept"), [("in purge", 5), ("after purge", 0)])
def test_promise_02_nothing_lost_when_a_process_is_killed_in_a_purge(
    fleet: Fleet, runtime: str, point: str, kept: int
) -> None:
    """A purge takes all of its batch or nothing, and never what is not done."""
    victim = fleet.worker(runtime, crash_at=point)
    victim.tell("write", count=8)
    fleet.table.change("UPDATE outbox_event SET status = 1, done_at = 1 WHERE position <= 5")
    victim.send("purge", older_than="1h")
    fleet.crashed(victim, point)
    assert sorted(fleet.statuses().values()) == [0] * 3 + [1] * kept

    healthy = fleet.worker(runtime)
    healthy.tell("start")
    fleet.until_settled(kept + 3)
    assert len(fleet.journal.ids("effect")) == 3
    assert healthy.tell("purge", older_than="1h") == kept
    healthy.finish()


@pytest.mark.parametrize(("point", "status"), [("in replay", EventStatus.DEAD), ("after replay", EventStatus.NEW)])
def test_promise_02_nothing_lost_when_a_process_is_killed_in_a_replay(
    fleet: Fleet, runtime: str, point: str, status: EventStatus
) -> None:
    """An event is dead or replayed, nothing in between; and it can be replayed afterwards."""
    victim = fleet.worker(runtime, crash_at=point)
    (event_id,) = victim.tell("write", count=1)
    fleet.table.change("UPDATE outbox_event SET status = 3, attempts = 10, done_at = 1, last_error = 'no luck'")
    victim.send("replay", event_id=event_id)
    fleet.crashed(victim, point)
    assert fleet.statuses() == {event_id: status}

    healthy = fleet.worker(runtime)
    healthy.tell("start")
    if status is EventStatus.DEAD:
        assert healthy.tell("replay", event_id=event_id)
    fleet.until_settled(1)
    healthy.finish()
    assert fleet.all_delivered() == {event_id}


# ------------------------------------------------------------ promise 2, anywhere


def test_promise_02_nothing_lost_in_thirty_kills_at_any_moment(fleet: Fleet, runtime: str) -> None:
    """Processes that write, roll back and deliver are killed at random moments, and another one follows each.

    Between a commit and the report of it a kill leaves an event of which nobody knows; the table does.
    """
    kills = 30
    spec = {**fleet.place(runtime), "kills": kills, "seed": 20_260, "options": QUICK}
    storm = fleet.process("storm", spec)
    assert storm.answer(timeout=60) == kills
    storm.finish()
    began, said = fleet.journal.ids("begin"), {line.pid for line in fleet.journal.lines("begin")}
    assert len(said) >= kills / 2, "most processes were killed before they did anything"
    assert fleet.journal.ids("fail")

    committed = healthy_process_delivers_the_rest(fleet, runtime)
    assert committed <= began
    unknown = began - fleet.journal.ids("ok") - fleet.journal.ids("fail")
    assert committed - fleet.journal.ids("ok") <= unknown
    assert len(unknown) <= kills
