"""Promise 5: several processes on one database, and each event is delivered once while nobody dies."""

from __future__ import annotations

import contextlib
import sqlite3
import threading

import pytest

from tests.promises.harness import LASTING, Fleet


@pytest.mark.parametrize(
    ("worlds", "each"),
    [
        (("threads", "threads"), 1000),
        (("asyncio", "asyncio"), 1000),
        (("threads", "asyncio", "threads", "asyncio"), 300),
    ],
    ids=["two of threads", "two of asyncio", "two of each"],
)
def test_promise_05_one_holder_each_event_is_delivered_once_by_several_processes(
    fleet: Fleet, worlds: tuple[str, ...], each: int
) -> None:
    """F91: all of them write, deliver hot, overflow and poll at the same time."""
    workers = [fleet.worker(world, **{**LASTING, "hot_queue_capacity": 3}) for world in worlds]
    owners = {worker.tell("start") for worker in workers}
    assert len(owners) == len(workers)
    batches, size = each // 10, 5
    for round_ in range(batches):
        for worker in workers:
            worker.send("write", count=size, first=round_ * 10)
            worker.send("write_together", count=size, first=round_ * 10 + size)
    for worker in workers:
        for _ in range(2 * batches):
            worker.answer(60)
    total = each * len(workers)
    fleet.until_settled(total)
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
