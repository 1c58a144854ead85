"""Behind a pooler in transaction mode: whoever keeps anything in a session meets another session soon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from aftercommit.events.records import EventFilter
from tests import servers
from tests.conftest import without
from tests.stores.postgres_kit import Table, Way
from tests.support import Collector, World
from tests.transactions.kit import all_at_once


@pytest.fixture(scope="module")
def pooler(postgres_url: str) -> Iterator[servers.Pgbouncer]:
    """One for all tests of this file."""
    try:
        made = servers.Pgbouncer(postgres_url).__enter__()
    except servers.NoServer as error:
        without(str(error))
    yield made
    made.__exit__()


@pytest.fixture
def world(way: Way, tmp_path: Any) -> Iterator[World]:
    made = way.world(tmp_path)
    yield made
    made.somebody.close()


def prepares(lender: Any) -> bool:
    """Whether its connections keep prepared statements."""
    idle = [place.link.raw for place in lender._pool._idle if place.link is not None]
    assert idle
    return bool(lender.is_direct) or any(getattr(raw, "prepare_threshold", None) is not None for raw in idle)


def business(way: Way) -> str:
    return f"INSERT INTO business VALUES ({'$1' if way.driver == 'asyncpg' else '%s'})"


def test_outboxes_walk_through_a_pooler(
    way: Way, world: World, pooler: servers.Pgbouncer, postgres_table: Table
) -> None:
    """Two outboxes as two processes would be, four writers each, over two sessions of the server. Statements of the
    users and of the outbox come far more often than a driver waits before it prepares them."""
    postgres_table.execute("CREATE TABLE business (n integer)")
    seen = Collector()

    async def scenario() -> None:
        outboxes = [world.outbox(way.at(pooler.url), poll_interval="20ms") for _ in range(2)]
        for outbox in outboxes:
            outbox.register("T", seen.add)
            outbox.register("Failing", fail_once)
        async with outboxes[0], outboxes[1]:
            works = [lambda o=o, n=n: writer(o, n) for o in outboxes for n in range(4)]
            await all_at_once(world, works)
            async with outboxes[0].transaction():
                await outboxes[0].write("Failing", "{}")
            await world.until_settled(2 * 4 * 12 + 1)
            assert not prepares(outboxes[0]._store.executor._lender)

    async def writer(outbox: Any, number: int) -> None:
        for turn in range(12):
            async with outbox.transaction() as tx:
                await tx.execute(business(way), (turn,))
                found = await tx.execute("SELECT count(*) FROM business")
                assert found.fetchone()[0] > 0
                await outbox.write("T", str(turn))
                if turn % 3 == 0:
                    with pytest.raises(ZeroDivisionError):
                        async with outbox.transaction():
                            await outbox.write("T", "0")
                            raise ZeroDivisionError

    failures: list[int] = []

    def fail_once(_: Any) -> None:
        failures.append(1)
        if len(failures) == 1:
            raise ValueError("again")

    world.run(scenario)
    assert Counter(each.payload_json for each in seen) == Counter({str(turn): 8 for turn in range(12)})
    assert len(failures) == 2
    assert postgres_table.value("SELECT count(*) FROM business") == 2 * 4 * 12
    assert {row["status"] for row in postgres_table.rows()} == {1}


def test_the_schema_is_made_and_looked_after_through_a_pooler(
    way: Way, pooler: servers.Pgbouncer, postgres_table: Table
) -> None:
    async def scenario() -> None:
        async with way.opened(way.at(pooler.url), table="pooled", create_schema=True) as store:
            for _ in range(12):
                assert (await store.records.backlog()).new == 0
                assert await store.records.count_dead(EventFilter()) == 0
        async with way.opened(way.at(pooler.url), table="pooled") as store:
            assert store.is_ready

    way.run(scenario)
    assert postgres_table.value("SELECT to_regclass('pooled') IS NOT NULL")


@pytest.mark.parametrize("kind", ["pool", "engine"])
def test_given_pools_through_a_pooler_prepare_nothing_of_ours(
    way: Way, kind: str, pooler: servers.Pgbouncer, postgres_table: Table
) -> None:
    """With a driver that is told to prepare nothing, as users of such poolers do."""
    through = Way(way.driver, Table(pooler.url))
    through.plain = pooler.url

    async def scenario() -> None:
        options: dict[str, Any] = {"kwargs": {"prepare_threshold": None}}
        if kind == "engine":
            options = {"connect_args": {"prepare_threshold": None}}
        if way.driver == "asyncpg":
            options = {"statement_cache_size": 0}
            if kind == "engine":
                options = {"connect_args": {"statement_cache_size": 0, "prepared_statement_cache_size": 0}}
        make = through.pool if kind == "pool" else through.engine
        async with make(3, **options) as target, way.opened(target) as store:
            for _ in range(12):
                assert (await store.records.backlog()).new == 0
                held = await store.executor.begin()
                await held.query("SELECT 1")
                await held.commit()

    way.run(scenario)
    through.table.close()
