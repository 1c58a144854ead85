"""A forked child leaves the sessions of its parent alone."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import psycopg
import pytest

from aftercommit.errors import StoreUnavailable
from aftercommit.runtime.threads import run
from aftercommit.testing.kit import event
from tests.promises.forks import Child
from tests.stores.kit import insert
from tests.stores.postgres_kit import ASYNC_DRIVERS, TARGETS, Table, Way

# The child does nothing with the threads that it has lost.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")


def factory(table: Table) -> Any:
    return lambda: psycopg.connect(table.url, application_name=Way.mark)


@pytest.mark.parametrize("kind", [*TARGETS, "factory"])
def test_the_childs_close_ends_no_session_of_the_parent(postgres_table: Table, kind: str) -> None:
    way = Way("psycopg", postgres_table)

    async def scenario() -> None:
        if kind == "factory":
            async with way.opened(factory(postgres_table)) as store:
                await forked(store)
        else:
            async with way.target(kind, size=1) as target, way.opened(target) as store:
                await forked(store)

    async def forked(store: Any) -> None:
        await insert(store, event())
        opened = await store.executor.begin()
        pid = opened.connection.info.backend_pid

        def child() -> str:
            store.abandon()
            said = ""
            try:
                run(insert(store, event(event_id="of the child")))
            except StoreUnavailable as error:
                said = str(error)
            run(store.close())
            return said

        said = Child(child).said()
        assert "trace" not in said, said["trace"]
        assert ("forked" in said["returned"]) == (kind == "pool"), "a given pool cannot be opened anew"
        assert opened.is_open
        await opened.query("SELECT 1")
        await opened.commit()
        await insert(store, event())
        assert pid in {each["pid"] for each in postgres_table.sessions(way.mark)}

    way.run(scenario)
    assert len(postgres_table.rows()) == (2 if kind == "pool" else 3)


@pytest.mark.parametrize("driver", ASYNC_DRIVERS)
@pytest.mark.parametrize("kind", ["url", "pool"])
def test_the_child_opens_its_own_pool_on_its_own_loop(postgres_table: Table, driver: str, kind: str) -> None:
    way = Way(driver, postgres_table)

    async def scenario() -> None:
        async with way.target(kind, size=1) as target, way.opened(target) as store:
            await insert(store, event())
            ((pid,),) = await store.executor.fetch("SELECT pg_backend_pid()")
            said = Child(lambda: elsewhere(store)).said()
            assert "trace" not in said, said["trace"]
            assert ("forked" in said["returned"]) == (kind == "pool")
            await insert(store, event())
            assert pid in {each["pid"] for each in postgres_table.sessions(way.mark)}

    def elsewhere(store: Any) -> str:
        """The child was forked on a loop, so it needs another thread for its own."""
        store.abandon()
        said: list[str] = []

        async def main() -> None:
            try:
                await insert(store, event(event_id="of the child"))
                said.append("")
            except StoreUnavailable as error:
                said.append(str(error))
            await store.close()

        thread = threading.Thread(target=lambda: asyncio.run(main()))
        thread.start()
        thread.join()
        return said[0]

    way.run(scenario)
    assert len(postgres_table.rows()) == (2 if kind == "pool" else 3)
