"""Promise 5: several processes on one database, and each event is delivered once while nobody dies."""

from __future__ import annotations

import contextlib
import sqlite3
import threading

import pytest

from tests.promises.harness import LASTING, Fleet
from tests.promises.places import on_servers
from tests.promises.waiting import until


def soak(*case: object) -> object:
    """20,000 events, for those who have the time."""
    return pytest.param(*case, marks=[pytest.mark.slow, pytest.mark.timeout(600)])


PAIR = ("threads", "threads")
ASYNC_PAIR = ("asyncio", "asyncio")
MIXED = ("threads", "asyncio", "threads", "asyncio")
DRIVERS = ("threads", "asyncio", "asyncpg")


@pytest.mark.parametrize(
    ("fleet", "runtimes", "each"),
    [
        ("sqlite", PAIR, 400),
        ("sqlite", ASYNC_PAIR, 400),
        ("sqlite", MIXED, 200),
        ("postgres", DRIVERS, 400),
        ("mariadb", MIXED, 300),
        soak("sqlite", PAIR, 10_000),
        soak("sqlite", ASYNC_PAIR, 10_000),
        soak("postgres", PAIR, 10_000),
        soak("postgres", (*DRIVERS, "asyncpg"), 5000),
        soak("mariadb", PAIR, 10_000),
        soak("mariadb", ASYNC_PAIR, 10_000),
        soak("mariadb", MIXED, 5000),
    ],
    indirect=["fleet"],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else None,
)
def test_promise_05_one_holder_each_event_is_delivered_once_by_several_processes(
    fleet: Fleet, runtimes: tuple[str, ...], each: int
) -> None:
    """F91: all of them write, deliver hot, overflow and poll at the same time."""
    workers = [fleet.worker(runtime, **{**LASTING, "hot_queue_capacity": 3}) for runtime in runtimes]
    owners = {worker.tell("start") for worker in workers}
    assert len(owners) == len(workers)
    size = 5 if each <= 1000 else 25
    batches = each // (2 * size)
    for round_ in range(batches):
        for worker in workers:
            worker.send("write", count=size, first=2 * size * round_)
            worker.send("write_together", count=size, first=2 * size * round_ + size)
    for worker in workers:
        for _ in range(2 * batches):
            worker.answer(300)
    total = each * len(workers)
    fleet.until_settled(total, timeout=300)
    for worker in workers:
        until(lambda worker=worker: worker.tell("stats")["unsettled"] == 0, what="the answer to the last settle")
    counters = [worker.tell("stats") for worker in workers]
    for worker in workers:
        worker.finish()

    assert fleet.journal.counts("effect") == dict.fromkeys(fleet.all_delivered(), 1)
    assert len(fleet.statuses()) == total
    assert sum(count["dispatch_success"] for count in counters) == total
    assert sum(count.get("lease_lost", 0) for count in counters) == 0
    # Both ways were really taken, or the test shows nothing.
    assert all(count["hot_enqueued"] for count in counters)
    assert sum(count.get("cold_enqueued", 0) for count in counters)


def test_promise_05_one_holder_processes_may_start_on_a_new_file_at_the_same_moment(fleet: Fleet, runtime: str) -> None:
    """F91: SQLite changes a new file to WAL only when nobody writes. Somebody may, and will soon have finished."""
    late = fleet.worker(runtime, **LASTING)
    late.tell("clocks")  # it is ready, and has not opened the file
    with contextlib.closing(sqlite3.connect(fleet.table.path, isolation_level=None, check_same_thread=False)) as first:
        first.execute("CREATE TABLE business (id INTEGER)")
        first.execute("BEGIN IMMEDIATE")
        end = threading.Timer(0.3, first.execute, ["COMMIT"])
        end.start()
        try:
            late.tell("start")
        finally:
            end.join()
    late.tell("write", count=1)
    fleet.until_settled(1)
    late.finish()
    fleet.all_delivered()


@on_servers
def test_promise_05_one_holder_an_event_whose_commit_came_after_its_lease_is_delivered_once(
    fleet: Fleet, runtime: str
) -> None:
    """Born leased, it is anybody's by the time that it can be seen; and nobody's who has it in memory."""
    workers = [fleet.worker(runtime, lock_timeout="1s", poller_enabled=False), fleet.worker(runtime, **LASTING)]
    for worker in workers:
        worker.tell("start")
    event_id = workers[0].tell("write_slowly", seconds=1.2)
    fleet.until_settled(1)
    (row,) = fleet.rows()
    assert row["lease_epoch"] > 1, "it was delivered under the lease that it was born with"
    for worker in workers:
        worker.finish()
    assert fleet.journal.counts("effect") == dict.fromkeys(fleet.all_delivered(), 1) == {event_id: 1}


@on_servers
def test_promise_05_one_holder_members_of_a_fleet_may_differ_in_their_lock_timeout(fleet: Fleet, runtime: str) -> None:
    """A lease lasts as long as its holder said, whoever looks at it."""
    workers = [
        fleet.worker(runtime, gated=True, worker_count=1, lock_timeout=lock_timeout, poll_interval="20ms")
        for lock_timeout in ("2s", "60s")
    ]
    for worker in workers:
        worker.tell("start")
        worker.tell("write", count=3, how={"waits": True})
    fleet.until_entered(2)
    first = min(row["lease_until"] for row in fleet.rows())
    until(lambda: fleet.table.now() > first, what="the end of the short leases, if they had not been renewed")
    for worker in workers:
        worker.tell("poll")
    assert len(fleet.journal.lines("enter")) == 2
    fleet.open_gate()
    fleet.until_settled(6)
    counters = [worker.tell("stats") for worker in workers]
    for worker in workers:
        worker.finish()
    assert fleet.journal.counts("effect") == dict.fromkeys(fleet.all_delivered(), 1)
    assert [count.get("lease_lost", 0) for count in counters] == [0, 0]
    assert [count["hot_enqueued"] for count in counters] == [3, 3]
