"""Promises 1 and 2 on servers: a process may die anywhere, and its connections with it."""

from __future__ import annotations

import signal

import pytest

from tests.promises.harness import QUICK, Fleet
from tests.promises.places import on_servers
from tests.promises.walk import WALKS

LEASE = 500_000


def no_row_is_held_for_longer_than_a_lease(fleet: Fleet) -> None:
    """By the database's clock; what nobody holds can be had at once."""
    latest = fleet.table.now() + LEASE
    assert all(row["lease_until"] <= latest for row in fleet.rows() if row["locked_by"] is not None)


@on_servers
def test_promise_02_nothing_lost_when_a_process_is_killed_at_any_point_of_the_walk(fleet: Fleet, runtime: str) -> None:
    """F01, F02, F14: each meets what those before it have left."""
    writer = fleet.worker(runtime, handler=None)
    *dead, old = writer.tell("write", count=3)
    fleet.table.change("UPDATE outbox_event SET status = 3, done_at = 0, last_error = 'no luck'")
    fleet.table.change("UPDATE outbox_event SET status = 1 WHERE event_id = ?", old)

    walk = fleet.process("walk", {**fleet.place(runtime), "points": list(WALKS), "options": QUICK})
    assert walk.answer(60) == dict.fromkeys(WALKS, -signal.SIGKILL), walk.errors
    walk.finish()
    assert [line.what for line in fleet.journal.lines("crash")] == [point.partition(":")[0] for point in WALKS]
    no_row_is_held_for_longer_than_a_lease(fleet)

    writer.tell("purge", older_than="1h")
    writer.tell("replay_all")
    writer.finish()
    fleet.journal.say("purged", old)
    fleet.delivered_by_this_process(runtime)
    assert set(dead) < fleet.all_delivered()


@on_servers
@pytest.mark.parametrize("kills", [15, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
def test_promise_02_nothing_lost_in_many_kills_at_any_moment(fleet: Fleet, runtime: str, kills: int) -> None:
    """Processes that write, roll back and deliver are killed at random moments, and another one follows each."""
    storm = fleet.process("storm", {**fleet.place(runtime), "kills": kills, "seed": kills, "options": QUICK})
    assert storm.answer(timeout=500) == kills
    storm.finish()
    began, said = fleet.journal.ids("begin"), {line.pid for line in fleet.journal.lines("begin")}
    assert len(said) >= kills // 2, "most processes were killed before they did anything"
    assert fleet.journal.ids("fail")
    no_row_is_held_for_longer_than_a_lease(fleet)

    fleet.delivered_by_this_process(runtime)
    committed = fleet.all_delivered()
    assert committed <= began
    unknown = began - fleet.journal.ids("ok") - fleet.journal.ids("fail")
    assert committed - fleet.journal.ids("ok") <= unknown
    assert len(unknown) <= kills
