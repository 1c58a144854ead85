"""A task may be cancelled at every await: no connection stays lent, and none in a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from aftercommit.testing.kit import event
from tests.stores.kit import insert
from tests.stores.postgres_kit import ASYNC_DRIVERS, TARGETS, Table, Way
from tests.stores.test_postgres_pools import until_back
from tests.support import PATIENCE, Collector
from tests.transactions.kit import free_slots
from tests.transactions.test_cancellation import CancelledAt

Work = Callable[[Any], Coroutine[Any, Any, Any]]


@pytest.fixture(params=ASYNC_DRIVERS)
def way(request: pytest.FixtureRequest, postgres_table: Table) -> Way:
    return Way(request.param, postgres_table)


@pytest.fixture(params=["early", "late"])
def moment(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def fetched(store: Any) -> None:
    await store.records.backlog()


async def transacted(store: Any) -> None:
    await insert(store, event())


async def stepped(store: Any) -> None:
    opened = await store.executor.begin()
    try:
        await opened.query("SELECT 1")
        await opened.savepoint("s")
        await opened.execute("UPDATE outbox_event SET attempts = 0")
        await opened.release("s")
        await opened.commit()
    finally:
        await opened.end()


WORKS = {"fetch": fetched, "transact": transacted, "begin": stepped}


def pool_of(store: Any, target: Any) -> Any:
    return store.executor._lender._pool if isinstance(target, str) else target


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("name", WORKS)
def test_no_connection_stays_behind_a_cancelled_task(way: Way, kind: str, name: str, moment: str) -> None:
    async def scenario() -> None:
        async with way.target(kind) as target, way.opened(target) as store:
            suspension, is_over = 0, False
            while not is_over:
                suspension += 1
                work = CancelledAt(WORKS[name](store), suspension, moment)
                task = asyncio.create_task(awaited(work))
                done, _ = await asyncio.wait({task}, timeout=PATIENCE)
                assert done, "it hangs"
                assert task.cancelled() or task.exception() is None
                is_over = work.count < suspension
                await until_back(pool_of(store, target))
                await until_idle(way)
            assert suspension > 1, "there was something to cancel"
            await stepped(store)

    way.run(scenario)


async def awaited(work: CancelledAt) -> None:
    await work


async def until_idle(way: Way) -> None:
    """A server hears of a cancelled statement or a closed connection a moment later."""
    for _ in range(2000):
        busy = [each for each in way.table.sessions(way.mark) if each["state"] != "idle" or each["xact_start"]]
        if not busy:
            return
        await asyncio.sleep(0.002)
    raise AssertionError(f"{busy}")


def test_a_cancelled_commit_is_delivered_or_has_never_been(way: Way, moment: str, tmp_path: Path) -> None:
    """A whole transaction of a started outbox, cancelled at each of its awaits."""
    world = way.world(tmp_path)

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(way.url, poller_enabled=False, hot_queue_capacity=50)
        outbox.register("T", seen.add)
        async with outbox:
            suspension, is_over = 0, False
            while not is_over:
                suspension += 1
                work = CancelledAt(block(outbox, str(suspension)), suspension, moment)
                task = asyncio.create_task(awaited(work))
                done, _ = await asyncio.wait({task}, timeout=PATIENCE)
                assert done, "it hangs"
                is_over = work.count < suspension
                await until_idle(way)
                committed = [row["payload"] for row in world.rows()]
                await world.until_settled(len(committed))
                assert sorted(each.payload_json for each in seen) == sorted(committed)
                assert free_slots(outbox) == 50
            assert suspension > 4
            assert str(suspension) in committed
            assert "1" not in committed

    async def block(outbox: Any, payload: str) -> None:
        async with outbox.transaction() as tx:
            await tx.execute("SELECT 1")
            await outbox.write("T", payload)

    world.run(scenario)
    world.somebody.close()
