"""Promise 15: a process that is asked to end gives back what it has not started, and others go on at once."""

from __future__ import annotations

import signal

from tests.promises.harness import LASTING, Fleet
from tests.promises.places import everywhere, everywhere_in_colour, through_drivers
from tests.promises.sessions import sessions
from tests.promises.waiting import pause, until


def leased(fleet: Fleet) -> set[str]:
    return {row["event_id"] for row in fleet.rows() if row["locked_by"] is not None}


@everywhere_in_colour
def test_promise_15_clean_stop_sigterm_gives_back_every_lease_but_those_of_running_sync_handlers(
    fleet: Fleet, runtime: str, colour: str
) -> None:
    """F22, F29, F63: leases last for a minute, so what another process delivers now was given back."""
    ending = fleet.worker(runtime, handler=colour, gated=True, worker_count=2, drain_timeout="200ms", **LASTING)
    ending.tell("start")
    ending.tell("write", count=2, how={"waits": True})
    fleet.until_entered(2)
    running = fleet.journal.ids("enter")
    ending.tell("write_together", count=30, first=2, how={"waits": True})
    assert ending.tell("stats")["held"] == 32
    ending.signal(signal.SIGTERM)
    assert ending.wait() == 0, ending.errors

    assert leased(fleet) == (running if colour == "sync" else set())
    assert {row["attempts"] for row in fleet.rows()} == {0}
    for event_id in running:
        assert (f"{event_id} still runs after close()" in ending.errors) == (colour == "sync")

    other = fleet.worker(runtime, **LASTING)
    other.tell("start")
    fleet.until_settled(30 if colour == "sync" else 32)
    other.finish()
    assert fleet.journal.counts("effect") == dict.fromkeys(set(fleet.statuses()) - leased(fleet), 1)


@everywhere
def test_promise_15_clean_stop_sigterm_lets_waiting_events_finish_within_the_drain(fleet: Fleet, runtime: str) -> None:
    ending = fleet.worker(runtime, worker_count=2, drain_timeout="20s", **LASTING)
    ending.tell("start")
    ending.tell("write_together", count=200)
    ending.signal(signal.SIGTERM)
    assert ending.wait() == 0, ending.errors

    assert leased(fleet) == set()
    assert fleet.journal.counts("effect") == dict.fromkeys(fleet.all_delivered(), 1)
    assert len(fleet.statuses()) == 200


def test_promise_15_clean_stop_sigterm_at_any_moment_of_a_start_leaves_no_lease(fleet: Fleet, runtime: str) -> None:
    """F63: whenever the signal comes, the process ends, and its rows are done or free."""
    for number, moment in enumerate((0.0, 0.003, 0.01, 0.03)):
        ending = fleet.worker(runtime, **LASTING)
        ending.tell("write_together", count=20, first=20 * number)
        ending.send("start")
        pause(moment)
        ending.signal(signal.SIGTERM)
        assert ending.wait() == 0, ending.errors
        assert leased(fleet) == set()
        assert "Traceback" not in ending.errors

    other = fleet.worker(runtime, **LASTING)
    other.tell("start")
    fleet.until_settled(80)
    other.finish()
    assert fleet.journal.counts("effect") == dict.fromkeys(fleet.all_delivered(), 1)


@through_drivers
def test_promise_15_clean_stop_leaves_no_connection_on_the_server(fleet: Fleet, runtime: str) -> None:
    """F63: the process goes on after close(), and its sessions are gone. So they are after a second life."""
    worker = fleet.worker(runtime, gated=True, worker_count=1, drain_timeout=0, **LASTING)
    for count in (20, 40):
        worker.tell("start")
        worker.tell("write", count=19)
        worker.tell("write_together", count=1, how={"waits": count == 20})
        fleet.until_settled(count - 1)
        assert sessions(fleet.table)
        fleet.open_gate()
        worker.tell("close")
        assert leased(fleet) == set()
        until(lambda: not sessions(fleet.table), what="the end of all sessions")
    worker.tell("start")
    fleet.until_settled(40)
    worker.finish()
    fleet.all_delivered()
    until(lambda: not sessions(fleet.table), what="the end of all sessions")
