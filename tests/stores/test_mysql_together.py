"""Several at one table: claimers pass each other by, and settling and renewing never lock each other out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest

from aftercommit.events.claims import ClaimRequest, NewEvent, Settlement
from aftercommit.events.outcome import DONE, Retry
from aftercommit.runtime.threads import run
from aftercommit.stores.mysql.link import LinkTx
from aftercommit.testing.kit import LEASE, event, ids, look, settle, take
from tests.stores.kit import insert
from tests.stores.mysql_kit import Table, locked, made, store_at


@pytest.fixture
def table(mysql_url: str) -> Iterator[Table]:
    table = made(mysql_url)
    table.clear()
    yield table
    table.close()


@pytest.fixture
def store(table: Table) -> Iterator[Any]:
    store = store_at(table.url)
    run(store.open())
    yield store
    run(store.close())


def select_of(store: Any, limit: int, status: int = 0) -> tuple[str, tuple[object, ...]]:
    statement = store._sql["claim_select"]
    values = store._claim_values(ClaimRequest(owner="bob", limit=limit, lock_timeout=LEASE, deadline=0.0))
    return statement.sql, statement.bind(**values, status=status, reach=4 * limit)


def test_a_second_claimer_gets_its_batch_while_the_first_is_open(table: Table, store: Any) -> None:
    given = [event() for _ in range(100)]
    run(insert(store, *given))
    sql, values = select_of(store, 50)
    with locked(table.url, sql, *values):
        assert ids(run(take(store, limit=50))) == ids(given[50:])
    assert ids(run(take(store, limit=50))) == ids(given[:50])


def test_a_claim_locks_neither_gaps_nor_what_it_did_not_take(table: Table, store: Any) -> None:
    """Writers write, and holders settle, while a claim is open."""
    run(insert(store, *[event(f"T{number}") for number in range(10)]))
    held = run(take(store, "alice", limit=5))
    sql, values = select_of(store, 2)
    with locked(table.url, sql, *values):
        run(insert(store, *[event() for _ in range(100)]))
        for claimed in held:
            assert run(settle(store, claimed.lease, DONE))
        assert len(run(take(store, limit=200))) == 103


def test_a_row_that_is_being_settled_is_not_waited_for_by_the_keeper(table: Table, store: Any) -> None:
    run(insert(store, event(event_id="a"), event(event_id="b")))
    leases = [claimed.lease for claimed in run(take(store))]
    with locked(table.url, "SELECT * FROM outbox_event WHERE event_id = 'a' FOR UPDATE"):
        assert run(store.renew(leases, LEASE)) == {leases[1].key}
    assert run(store.renew(leases, LEASE)) == {lease.key for lease in leases}


def test_two_renewals_within_a_microsecond_both_count(table: Table, store: Any) -> None:
    """TC-500: rows that were matched, not those that were changed."""
    run(insert(store, event()))
    (claimed,) = run(take(store))
    assert table.value("SELECT COUNT(*) FROM outbox_event WHERE lease_until IS NOT NULL") == 1

    async def twice(tx: Any) -> list[int]:
        return [await tx.execute("UPDATE outbox_event SET lease_until = locked_at") for _ in range(2)]

    assert run(store.executor.transact(twice)) == [1, 1]
    assert run(settle(store, claimed.lease, DONE))


@pytest.mark.parametrize(
    "seconds", [pytest.param(0.5, id="short"), pytest.param(10.0, id="long", marks=pytest.mark.slow)]
)
def test_settling_and_renewing_side_by_side_give_no_deadlock(
    table: Table, store: Any, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And claiming, and writing, with groups in any order."""
    conflicts = conflicts_seen(store, monkeypatch)
    until = monotonic() + seconds
    held: list[Any] = []
    ended: list[Any] = []
    lock = threading.Lock()

    def over(work: Callable[[], None]) -> None:
        while monotonic() < until or (not ended and monotonic() < until + 60):
            work()

    def write() -> None:
        run(insert(store, *[event() for _ in range(100)]))

    def claim() -> None:
        rows = run(look(store, "alice", 100)).rows
        with lock:
            held.extend(row.lease for row in rows)

    def renew() -> None:
        with lock:
            leases = held[-300:][::-1]
        run(store.renew(leases, LEASE))

    def end() -> None:
        with lock:
            leases, held[:] = held[:150], held[150:]
        run(store.settle([Settlement(lease, DONE) for lease in leases[::2]]))
        run(store.settle([Settlement(lease, Retry(timedelta(0), "again")) for lease in leases[1::2]]))
        ended.extend(leases)

    with ThreadPoolExecutor(6) as threads:
        for future in [threads.submit(over, work) for work in (write, claim, renew, renew, end, end)]:
            future.result(60)
    assert conflicts == []
    assert table.value("SELECT COUNT(*) FROM outbox_event WHERE status = 1")


def conflicts_seen(store: Any, monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """Deadlocks, which the executor would try again in silence."""
    seen: list[Exception] = []
    real = LinkTx._run

    async def watched(self: Any, means: Any, sql: str, parameters: Any) -> Any:
        try:
            return await real(self, means, sql, parameters)
        except Exception as error:
            seen.append(error)
            raise

    monkeypatch.setattr(LinkTx, "_run", watched)
    return seen


def test_groups_that_share_rows_lock_them_in_one_order(table: Table, store: Any) -> None:
    """Two holders of the same rows, by mistake or after a takeover, in opposite order."""
    given = [event() for _ in range(200)]
    run(insert(store, *given))
    leases = [claimed.lease for claimed in run(take(store, limit=200))]
    barrier = threading.Barrier(2)

    def settle_all(order: int) -> Any:
        barrier.wait(20)
        return run(store.settle([Settlement(lease, DONE) for lease in leases[::order]]))

    with ThreadPoolExecutor(2) as threads:
        refused = [threads.submit(settle_all, order) for order in (1, -1)]
        assert sorted(len(each.result(30)) for each in refused) == [0, 200]


def test_born_leased_rows_of_an_open_transaction_hold_up_nobody(table: Table, store: Any) -> None:
    run(insert(store, event(event_id="free")))
    opened = run(store.executor.begin())
    run(store.insert(opened, [NewEvent(event(), 0, "alice", LEASE)]))
    assert ids(run(take(store, "bob"))) == ["free"]
    run(opened.commit())
    assert run(take(store, "bob")) == []
