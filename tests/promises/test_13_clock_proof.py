"""Promise 13: a process whose clock is wrong delivers neither early nor late nor in another order."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.promises import skew
from tests.promises.harness import LASTING, Fleet, Process

HOUR = 3600


@pytest.fixture(
    params=[
        ("patched", "threads", -HOUR),
        ("shimmed", "asyncio", HOUR),
        pytest.param(("patched", "threads", HOUR), marks=pytest.mark.slow),
        pytest.param(("shimmed", "asyncio", -HOUR), marks=pytest.mark.slow),
    ],
    ids=lambda case: f"{case[0]} under {case[1]}, an hour {'slow' if case[2] < 0 else 'fast'}",
)
def wrong(request: pytest.FixtureRequest, fleet: Fleet) -> Process:
    """A worker whose Python clock is off by that much, while its database's is right."""
    way, runtime, seconds = request.param
    environment = {skew.PATCHED: str(seconds)}
    if way == "shimmed":
        shim = skew.built_shim(fleet.folder)
        if shim is None:
            pytest.skip("no C compiler, or a system on which the shim does not work")
        environment = {"LD_PRELOAD": str(shim), skew.SHIMMED: str(seconds)}
    options = {"worker_count": 1, "batch_size": 4, **LASTING}
    worker = fleet.worker(runtime, environment=environment, is_fresh=True, gated=True, **options)
    clock_is_wrong(worker, seconds)
    return worker


def clock_is_wrong(worker: Process, seconds: int) -> None:
    """The fault is there: Python is off by that much, the database is not."""
    clocks = worker.tell("clocks")
    assert clocks["python"] - clocks["database"] == pytest.approx(seconds, rel=0.5)
    assert clocks["library"] - clocks["database"] == pytest.approx(seconds, rel=0.5)
    assert datetime.now(UTC).timestamp() == pytest.approx(clocks["database"], abs=HOUR / 2)


def test_promise_13_clock_proof_delays_retries_and_order_do_not_ask_the_applications_clock(
    fleet: Fleet, wrong: Process
) -> None:
    """F34, F79, TC-479: now, a delay and a given time, each written by a wrong process, next to a right one's."""
    right = fleet.worker(handler=None, **LASTING)
    # Born free, in turns: the order of position is the order of writing, whatever the writers' clocks say.
    for number in range(0, 10, 2):
        wrong.tell("write", count=1, first=number)
        right.tell("write", count=1, first=number + 1)
    wrong.tell("start")
    fleet.until_settled(10)
    assert [line.number for line in fleet.journal.lines("enter")] == list(range(10))

    at_once, later, given, again = range(100, 104)
    now, given_at = datetime.now(UTC), time.monotonic()
    times = {"occurred_at": now.isoformat(), "available_at": (now + timedelta(seconds=0.6)).isoformat()}
    wrong.tell("write", count=1, first=later, how={"options": {"deliver_after": 0.6}})
    wrong.tell("write", count=1, first=given, how={"options": times})
    wrong.tell("write", count=1, first=at_once)
    wrong.tell("write", count=1, first=again, how={"fails": 1})
    fleet.until_settled(14)
    wrong.finish()
    right.finish()
    assert fleet.journal.counts("effect") == dict.fromkeys(fleet.all_delivered(), 1)
    written = {line.number: line.at for line in fleet.journal.lines("begin")}
    waited = {line.number: line.at - written[line.number] for line in fleet.journal.lines("effect")}
    waited[given] += written[given] - given_at
    assert max(waited.values()) < HOUR / 2, "the wrong clock was asked"
    assert waited[at_once] >= 0
    assert waited[again] >= 0.015
    # SQLite's clock has milliseconds.
    assert waited[later] >= 0.595
    assert waited[given] >= 0.595


def test_promise_13_clock_proof_leases_of_a_wrong_process_hold_and_those_of_others_are_respected(
    fleet: Fleet, wrong: Process
) -> None:
    """F79: a process with a wrong clock neither takes what another one holds nor loses what it holds itself."""
    right = fleet.worker(gated=True, worker_count=1, **LASTING)
    workers = (wrong, right)
    for worker in workers:
        worker.tell("start")
        worker.tell("write", count=2, how={"waits": True})
    fleet.until_entered(2)
    for worker in workers:  # each looks at the whole table once more
        worker.tell("poll")
        worker.tell("write", count=1)
    assert len(fleet.journal.lines("enter")) == 2
    fleet.open_gate()
    fleet.until_settled(6)
    counters = [worker.tell("stats") for worker in workers]
    for worker in workers:
        worker.finish()
    assert fleet.journal.counts("effect") == dict.fromkeys(fleet.all_delivered(), 1)
    assert [count.get("lease_lost", 0) for count in counters] == [0, 0]
