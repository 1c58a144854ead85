"""Looking by key: what was called comes first, a round goes over the rest in pieces, and nothing found is lost."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from aftercommit.delivery.agenda import Agenda
from aftercommit.delivery.leases import Held, Unsettled
from aftercommit.events.claims import Claim
from aftercommit.events.order import Head, Heads, HeadsRequest, HeadState, KeyClaimRequest, OrderKey
from aftercommit.events.outcome import DONE
from aftercommit.ordering import keys as by_key
from aftercommit.ordering.keys import LookByKey
from tests.delivery.faulty import Unreachable, agenda_of, claimed, plain_config, with_runtime
from tests.support import Collector, World

ALL = frozenset(range(4))


class Table:
    """Keys with so many due rows each. Claims take them; heads are walked in order."""

    def __init__(self, runtime: Any, rows: dict[OrderKey, int]) -> None:
        self.runtime = runtime
        self.rows = dict(rows)
        self.states: dict[OrderKey, tuple[HeadState, float]] = {}
        self.claims, self.walks = Collector(), Collector()
        self.failures = 0

    async def heads(self, request: HeadsRequest) -> Heads:
        self.walks.add(request)
        behind = [
            key
            for number, partition in enumerate(request.partitions)
            for key in sorted(self.rows)
            if key.partition == partition and (number or request.after is None or key > request.after)
        ][: request.limit]
        heads = [Head(key, *self.states.get(key, (HeadState.READY, 0.0))) for key in behind]
        return Heads(heads, behind[-1] if len(behind) == request.limit else None)

    async def claim_keys(self, request: KeyClaimRequest) -> Claim:
        self.claims.add(request)
        if self.failures:
            self.failures -= 1
            raise Unreachable
        taken = []
        for key in request.keys:
            for _ in range(min(request.run, self.rows.get(key, 0))):
                taken.append(claimed(self.runtime, order_key=key))
                self.rows[key] -= 1
        self.rows = {key: left for key, left in self.rows.items() if left}
        return Claim(taken)


class Owned:
    """Stands for an ownership."""

    def __init__(self, owned: Collection[int]) -> None:
        self.owned = owned


def look_of(
    runtime: Any, table: Table, owned: Collection[int] = ALL, held: Held | None = None, **options: Any
) -> tuple[LookByKey, Agenda]:
    agenda = agenda_of(runtime, held, horizon=3600.0)
    store: Any = table
    ownership: Any = Owned(owned)
    return LookByKey(runtime, store, agenda, ownership, plain_config(ordered=True, **options), owner="me"), agenda


def next_in(agenda: Agenda) -> float | None:
    """Seconds until the next key that was put on the agenda for later."""
    return agenda._later[0][0] - agenda._runtime.clock() if agenda._later else None


def keys_of(request: KeyClaimRequest) -> list[str]:
    return [key.key for key in request.keys]


A, B, C, D = OrderKey(0, "a"), OrderKey(1, "b"), OrderKey(1, "c"), OrderKey(3, "d")


def test_a_called_key_is_claimed_without_a_walk(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        table = Table(runtime, {A: 1, B: 1})
        look, agenda = look_of(runtime, table, owned=())
        await look.claim(10)  # the round that every start begins, over nothing yet
        look._ownership.owned = ALL
        agenda.add([B])
        found = await look.claim(10)
        assert table.walks == []
        assert [keys_of(request) for request in table.claims] == [["b"]]
        assert (len(found.claim.rows), found.is_all) == (1, True)

    with_runtime(world, scenario)


def test_a_round_claims_whatever_is_ready(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        table = Table(runtime, {A: 1, B: 1, C: 1, D: 1})
        table.states = {C: (HeadState.BLOCKED, 0.0), D: (HeadState.LATER, 60.0)}
        look, agenda = look_of(runtime, table)
        found = await look.claim(10)
        assert keys_of(table.claims[0]) == ["a", "b"]
        assert found.is_all
        assert next_in(agenda) == pytest.approx(60.0, abs=5.0), "what falls due later is called then"

    with_runtime(world, scenario)


def test_the_rows_of_a_claim_are_shared_by_its_keys(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        for keys, run in ((1, 20), (3, 6), (10, 2), (25, 2)):
            table = Table(runtime, {OrderKey(0, f"{number:02d}"): 99 for number in range(keys)})
            look, _ = look_of(runtime, table)
            found = await look.claim(20)
            assert table.claims[0].run == run
            assert len(table.claims[0].keys) == min(keys, 10)
            assert len(found.claim.rows) <= 20
            assert found.is_full == (keys >= 10)

    with_runtime(world, scenario)


def test_runs_grow_while_keys_have_more_and_shrink_when_they_have_less(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        many = [OrderKey(0, f"{number:03d}") for number in range(400)]
        table = Table(runtime, dict.fromkeys(many, 99))
        look, _ = look_of(runtime, table)
        for _ in range(6):
            assert len((await look.claim(200)).claim.rows) <= 200
        assert [request.run for request in table.claims] == [2, 4, 8, 16, 16, 16]
        assert [len(request.keys) for request in table.claims][:4] == [100, 50, 25, 12], "about as many rows in all"
        table.rows = dict.fromkeys(many, 1)
        for _ in range(5):
            await look.claim(200)
        assert [request.run for request in table.claims][-5:] == [16, 8, 4, 2, 2]

    with_runtime(world, scenario)


def test_runs_never_grow_so_long_that_workers_have_no_key(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        table = Table(runtime, {OrderKey(0, f"{number:03d}"): 99 for number in range(400)})
        look, _ = look_of(runtime, table, worker_count=40)
        for _ in range(4):
            await look.claim(200)
        assert [len(request.keys) for request in table.claims] == [100, 80, 80, 80]

    with_runtime(world, scenario)


def test_a_round_goes_on_while_it_finds_nothing_and_pauses_for_what_it_finds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(runtime: Any) -> None:
        monkeypatch.setattr(by_key, "PROBES", 1)
        table = Table(runtime, {A: 1, B: 1, C: 1, D: 1})
        table.states = {A: (HeadState.BLOCKED, 0.0), B: (HeadState.BLOCKED, 0.0)}
        look, _ = look_of(runtime, table)
        await look.claim(10)
        assert len(table.walks) == 3, "past two that are blocked, to the first one that is ready"
        assert keys_of(table.claims[0]) == ["c"]

    with_runtime(world, scenario)


def test_calls_that_never_end_do_not_hold_up_the_round(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(runtime: Any) -> None:
        monkeypatch.setattr(by_key, "PROBES", 1)
        table = Table(runtime, {A: 99, B: 1, C: 1, D: 1})
        look, agenda = look_of(runtime, table)
        for _ in range(5):
            agenda.add([A])
            await look.claim(10)
        assert {key for request in table.claims for key in request.keys} == {A, B, C, D}

    with_runtime(world, scenario)


def test_keys_of_a_claim_that_failed_are_claimed_again(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        table = Table(runtime, {A: 1})
        table.failures = 1
        look, agenda = look_of(runtime, table)
        with pytest.raises(Unreachable):
            await look.claim(10)
        assert agenda.ready == 1
        assert len((await look.claim(10)).claim.rows) == 1

    with_runtime(world, scenario)


def test_only_what_is_owned_is_looked_at(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        table = Table(runtime, {A: 1, B: 1, D: 1})
        look, _ = look_of(runtime, table, owned=frozenset({1}))
        await look.claim(10)
        assert [list(request.partitions) for request in table.walks] == [[1]]
        assert [keys_of(request) for request in table.claims] == [["b"]]

    with_runtime(world, scenario)


def test_a_full_run_is_looked_at_again(world: World) -> None:
    """There is more behind it, and nobody else may know."""

    async def scenario(runtime: Any) -> None:
        table = Table(runtime, {A: 25})
        look, _ = look_of(runtime, table)
        found = [await look.claim(10) for _ in range(3)]
        assert [(len(each.claim.rows), each.is_all) for each in found] == [(10, False), (10, False), (5, True)]
        assert len(table.walks) == 1

    with_runtime(world, scenario)


def test_rounds_that_follow_each_other_call_a_later_key_once(world: World) -> None:
    """Else they would fill the room for calls with the same keys again and again, and a retry would find none."""

    async def scenario(runtime: Any) -> None:
        table = Table(runtime, {A: 1, B: 1})
        table.states = {A: (HeadState.LATER, 60.0), B: (HeadState.LATER, 90.0)}
        look, agenda = look_of(runtime, table)
        for _ in range(10):
            look.look_everywhere()
            await look.claim(10)
        assert len(agenda._later) == 2
        table.states = {A: (HeadState.LATER, 30.0), B: (HeadState.LATER, 90.0)}
        look.look_everywhere()
        await look.claim(10)
        assert next_in(agenda) == pytest.approx(30.0, abs=5.0), "another time is another call"

    with_runtime(world, scenario)


def test_a_key_beyond_the_horizon_is_called_by_the_round_that_comes_nearer(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        table = Table(runtime, {A: 1})
        now = [runtime.clock()]
        runtime.clock = lambda: now[0]
        look, agenda = look_of(runtime, table)
        table.states = {A: (HeadState.LATER, 3700.0)}
        await look.claim(10)
        assert next_in(agenda) is None
        now[0] += 200.0
        table.states = {A: (HeadState.LATER, 3500.0)}
        look.look_everywhere()
        await look.claim(10)
        assert next_in(agenda) == pytest.approx(3500.0)

    with_runtime(world, scenario)


def test_a_round_remembers_a_key_whose_head_is_in_memory_here(world: World) -> None:
    """A partition was lost and gained again while a row of it ran: what was committed meanwhile was told to another."""

    async def scenario(runtime: Any) -> None:
        table = Table(runtime, {A: 1})
        table.states = {A: (HeadState.LEASED, 30.0)}
        held = Held(runtime)
        look, agenda = look_of(runtime, table, held=held)
        (holding,) = held.admit([claimed(runtime, order_key=A)])
        await look.claim(10)
        assert table.claims == [], "it is not claimed while it runs"
        free, _ = held.let_go([Unsettled(holding, DONE, holding.lease.epoch)])
        table.states = {}
        agenda.freed(free)
        assert len((await look.claim(10)).claim.rows) == 1
        assert len(table.walks) == 1, "without another round"

    with_runtime(world, scenario)
