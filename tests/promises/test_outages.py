"""Promise 2 when the database goes away: sessions are killed, the server is restarted, a COMMIT is cut in two.

What was reported as committed is there, what is there is delivered, and the process needs no help to go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aftercommit.ports import Tx
from aftercommit.stores.sql.execution import Fault
from tests.promises import faults
from tests.promises.harness import LASTING, QUICK, Fleet, Process
from tests.promises.nursery import Nursery
from tests.promises.places import SERVERS, places, through_drivers, through_sql_drivers, world_of
from tests.promises.proxy import Proxy
from tests.promises.sessions import kill_sessions, sessions
from tests.promises.waiting import pause, until
from tests.servers import PrivateServer

#: Whose errors a caller may meet while the database is away.
KNOWN = ("aftercommit.", "redis.", "psycopg.", "asyncpg.", "pymysql.", "asyncmy.")

#: More than this many sessions are none that one process needs.
MANY = 25


def works_without_errors_again(fleet: Fleet, worker: Process) -> None:
    """Its pools are whole, its services go on, all is delivered, and it leaves nobody behind."""
    assert worker.tell("write_on", count=20) == []
    until(lambda: not worker.tell("health"), what="health")
    fleet.until_settled(len(fleet.statuses()))
    assert 0 < len(sessions(fleet.table)) < MANY
    until(lambda: worker.tell("stats")["unsettled"] == 0, what="the answer to the last settle")
    worker.finish()
    fleet.all_delivered()
    until(lambda: not sessions(fleet.table), what="the end of all sessions")


def only_known(errors: list[str]) -> bool:
    return all(error.startswith(("builtins.Connection", *KNOWN)) for error in errors)


@through_drivers
def test_promise_02_nothing_lost_when_all_sessions_are_killed_again_and_again(fleet: Fleet, runtime: str) -> None:
    """F83: while it writes, delivers, settles and claims."""
    worker = fleet.worker(runtime, hot_queue_capacity=3, **QUICK)
    worker.tell("start")
    worker.send("write_on")
    for count in range(20, 140, 20):
        fleet.until_effects(count)
        until(lambda: kill_sessions(fleet.table), what="sessions to kill")
    fleet.open_gate()
    assert only_known(worker.answer(60))
    works_without_errors_again(fleet, worker)


@through_drivers
def test_promise_02_nothing_lost_when_sessions_are_killed_that_nobody_uses(fleet: Fleet, runtime: str) -> None:
    """The next transaction begins on a new connection, and the caller notices nothing."""
    writer = fleet.worker(runtime, handler=None)
    writer.tell("write", count=3)
    assert kill_sessions(fleet.table)
    until(lambda: not sessions(fleet.table), what="the end of all sessions")
    assert writer.tell("write_on", count=3) == []
    writer.finish()
    fleet.delivered_by_this_process(runtime)
    assert len(fleet.all_delivered()) == 6


@through_sql_drivers
def test_promise_02_nothing_lost_when_a_commit_is_cut_in_two(fleet: Fleet, runtime: str) -> None:
    """F03: before the server hears of it nothing is done, when only the answer is lost all is. Nobody can tell."""
    assert fleet.url is not None
    proxy = Proxy(fleet.url, every=7)
    fleet.url = proxy.url
    worker = fleet.worker(runtime, **LASTING)
    worker.tell("start")
    errors = worker.tell("write_on", count=100)
    assert errors
    assert only_known(errors)
    assert min(proxy.written.unheard, proxy.written.unanswered) > 3
    began, ok, committed = fleet.journal.ids("begin"), fleet.journal.ids("ok"), set(fleet.statuses())
    assert ok <= committed <= began
    assert committed - ok, "a commit whose answer was lost has been done"
    assert began - committed, "a commit that was never heard of has not"

    proxy.is_whole = True
    assert worker.tell("stats")["hot_enqueued"] == len(ok), "an event whose commit was not answered is nobody's to send"
    fleet.until_settled(len(ok))
    assert fleet.table.change("UPDATE outbox_event SET lease_until = 0 WHERE status = 0") == len(committed - ok)
    works_without_errors_again(fleet, worker)
    proxy.close()


@through_sql_drivers
def test_promise_04_fenced_a_transaction_of_the_store_that_stands_still_is_ended_by_the_server(
    fleet: Fleet, runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its locks go with it; its executor lends the dead connection to nobody."""
    faults.limit_standstill(monkeypatch.setattr)
    world = world_of(fleet.place(runtime))

    async def scenario() -> None:
        executor = world.outbox()._store.executor

        async def stand_still(tx: Tx) -> None:
            await tx.fetch("SELECT 1")
            pause(1.5)  # of the loop as well
            await tx.fetch("SELECT 1")

        with pytest.raises(Exception) as caught:  # noqa: PT011 (each driver has its own)
            await executor.transact(stand_still)
        assert executor.fault_of(caught.value) is Fault.UNREACHABLE
        assert len(await executor.fetch("SELECT 1")) == 1

    world.run(scenario)
    until(lambda: not sessions(fleet.table), what="the end of all sessions")


@pytest.fixture(params=places(*((place,) for place in SERVERS)), ids="-".join)
def way(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A private server, and a runtime."""
    database, runtime = request.param
    return database, runtime


@pytest.fixture
def server(request: pytest.FixtureRequest, way: tuple[str, str]) -> PrivateServer:
    server: PrivateServer = request.getfixturevalue(f"private_{way[0]}")
    return server


@pytest.fixture
def private_fleet(nursery: Nursery, tmp_path: Path, server: PrivateServer, way: tuple[str, str]) -> Iterator[Fleet]:
    fleet = Fleet(nursery, tmp_path, way[0], server.url)
    yield fleet
    fleet.close()


@pytest.mark.redis_settings(appendonly="yes", appendfsync="always")
def test_promise_02_nothing_lost_when_the_server_is_restarted_under_load(
    private_fleet: Fleet, server: PrivateServer, way: tuple[str, str]
) -> None:
    """F83: once in order, once as after a crash."""
    fleet = private_fleet
    worker = fleet.worker(way[1], **QUICK)
    worker.tell("start")
    worker.send("write_on")
    for is_immediate in (False, True):
        fleet.until_effects(len(fleet.journal.ids("effect")) + 20)
        assert sessions(fleet.table)
        server.stop(immediate=is_immediate)
        server.start()
        fleet.look_anew()
    fleet.until_effects(len(fleet.journal.ids("effect")) + 20)
    fleet.open_gate()
    assert only_known(worker.answer(60))
    works_without_errors_again(fleet, worker)
