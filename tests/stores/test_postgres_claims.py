"""Claimers, settlers and users on one table: nobody waits for another, and nobody gets what another has."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from aftercommit.events.claims import ClaimRequest, Settlement
from aftercommit.events.outcome import DONE, Retry
from aftercommit.stores.postgres.executor import PostgresExecutor
from aftercommit.stores.sql.execution import Fault
from aftercommit.testing.kit import LEASE, ids, take
from tests.stores.postgres_kit import Table, Way
from tests.support import PATIENCE


class Beside(threading.Thread):
    """A scenario of stores in a thread, with a loop of its own if they want one."""

    def __init__(self, way: Way, scenario: Callable[[], Any]) -> None:
        super().__init__()
        self._way, self._scenario = way, scenario
        self._outcome: list[tuple[Any, BaseException | None]] = []
        self.start()

    def run(self) -> None:
        try:
            self._outcome.append((self._way.run(self._scenario), None))
        except BaseException as error:
            self._outcome.append((None, error))

    def result(self) -> Any:
        self.join(PATIENCE)
        assert self._outcome, "it hangs"
        value, error = self._outcome[0]
        if error is not None:
            raise error
        return value


@contextmanager
def user(table: Table) -> Iterator[Any]:
    """Somebody's open transaction."""
    with psycopg.connect(table.url) as connection:
        yield connection
        connection.rollback()


def until_waiting(table: Table, way: Way) -> None:
    """A statement of the store waits for a lock."""
    waits = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE application_name = %s AND datname = current_database() AND wait_event_type = 'Lock'"
    )
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.005)):
        if table.value(waits, way.mark):
            return
        pause.wait(0.005)
    raise AssertionError("nobody waits")


# ---------------------------------------------------------------- claims


def test_the_second_claimer_gets_its_batch_while_the_first_is_open(way: Way, postgres_table: Table) -> None:
    postgres_table.fill("due", 300)

    async def scenario() -> None:
        async with way.opened() as store:
            request = ClaimRequest(owner="alice", limit=50, lock_timeout=LEASE, deadline=0.0)
            statement = store._sql["claim"]
            first = await store.executor.begin()
            try:
                rows = await first.fetch(statement.sql, statement.bind(**store._claim_values(request)))
                assert [row[1] for row in sorted(rows)] == [f"due-{n}" for n in range(1, 51)]
                assert ids(await take(store, "bob", limit=50)) == [f"due-{n}" for n in range(51, 101)]
                await first.commit()
            finally:
                await first.end()
            assert ids(await take(store, "carol", limit=50)) == [f"due-{n}" for n in range(101, 151)]

    way.run(scenario)


@pytest.mark.parametrize("count", [2, 4])
def test_claimers_that_begin_at_once_share_the_rows(way: Way, postgres_table: Table, count: int) -> None:
    """Each in a thread of its own, again and again from one line; what each gets is in order of position."""
    postgres_table.fill("due", 400)
    line = threading.Barrier(count)
    taken: dict[str, list[str]] = {f"owner-{number}": [] for number in range(count)}

    async def claimer(owner: str) -> None:
        async with way.opened() as store:
            for _ in range(5):
                line.wait(PATIENCE)
                rows = await take(store, owner, limit=20)
                assert [row.position for row in rows] == sorted(row.position for row in rows)
                taken[owner] += ids(rows)

    for thread in [Beside(way, lambda owner=owner: claimer(owner)) for owner in taken]:
        thread.result()
    found = [event_id for mine in taken.values() for event_id in mine]
    assert len(found) == len(set(found)) == count * 100
    holders = {row["event_id"]: row["locked_by"] for row in postgres_table.rows() if row["locked_by"]}
    assert holders == {event_id: owner for owner, mine in taken.items() for event_id in mine}
    assert {row["lease_epoch"] for row in postgres_table.rows()} <= {0, 1}


def test_rows_that_a_user_has_locked_are_passed_over(way: Way, postgres_table: Table) -> None:
    postgres_table.fill("due", 10)

    async def scenario() -> None:
        async with way.opened() as store:
            with user(postgres_table) as somebody:
                somebody.execute("SELECT * FROM outbox_event WHERE event_id IN ('due-1', 'due-3') FOR UPDATE")
                assert ids(await take(store, "alice", limit=3)) == ["due-2", "due-4", "due-5"]
            assert ids(await take(store, "bob", limit=3)) == ["due-1", "due-3", "due-6"]

    way.run(scenario)


def test_a_row_that_moved_while_it_was_claimed_is_claimed_once(way: Way, postgres_table: Table) -> None:
    """Users may touch rows beside claims: no row is lost, and none has two holders."""
    postgres_table.fill("due", 200)
    stop = threading.Event()

    def meddle() -> None:
        with psycopg.connect(postgres_table.url, autocommit=True) as connection:
            while not stop.is_set():
                connection.execute(
                    "UPDATE outbox_event SET tenant_id = 't' WHERE event_id = 'due-' || %s", (random.randint(1, 200),)
                )

    meddler = threading.Thread(target=meddle)
    meddler.start()
    taken: list[str] = []

    async def claimer(owner: str) -> None:
        async with way.opened() as store:
            for _ in range(400):
                taken.extend(ids(await take(store, owner, limit=5)))
                if len(taken) >= 200:
                    break

    try:
        for thread in [Beside(way, lambda owner=owner: claimer(owner)) for owner in ("alice", "bob")]:
            thread.result()
    finally:
        stop.set()
        meddler.join()
    assert sorted(taken) == sorted(f"due-{n}" for n in range(1, 201))
    assert {row["lease_epoch"] for row in postgres_table.rows()} == {1}


# ---------------------------------------------------------------- settles and renewals


@pytest.mark.parametrize("seconds", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_settles_and_renewals_in_any_order_never_deadlock(way: Way, postgres_table: Table, seconds: int) -> None:
    """Two keepers of all rows beside two settlers of half of them each; every group is shuffled."""
    table = postgres_table
    table.fill("held", 2_000 * seconds)

    async def claimed() -> list[Any]:
        async with way.opened() as store:
            return [row.lease for row in await take(store, "alice", limit=2_000 * seconds)]

    leases = way.run(claimed)
    stop = time.monotonic() + seconds
    counts = {"renewed": 0, "settled": 0}

    async def keeper() -> None:
        async with way.opened() as store:
            while time.monotonic() < stop and counts["settled"] < len(leases):
                counts["renewed"] += len(await store.renew(random.sample(leases, 200), LEASE))

    async def settler(mine: list[Any]) -> None:
        random.shuffle(mine)
        async with way.opened() as store:
            while mine and time.monotonic() < stop:
                group = [mine.pop() for _ in range(10)]
                outcome = random.choice([DONE, Retry(timedelta(0), "again")])
                assert not await store.settle([Settlement(lease, outcome) for lease in group])
                counts["settled"] += len(group)

    before = deadlocks(table)
    settlers = [lambda: settler(leases[::2]), lambda: settler(leases[1::2])]
    for thread in [Beside(way, work) for work in (keeper, keeper, *settlers)]:
        thread.result()
    assert min(counts.values()) > 0
    assert deadlocks(table) == before


def deadlocks(table: Table) -> int:
    """Sessions report it at once, for it is rare."""
    return int(table.value("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"))


# ---------------------------------------------------------------- conflicts


@pytest.fixture
def conflicts(way: Way, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The states of the conflicts that were met, in order."""
    met: list[str] = []
    plain = PostgresExecutor.fault_of

    def noted(executor: PostgresExecutor, error: Exception) -> Fault:
        fault = plain(executor, error)
        if fault is Fault.CONFLICT:
            met.append(error.sqlstate)  # type: ignore[attr-defined]
        return fault

    monkeypatch.setattr(PostgresExecutor, "fault_of", noted)
    return met


def test_a_settle_that_lost_a_deadlock_is_done_again(way: Way, postgres_table: Table, conflicts: list[str]) -> None:
    postgres_table.fill("held", 2)
    claimed = threading.Event()
    go = threading.Event()

    async def settling() -> Any:
        async with way.opened() as store:
            rows = await take(store)
            claimed.set()
            assert go.wait(PATIENCE)
            return await store.settle([Settlement(row.lease, DONE) for row in rows])

    thread = Beside(way, settling)
    assert claimed.wait(PATIENCE)
    with user(postgres_table) as somebody:
        somebody.execute("SET deadlock_timeout = '1min'")  # so that the other one finds out
        somebody.execute("UPDATE outbox_event SET tenant_id = 't' WHERE event_id = 'held-2'")
        go.set()
        until_waiting(postgres_table, way)
        somebody.execute("UPDATE outbox_event SET tenant_id = 't' WHERE event_id = 'held-1'")
        somebody.commit()
    assert not thread.result()
    assert set(conflicts) == {"40P01"}
    assert {(row["status"], row["tenant_id"]) for row in postgres_table.rows()} == {(1, "t")}


def serializable(way: Way) -> str:
    """As a role has it whose default somebody has raised."""
    if way.driver == "asyncpg":
        return f"{way.url}&default_transaction_isolation=serializable"
    return f"{way.url}&options=-c%20default_transaction_isolation%3Dserializable"


def test_a_serialisation_failure_is_done_again(way: Way, postgres_table: Table, conflicts: list[str]) -> None:
    postgres_table.fill("held", 1)
    claimed, go = threading.Event(), threading.Event()

    async def settling() -> Any:
        async with way.opened(serializable(way)) as store:
            rows = await take(store)
            claimed.set()
            assert go.wait(PATIENCE)
            return await store.settle([Settlement(row.lease, DONE) for row in rows])

    thread = Beside(way, settling)
    assert claimed.wait(PATIENCE)
    with user(postgres_table) as somebody:
        somebody.execute("UPDATE outbox_event SET tenant_id = 't'")
        go.set()
        until_waiting(postgres_table, way)
        somebody.commit()
    assert not thread.result()
    assert conflicts == ["40001"]
    assert [(row["status"], row["tenant_id"]) for row in postgres_table.rows()] == [(1, "t")]


def test_claimers_of_a_serializable_role_share_the_rows(way: Way, postgres_table: Table) -> None:
    postgres_table.fill("due", 100)
    line = threading.Barrier(3)
    taken: list[str] = []

    async def claimer(owner: str) -> None:
        async with way.opened(serializable(way)) as store:
            line.wait(PATIENCE)
            while rows := await take(store, owner, limit=7):
                taken.extend(ids(rows))
                assert not await store.settle([Settlement(row.lease, DONE) for row in rows])

    for thread in [Beside(way, lambda owner=owner: claimer(owner)) for owner in "abc"]:
        thread.result()
    assert len(taken) == len(set(taken))
    assert sorted(taken) == sorted(row["event_id"] for row in postgres_table.rows() if row["status"] == 1)


@pytest.mark.parametrize(("is_alone", "then"), [(True, "off"), (False, "on")])
@pytest.mark.parametrize("name", ["claim", "claim_keys"])
def test_the_commit_of_a_claim_waits_for_the_disk_only_when_it_is_somebodys(
    way: Way, postgres_table: Table, name: str, is_alone: bool, then: str
) -> None:
    """A lease need not outlive a crash of the database; what a user has written in the same transaction must."""

    async def scenario() -> None:
        async with way.opened() as store:
            request = ClaimRequest("me", 10, timedelta(seconds=30), deadline=0.0)
            runs = {"stops": True, "blocks": True, "run": 1, "reach": 1, "partitions": "{0}", "keys": "{k0}"}
            values = {**store._claim_values(request), **runs, "is_alone": is_alone}
            tx = await store.executor.begin()
            await tx.execute("SET LOCAL synchronous_commit TO on")  # databases of tests have it off
            statement = store._sql[name]
            await tx.fetch(statement.sql, statement.bind(**values))
            (row,) = await tx.fetch("SELECT current_setting('synchronous_commit')")
            assert row[0] == then
            await tx.end()

    postgres_table.fill("due", 10)
    postgres_table.rows()
    with psycopg.connect(postgres_table.url, autocommit=True) as somebody:
        somebody.execute("UPDATE outbox_event SET event_key = 'k0', partition_no = 0")
    way.run(scenario)
