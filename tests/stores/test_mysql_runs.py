"""Runs of keys on MySQL and MariaDB, with others between every two steps of a claim."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

import pytest

from aftercommit.events.claims import NewEvent, Settlement
from aftercommit.events.order import HeadState, KeyClaimRequest, KeyRule, OrderKey
from aftercommit.events.outcome import DONE, RELEASE, Retry
from aftercommit.runtime.threads import run
from aftercommit.stores.sql.runs import Candidate
from aftercommit.testing.kit import HOUR, LEASE, event, ids, settle
from aftercommit.testing.runs import PARTITION, PASSES, STRICT, claim_keys, lay, line, look_over, run_of, states
from tests.conftest import on_both_mysqls
from tests.stores.kit import insert
from tests.stores.mysql_kit import Table, locked, made, store_at
from tests.stores.test_mysql_together import conflicts_seen

pytestmark = on_both_mysqls


@pytest.fixture
def table(mysql_url: str) -> Iterator[Table]:
    table = made(mysql_url)
    table.clear()
    yield table
    table.close()


@pytest.fixture
def stores(table: Table) -> Iterator[list[Any]]:
    """Alice's and Bob's."""
    stores = [store_at(table.url) for _ in range(2)]
    for store in stores:
        run(store.open())
    yield stores
    for store in stores:
        run(store.close())


def between(store: Any, meanwhile: Callable[[], Any]) -> list[int]:
    """Do something when the store has listed the rows of its next run and not locked them; how many there were."""
    real, seen = store._runs._candidates, list[int]()

    async def candidates(tx: Any, request: KeyClaimRequest, values: Any) -> list[Candidate]:
        found: list[Candidate] = await real(tx, request, values)
        if not seen:
            seen.append(len(found))
            meanwhile()
        return found

    store._runs._candidates = candidates
    return seen


# ---------------------------------------------------------------- what changes between the list and the locks


@pytest.mark.parametrize("run_length", [1, 2, 4])
@pytest.mark.parametrize("outcome", [None, DONE, RELEASE, Retry(LEASE, "no")], ids=lambda each: type(each).__name__)
def test_a_head_that_was_leased_meanwhile_is_not_passed_by(stores: list[Any], outcome: Any, run_length: int) -> None:
    """Even when it is done by then: what follows it may be leased by the same."""
    alice, bob = stores
    given = run(line(alice, "a", 4))

    def meanwhile() -> None:
        rows = run(claim_keys(bob, owner="bob", run=run_length)).rows
        assert ids(rows) == ids(given[:run_length])
        if outcome is not None:
            assert run(settle(bob, rows[0].lease, outcome))

    seen = between(alice, meanwhile)
    assert run(run_of(alice)) == []
    assert seen == [4], "it had listed them"


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_run_ends_at_the_first_row_that_changed_meanwhile(table: Table, stores: list[Any], number: int) -> None:
    alice, _ = stores
    given = run(line(alice, "a", 4))
    later = table.now() + HOUR
    between(alice, lambda: table.change(given[number].event_id, available_at=later))
    assert run(run_of(alice)) == ids(given[:number])


@pytest.mark.parametrize("number", [0, 2])
def test_a_run_ends_at_the_first_row_that_is_locked(table: Table, stores: list[Any], number: int) -> None:
    given = run(line(stores[0], "a", 4))
    with locked(table.url, "SELECT 1 FROM outbox_event WHERE event_id = %s FOR UPDATE", given[number].event_id):
        assert run(run_of(stores[0])) == ids(given[:number])


def test_a_row_that_is_passed_over_and_falls_due_meanwhile_is_not_leased_beside_the_run(
    table: Table, stores: list[Any]
) -> None:
    """Alice sees the head due; Bob, a moment before, did not, and leases what follows it."""
    alice, bob = stores
    given = run(line(alice, "a", 3))
    later, due = table.now() + HOUR, table.now() - 1

    def bobs_turn() -> None:
        table.change(given[0].event_id, available_at=later)
        assert run(run_of(bob, owner="bob", rule=PASSES, run=1)) == ids(given[1:2])
        table.change(given[0].event_id, available_at=due)

    assert between(alice, bobs_turn) == []
    assert run(run_of(alice, rule=PASSES, run=1)) == []
    assert run(run_of(alice, rule=PASSES, run=1)) == [], "nor later, as long as Bob is at it"


# ---------------------------------------------------------------- beside each other


def test_two_who_have_listed_the_same_rows_do_not_share_a_key(table: Table, stores: list[Any]) -> None:
    given = {key: run(line(stores[0], key, 5)) for key in "abcdefgh"}
    barrier = threading.Barrier(2)
    for store in stores:
        between(store, lambda: barrier.wait(20))
    with ThreadPoolExecutor(2) as threads:
        keys = {"alice": tuple(given), "bob": tuple(reversed(given))}
        claims = [threads.submit(run, claim_keys(store, *keys[owner], owner=owner, run=3))
                  for store, owner in zip(stores, keys, strict=True)]  # fmt: skip
        taken = [each.result(30).rows for each in claims]
    for key, events in given.items():
        mine, others = ([row.event.event_id for row in rows if row.event.key == key] for rows in taken)
        assert not mine or not others, "one of the two, or neither"
        assert mine + others == ids(events[: len(mine + others)]), "from the head on"


def test_a_run_locks_neither_gaps_nor_rows_that_it_does_not_take(table: Table, stores: list[Any]) -> None:
    """Writers of its key write, and holders settle, while the claim is open."""
    alice, bob = stores
    given = run(line(alice, "a", 4))
    held = run(line(alice, "b", 2))
    leases = [row.lease for row in run(claim_keys(bob, "b", owner="bob")).rows]
    sql, values = lock_of(alice, table, given[:2])
    with locked(table.url, sql, *values) as cursor:
        assert len(cursor.fetchall()) == 2
        run(lay(bob, event(key="a"), event(key="b")))
        assert run(bob.settle([Settlement(lease, DONE) for lease in leases])) == ()
        assert run(run_of(bob, "a", "b", owner="bob")) == [table.rows()[-1]["event_id"]], "all but its key"
        assert run(bob.records.discard(held[0].event_id, None, "no")) == 0
    assert len(run(run_of(alice, "a"))) == 5


def lock_of(store: Any, table: Table, events: list[Any]) -> tuple[str, tuple[object, ...]]:
    positions = [row["position"] for row in table.rows() if row["event_id"] in ids(events)]
    statement = store._sql["run_lock"]
    return statement.sql, statement.bind(owner="alice", candidates=str([[position, 0, 1] for position in positions]))


def test_a_walk_waits_for_nobody_and_locks_nothing(table: Table, stores: list[Any]) -> None:
    given = run(line(stores[0], "a", 2))
    with locked(table.url, "UPDATE outbox_event SET attempts = 1"):
        assert len(run(look_over(stores[0])).heads) == 1
    with locked(table.url, *heads_of(stores[0])) as cursor:
        assert len(cursor.fetchall()) == 1
        run(lay(stores[1], event(key="a")))
        assert run(run_of(stores[1]))[:2] == ids(given)


def heads_of(store: Any) -> tuple[Any, ...]:
    statement = store._sql["walk"]
    values = {"first": PARTITION, "after_key": "", "others": (-1,), "rows": 1}
    return (statement.sql, *statement.bind(**values))


def test_events_that_are_not_committed_do_not_come_before_those_that_are(stores: list[Any]) -> None:
    """Overlapping writers have no order; but what was committed first is never left out by a later one."""
    alice, bob = stores
    opened = run(bob.executor.begin())
    run(insert_in(bob, opened, early := event(key="a")))
    given = run(line(alice, "a", 2))
    assert run(run_of(alice, run=1)) == ids(given[:1])
    run(opened.commit())
    assert run(run_of(alice)) == [early.event_id], "behind it somebody is at work"


async def insert_in(store: Any, opened: Any, *events: Any) -> None:
    await store.insert(opened, [NewEvent(each, PARTITION) for each in events])


@pytest.mark.parametrize(
    "seconds", [pytest.param(0.5, id="short"), pytest.param(10.0, id="long", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("rule", [STRICT, PASSES], ids=["stops", "passes"])
def test_runs_writers_and_keepers_side_by_side_give_no_deadlock_and_no_disorder(
    table: Table, stores: list[Any], seconds: float, rule: KeyRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    conflicts = conflicts_seen(stores[0], monkeypatch)
    until, lock = monotonic() + seconds, threading.Lock()
    keys = [OrderKey(PARTITION, f"k{number}") for number in range(10)]
    order: dict[str, list[int]] = {key.key: [] for key in keys}
    running: set[str] = set()

    def over(work: Callable[[Any, str], None], store: Any, name: str) -> None:
        while monotonic() < until or (not any(order.values()) and monotonic() < until + 60):
            work(store, name)

    def write(store: Any, _: str) -> None:
        run(lay(store, *[event(key=key.key) for key in keys for _ in range(3)]))

    def deliver(store: Any, name: str) -> None:
        rows = run(store.claim_keys(KeyClaimRequest(name, keys, 5, LEASE, 0.0, rule))).rows
        mine = {row.event.key for row in rows}
        with lock:
            assert not mine & running, "two at one key"
            running.update(mine)
            for row in rows:
                order[row.event.key].append(row.position)
        run(store.renew([row.lease for row in rows], LEASE))
        with lock:
            running.difference_update(mine)
        assert not run(store.settle([Settlement(row.lease, DONE) for row in rows]))

    with ThreadPoolExecutor(5) as threads:
        jobs = [(write, 0, "w"), (deliver, 0, "a"), (deliver, 1, "b"), (deliver, 1, "c"), (deliver, 0, "d")]
        for future in [threads.submit(over, work, stores[number], name) for work, number, name in jobs]:
            future.result(60)
    assert conflicts == []
    assert all(positions == sorted(positions) for positions in order.values())
    assert sum(map(len, order.values()))


def test_a_claim_of_many_keys_goes_by_several_statements(stores: list[Any]) -> None:
    given = [event(key=f"k{number:03}") for number in range(250)]
    run(insert(stores[0]))
    run(lay(stores[0], *given, *[event(key="k100"), event(key="k099")]))
    taken = run(run_of(stores[0], *[each.key for each in given]))
    assert taken[:250] == ids(given)
    assert len(taken) == 252


# ---------------------------------------------------------------- walks


@pytest.mark.parametrize("limit", [5, 37, 500])
def test_a_walk_in_pieces_finds_every_key_once_in_the_order_of_its_partitions(stores: list[Any], limit: int) -> None:
    """Over keys that are longer than a page, as long as one, and short ones; as one statement cannot have them."""
    lengths = {"b": 250, "a": 1, "a ": 100, "c": 10, "B": 11, **{f"d{number:03}": 1 for number in range(150)}}
    for partition in (9, 3, 7):
        run(
            lay(
                stores[0],
                *[event(key=key) for key, length in lengths.items() for _ in range(length)],
                partition=partition,
            )
        )
    partitions, found, after = (9, 200, 3, 7, 8), list[OrderKey](), None
    for _ in range(1000):
        heads = run(look_over(stores[0], *partitions, limit=limit, after=after))
        assert len(heads.heads) <= limit
        found += [head.key for head in heads.heads]
        after = heads.after
        if after is None:
            break
    keys = sorted(lengths, key=str.encode)
    assert found == [OrderKey(partition, key) for partition in (9, 3, 7) for key in keys]


def test_the_first_dead_row_of_a_key_counts(table: Table, stores: list[Any]) -> None:
    given = {key: run(line(stores[0], key, 3)) for key in "ab"}
    for each in (given["a"][0], given["a"][2], given["b"][2]):
        table.change(each.event_id, status=3, done_at=table.now())
    assert run(states(stores[0])) == {"a": HeadState.BLOCKED, "b": HeadState.READY}


def test_a_head_that_is_finished_while_a_walk_looks_does_not_end_it(table: Table, stores: list[Any]) -> None:
    """As many heads as were asked for come back, or the walk would be taken for over."""
    given = [run(line(stores[0], key, 1)) for key in "abc"]
    real = stores[0]._runs._walk

    async def walked(*arguments: Any, **keywords: Any) -> Any:
        found = await real(*arguments, **keywords)
        assert table.execute("DELETE FROM outbox_event WHERE event_id = %s", given[0][0].event_id) == 1
        return found

    stores[0]._runs._walk = walked
    heads = run(look_over(stores[0], limit=2))
    assert [head.key.key for head in heads.heads] == ["a", "b"]
    assert heads.after == OrderKey(PARTITION, "b")
