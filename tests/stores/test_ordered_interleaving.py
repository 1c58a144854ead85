"""Two claimers of one key on PostgreSQL, at the worst moments: one has its snapshot, and the other changes the rows."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from aftercommit.events.claims import Settlement
from aftercommit.events.order import KeyRule
from aftercommit.events.outcome import DONE, RELEASE, Dead, Outcome, Retry
from aftercommit.events.records import EventFilter
from aftercommit.stores.sql.statements import Statement
from aftercommit.testing.kit import HOUR, LEASE, ids, settle
from aftercommit.testing.runs import CONTINUES, PASSES, STRICT, claim_keys, line, run_of
from aftercommit.testing.sql import locked
from tests.stores.postgres_kit import Table, Way
from tests.stores.test_postgres_claims import Beside, until_waiting

#: The advisory locks at which statements wait.
FIRST, SECOND = 4711, 4712

#: What somebody does to the rows of the key between the snapshot and the locks of the claim: `meanwhile(store, given)`.
Meanwhile = Callable[[Any, list[Any]], Awaitable[None]]


@pytest.fixture
def way(postgres_table: Table) -> Way:
    """One driver is enough: the statement is the same for all."""
    return Way("psycopg", postgres_table)


def altered(store: Any, before: str, after: str) -> Any:
    """The store, whose claim reads otherwise."""
    statement: Statement = store._sql["claim_keys"]
    assert before in statement.sql
    sql = statement.sql.replace(before, after)
    store._sql = store._runs._sql = {**store._sql, "claim_keys": Statement(sql, statement.names)}
    return store


def paused(store: Any, gate: int = FIRST) -> Any:
    """Waits at the gate when it has its snapshot."""
    wait = f"(SELECT pg_advisory_xact_lock_shared({gate})) AS gate CROSS JOIN unnest("
    return altered(store, "unnest(", wait)


@contextmanager
def closed(table: Table, *gates: int) -> Iterator[Callable[[int], None]]:
    """Nobody passes the gates before they are opened."""
    with psycopg.connect(table.url, autocommit=True) as keeper:
        for gate in gates:
            keeper.execute("SELECT pg_advisory_lock(%s)", (gate,))
        yield lambda gate: keeper.execute("SELECT pg_advisory_unlock(%s)", (gate,)) and None


def claimed_at_the_gate(
    way: Way, table: Table, meanwhile: Meanwhile, *, rule: KeyRule = STRICT, before: Meanwhile | None = None
) -> tuple[list[str], list[str]]:
    """The ids of the key's events, and of those that a claim leased which had its snapshot before `meanwhile`."""

    async def prepared() -> list[Any]:
        async with way.opened() as store:
            given = await line(store, "a", 5)
            if before is not None:
                await before(store, given)
            return given

    async def claiming() -> list[str]:
        async with way.opened() as store:
            return await run_of(paused(store), owner="bob", rule=rule)

    async def others() -> None:
        async with way.opened() as store:
            await meanwhile(store, given)

    given = way.run(prepared)
    with closed(table, FIRST) as let_through:
        thread = Beside(way, claiming)
        until_waiting(table, way)
        way.run(others)
        let_through(FIRST)
        return ids(given), thread.result()


def leases(table: Table) -> list[str | None]:
    return [row["locked_by"] for row in table.rows()]


# ---------------------------------------------------------------- between the snapshot and the locks


async def nothing(store: Any, given: list[Any]) -> None:
    """Nobody does anything."""


def taken(run: int, *outcomes: Outcome) -> Meanwhile:
    """So many rows are leased, and the first of them are settled."""

    async def meanwhile(store: Any, given: list[Any]) -> None:
        rows = (await claim_keys(store, owner="alice", run=run)).rows
        assert len(rows) == run
        for row, outcome in zip(rows, outcomes, strict=False):
            assert await settle(store, row.lease, outcome)

    return meanwhile


def test_without_anybody_else_the_claim_at_the_gate_gets_its_run(way: Way, postgres_table: Table) -> None:
    """So that the tests below can fail."""
    given, got = claimed_at_the_gate(way, postgres_table, nothing)
    assert got == given


LATER = timedelta(hours=1)


@pytest.mark.parametrize(
    "meanwhile",
    [
        pytest.param(taken(1), id="one is leased"),
        pytest.param(taken(2), id="two are leased"),
        pytest.param(taken(5), id="all are leased"),
        pytest.param(taken(1, DONE), id="one is done"),
        pytest.param(taken(2, DONE, DONE), id="two are done"),
        pytest.param(taken(2, DONE), id="one is done, one is leased"),
        pytest.param(taken(1, Retry(LATER, "no")), id="one has failed"),
        pytest.param(taken(1, Dead("no")), id="one is dead"),
        pytest.param(taken(1, RELEASE), id="one was given back"),
        pytest.param(taken(1, Retry(timedelta(0), "no")), id="one has failed and is due"),
    ],
)
@pytest.mark.parametrize("rule", [STRICT, CONTINUES, PASSES], ids=["strict", "continues", "passes"])
def test_whatever_happens_to_the_head_nothing_behind_it_is_leased(
    way: Way, postgres_table: Table, meanwhile: Meanwhile, rule: KeyRule
) -> None:
    _, got = claimed_at_the_gate(way, postgres_table, meanwhile, rule=rule)
    assert got == []
    assert "bob" not in leases(postgres_table)


def test_a_row_in_the_middle_ends_the_run(way: Way, postgres_table: Table) -> None:
    async def meanwhile(store: Any, given: list[Any]) -> None:
        postgres_table.change(given[2].event_id, status=1, done_at=postgres_table.now())

    given, got = claimed_at_the_gate(way, postgres_table, meanwhile)
    assert got == given[:2]


@pytest.mark.parametrize("late", ["done", "retry", "retry later", "renew", "release"])
def test_a_late_holder_of_the_head_keeps_what_is_behind_it_from_being_leased(
    way: Way, postgres_table: Table, late: str
) -> None:
    """Its lease has run out, so the claim has listed the row; its mark comes first, and raises no epoch."""
    held: list[Any] = []

    async def before(store: Any, given: list[Any]) -> None:
        held.extend((await claim_keys(store, owner="alice", run=1)).rows)
        postgres_table.change(given[0].event_id, lease_until=postgres_table.now() - 1)

    async def meanwhile(store: Any, given: list[Any]) -> None:
        if late == "renew":
            assert await store.renew([held[0].lease], LEASE)
            return
        outcome = {
            "done": DONE,
            "retry": Retry(timedelta(0), "no"),
            "retry later": Retry(LATER, "no"),
            "release": RELEASE,
        }[late]
        assert not await store.settle([Settlement(held[0].lease, outcome)])

    _, got = claimed_at_the_gate(way, postgres_table, meanwhile, before=before)
    assert got == []
    assert leases(postgres_table) == ["alice" if late == "renew" else None, None, None, None, None]


def test_a_dead_head_that_is_replayed_meanwhile_keeps_its_key_blocked_for_this_claim(
    way: Way, postgres_table: Table
) -> None:
    async def before(store: Any, given: list[Any]) -> None:
        postgres_table.change(given[0].event_id, status=3, done_at=postgres_table.now())

    async def meanwhile(store: Any, given: list[Any]) -> None:
        assert (await store.records.replay_after(EventFilter(), 0, 10))[0] == 1

    given, got = claimed_at_the_gate(way, postgres_table, meanwhile, before=before)
    assert got == []
    again: list[str] = way.run(lambda: _run_of(way))
    assert again == given


async def _run_of(way: Way) -> list[str]:
    async with way.opened() as store:
        return await run_of(store)


# ---------------------------------------------------------------- between two locks


def test_two_who_lock_row_by_row_never_lease_both(way: Way, postgres_table: Table) -> None:
    """Alice has locked the first row; Bob passes over it, locks the others, and leases nothing. There her run ends."""

    async def prepared() -> list[str]:
        async with way.opened() as store:
            return ids(await line(store, "a", 3))

    given = way.run(prepared)
    second = postgres_table.rows()[1]["position"]

    async def alice() -> list[str]:
        async with way.opened() as store:
            wait = f"(listed.position <> {second} OR pg_advisory_xact_lock_shared({FIRST})::text IS NOT NULL)"
            altered(store, "WHERE ctid = listed.place", f"WHERE ctid = listed.place AND {wait}")
            return await run_of(store, owner="alice")

    async def bob(let_through: Callable[[int], None]) -> list[str]:
        async with way.opened() as store:
            opened = await store.executor.begin()
            store._runs._executor = _Within(opened)
            got = await run_of(store, owner="bob")
            let_through(FIRST)
            assert thread.result() == given[:1]
            await opened.commit()
            return got

    with closed(postgres_table, FIRST) as let_through:
        thread = Beside(way, alice)
        until_waiting(postgres_table, way)
        assert way.run(lambda: bob(let_through)) == []
    assert leases(postgres_table) == ["alice", None, None]


class _Within:
    """Runs what an executor would in an open transaction."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened

    async def fetch(self, sql: str, parameters: Any = (), *, writes: bool = True) -> Any:
        return await self._opened.fetch(sql, parameters)


# ---------------------------------------------------------------- rows that are passed over


@pytest.mark.parametrize("winner", ["the one that passes over", "the one that does not"])
def test_a_row_that_falls_due_between_two_claims_is_not_leased_beside_what_follows_it(
    way: Way, postgres_table: Table, winner: str
) -> None:
    """For Alice's clock the head is not due, and she leases the next; for Bob's it is. Both have their snapshots."""

    async def prepared() -> list[str]:
        async with way.opened() as store:
            given = await line(store, "a", 3)
        now = postgres_table.now()
        postgres_table.change(available_at=now - 3 * HOUR)
        postgres_table.change(given[0].event_id, available_at=now - HOUR)
        return ids(given)

    async def alice() -> list[str]:
        async with way.opened() as store:
            altered(store, "statement_timestamp()", "(statement_timestamp() - interval '2 hours')")
            altered(store, "+ %s::bigint", "+ interval '2 hours' + %s::bigint")
            return await run_of(paused(store, FIRST), owner="alice", rule=PASSES, run=1)

    async def bob() -> list[str]:
        async with way.opened() as store:
            return await run_of(paused(store, SECOND), owner="bob", rule=PASSES, run=1)

    given = way.run(prepared)
    order = (FIRST, SECOND) if winner == "the one that passes over" else (SECOND, FIRST)
    with closed(postgres_table, FIRST, SECOND) as let_through:
        threads = {FIRST: Beside(way, alice), SECOND: Beside(way, bob)}
        until_two_wait(postgres_table)
        let_through(order[0])
        assert threads[order[0]].result() == ([given[1]] if order[0] == FIRST else [given[0]])
        let_through(order[1])
        assert threads[order[1]].result() == [], "one at a time per key over the fleet"


def until_two_wait(table: Table) -> None:
    sql = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND datname = current_database()"
        " AND wait_event = 'advisory'"
    )
    pause = threading.Event()
    for _ in range(10_000):
        if table.value(sql, Way.mark) == 2:
            return
        pause.wait(0.005)
    raise AssertionError("nobody waits")


def test_a_row_that_is_passed_over_gets_a_new_epoch_and_no_lease(way: Way, postgres_table: Table) -> None:
    """By which another claimer sees that somebody was here."""

    async def scenario() -> None:
        async with way.opened() as store:
            given = await line(store, "a", 4)
            for number in (0, 3):
                postgres_table.change(given[number].event_id, available_at=postgres_table.now() + HOUR)
            assert await run_of(store, rule=PASSES) == ids(given[1:3])
            async with locked(store, given[3].event_id):  # behind the run: nobody minds
                await run_of(store, rule=PASSES)

    way.run(scenario)
    rows = postgres_table.rows()
    assert [(row["locked_by"], row["lease_epoch"]) for row in rows] == [
        (None, 1), ("alice", 1), ("alice", 1), (None, 0)
    ]  # fmt: skip
