"""Promises 4 and 4a: a holder that was away too long changes nothing, and an event that kills its process ends."""

from __future__ import annotations

import signal

import pytest

from aftercommit import EventStatus
from tests.promises import faults
from tests.promises.harness import LASTING, Fleet
from tests.promises.places import everywhere, everywhere_in_colour, through_drivers
from tests.promises.waiting import pause, until


@everywhere_in_colour
def test_promise_04_fenced_a_holder_that_stood_still_past_its_lease_changes_nothing(
    fleet: Fleet, runtime: str, colour: str
) -> None:
    """F15, F16, F17: it finishes its handler after another process has delivered the event."""
    stale = fleet.worker(runtime, gated=True, handler=colour, **LASTING)
    stale.tell("start")
    (event_id,) = stale.tell("write", count=1, how={"waits": True})
    fleet.until_entered(1)
    fleet.stop(stale)
    fleet.table.change("UPDATE outbox_event SET lease_until = 0")  # as time would

    other = fleet.worker(runtime, **LASTING)
    other.tell("start")
    fleet.until_settled(1)
    after_takeover = dict(fleet.rows()[0])
    assert {line.pid for line in fleet.journal.lines("effect")} == {other.pid}

    fleet.open_gate()
    stale.signal(signal.SIGCONT)
    until(lambda: stale.tell("stats").get("lease_lost") == 1, what="the lost lease is counted")
    assert [line.pid for line in fleet.journal.lines("effect")] == [other.pid, stale.pid]
    assert dict(fleet.rows()[0]) == after_takeover
    counters = stale.tell("stats")
    assert (counters.get("dispatch_success", 0), counters["held"], counters["unsettled"]) == (0, 0, 0)
    stale.finish()
    other.finish()
    assert dict(fleet.rows()[0]) == after_takeover
    assert stale.errors.count(f"the lease on Happened {event_id} was lost") == 1
    assert "Traceback" not in stale.errors


@everywhere
def test_promise_04_fenced_a_process_that_stood_still_past_its_leases_delivers_nothing_from_memory(
    fleet: Fleet, runtime: str
) -> None:
    """F20, F47: a hundred events wait behind one; another process delivers them all meanwhile."""
    stale = fleet.worker(runtime, gated=True, worker_count=1)
    stale.tell("start")
    (first,) = stale.tell("write", count=1, how={"waits": True})
    fleet.until_entered(1)
    waiting = set(stale.tell("write_together", count=100))
    until(lambda: stale.tell("stats")["held"] == 101, what="all in memory, by the poller where the commit came late")
    fleet.stop(stale)

    other = fleet.worker(runtime, **LASTING)
    other.tell("start")
    fleet.until_settled(101)
    other.finish()

    fleet.open_gate()
    stale.signal(signal.SIGCONT)
    until(lambda: stale.tell("stats")["held"] == 0, what="the memory is empty")
    (late,) = stale.tell("write", count=1)  # and it goes on
    fleet.until_settled(102)
    stale.finish()
    effects = fleet.journal.counts("effect")
    assert effects.pop(first) == 2
    assert effects == dict.fromkeys({*waiting, late}, 1)
    assert {line.pid for line in fleet.journal.lines("effect") if line.what in waiting} == {other.pid}
    fleet.all_delivered()


@everywhere
def test_promise_04_fenced_a_lease_that_ran_out_and_that_nobody_took_is_still_its_holders(
    fleet: Fleet, runtime: str
) -> None:
    """The only process stands still past its lease in a handler; its outcome counts, and the event runs once."""
    worker = fleet.worker(runtime, gated=True, poller_enabled=False)
    worker.tell("start")
    worker.tell("write", count=1, how={"waits": True})

    def has_begun() -> bool:
        worker.tell("poll")  # where the machine was busy for half a second, the event went back to the table
        return bool(fleet.journal.ids("enter"))

    until(has_begun, what="a handler that runs")
    fleet.stop(worker)
    until(lambda: fleet.rows()[0]["lease_until"] < fleet.table.now(), what="the lease has run out")
    fleet.open_gate()
    worker.signal(signal.SIGCONT)
    fleet.until_settled(1)
    assert worker.tell("stats").get("lease_lost", 0) == 0
    worker.finish()
    assert set(fleet.journal.counts("effect").values()) == {1}


@through_drivers
def test_promise_04_fenced_a_process_that_stands_still_inside_a_transaction_keeps_no_row_from_others(
    fleet: Fleet, runtime: str
) -> None:
    """F15: its locks would outlast its leases, and claims pass over what is locked. So the server ends its session."""
    stale = fleet.worker(runtime, gated=True, environment={faults.STOP: "in renewal"})
    stale.tell("start")
    stale.tell("write", count=1, how={"waits": True})
    until(lambda: fleet.journal.ids("crash") == {"in renewal"}, what="a stop inside the renewal")

    other = fleet.worker(runtime, **LASTING)
    other.tell("start")
    fleet.until_settled(1)
    after_takeover = dict(fleet.rows()[0])

    fleet.open_gate()
    stale.signal(signal.SIGCONT)
    until(lambda: stale.tell("stats").get("lease_lost"), what="the lost lease is counted")
    stale.finish()
    other.finish()
    assert dict(fleet.rows()[0]) == after_takeover
    assert stale.errors.count("was lost before DONE was written") == 1


# ------------------------------------------------------------ promise 4a


MAX_ABANDONED = 2


def supervise(fleet: Fleet, runtime: str, *, starts: int, environment: dict[str, str] | None) -> int:
    """Start a worker again whenever it dies, until nothing is pending; how many starts it took."""
    for start in range(1, starts + 1):
        worker = fleet.worker(runtime, max_abandoned=MAX_ABANDONED, environment=environment, **LASTING)
        worker.send("start")
        until(lambda worker=worker: worker.has_ended or not pending(fleet), what="an end of the work or of the worker")
        if not pending(fleet):
            worker.finish()
            return start
        assert worker.wait() == -signal.SIGKILL, worker.errors
        fleet.table.change("UPDATE outbox_event SET lease_until = 0 WHERE locked_by IS NOT NULL")  # as time would
    raise AssertionError(f"still pending after {starts} starts: {[dict(row) for row in fleet.rows()]}")


def pending(fleet: Fleet) -> int:
    return int(fleet.rows("SELECT count(*) FROM outbox_event WHERE status IN (0, 2)")[0][0])


@everywhere
def test_promise_04a_killers_end_and_their_neighbours_do_not(fleet: Fleet, runtime: str) -> None:
    """F28, F29: one poison event before two hundred. It is DEAD after max_abandoned deliveries as a suspect; those that
    only shared its batches and its processes are all delivered."""
    writer = fleet.worker(runtime, handler=None)
    (poison,) = writer.tell("write", count=1, how={"kills": True})
    writer.tell("write_together", count=200, first=1)
    writer.finish()

    poison_is_dead_and_the_others_are_done(fleet, runtime, poison, deliveries=MAX_ABANDONED + 1)
    assert len(fleet.statuses()) == 201


def test_promise_04a_killers_do_not_take_along_those_that_have_just_been_delivered(fleet: Fleet, runtime: str) -> None:
    """The database is slow: a suspect that reported must not be counted because the next one kills the process."""
    writer = fleet.worker(runtime, handler=None)
    writer.tell("write_together", count=20)
    (poison,) = writer.tell("write", count=1, first=20, how={"kills": True})
    writer.finish()
    fleet.table.change("UPDATE outbox_event SET locked_by = 'gone', lease_until = 1, lease_epoch = 1")

    slow = {faults.SLOW_SETTLES: "0.02"}
    poison_is_dead_and_the_others_are_done(fleet, runtime, poison, deliveries=MAX_ABANDONED, environment=slow)


def test_promise_04a_suspects_and_others_are_delivered_side_by_side_on_a_slow_database(
    fleet: Fleet, runtime: str
) -> None:
    """While the outcome of a suspect is being written, the outcomes of others come in; nobody waits for ever."""
    writer = fleet.worker(runtime, handler=None)
    writer.tell("write_together", count=20)
    fleet.table.change("UPDATE outbox_event SET locked_by = 'gone', lease_until = 1, lease_epoch = 1")
    writer.finish()

    worker = fleet.worker(runtime, environment={faults.SLOW_SETTLES: "0.02"}, **LASTING)
    worker.tell("start")
    for number in range(20, 30):
        worker.tell("write", count=1, first=number)
        pause(0.03)
    fleet.until_settled(30)
    worker.finish()
    assert fleet.journal.counts("effect") == dict.fromkeys(fleet.all_delivered(), 1)


@pytest.mark.parametrize("deaths", [1, 2], ids=["most only waited", "it had begun"])
def test_promise_04a_a_suspect_that_hangs_keeps_no_other_waiting(fleet: Fleet, runtime: str, deaths: int) -> None:
    """A process with 41 events in hand is killed, and one of them hangs for ever wherever it is delivered. After the
    second death four of them are known to have been under way, and run one at a time; the one that hangs is first."""
    victim = fleet.worker(runtime, gated=True, max_abandoned=100)
    (hung,) = victim.tell("write", count=1, how={"waits": "for ever"})
    victim.tell("write_together", count=40, first=1, how={"waits": True})
    for death in range(deaths):
        victim.tell("start")
        until(lambda pid=victim.pid: entered_by(fleet, pid) >= 4, what="workers that all wait in handlers")
        if death == 1:
            assert sorted(row["abandoned"] for row in fleet.rows()) == [0] * 37 + [1] * 4
        victim.signal(signal.SIGKILL)
        assert victim.wait() == -signal.SIGKILL
        assert not fleet.ended()
        victim = fleet.worker(runtime, gated=True, max_abandoned=100)
    fleet.open_gate()
    victim.tell("start")
    fleet.until_settled(40)

    assert fleet.ended() == fleet.statuses().keys() - {hung}
    assert victim.pid in {line.pid for line in fleet.journal.lines("enter") if line.what == hung}
    (row,) = [row for row in fleet.rows() if row["event_id"] == hung]
    assert (row["status"], row["abandoned"]) == (EventStatus.NEW, 1), "it is not to blame for what began beside it"


def entered_by(fleet: Fleet, pid: int) -> int:
    return sum(line.pid == pid for line in fleet.journal.lines("enter"))


def poison_is_dead_and_the_others_are_done(
    fleet: Fleet, runtime: str, poison: str, *, deliveries: int, environment: dict[str, str] | None = None
) -> None:
    """After a bounded number of process starts: one for each delivery of the poison, one that finds the count full."""
    assert supervise(fleet, runtime, starts=deliveries + 1, environment=environment) == deliveries + 1
    rows = {row["event_id"]: row for row in fleet.rows()}
    dead = rows.pop(poison)
    assert (dead["status"], dead["locked_by"]) == (EventStatus.DEAD, None)
    assert "worker lost" in dead["last_error"]
    entered = fleet.journal.counts("enter")
    assert entered.pop(poison) == deliveries
    assert {(row["status"], row["abandoned"], row["attempts"]) for row in rows.values()} == {(EventStatus.DONE, 0, 0)}
    assert set(entered) == set(rows) == fleet.journal.ids("effect")
