"""What the tests of LISTEN and NOTIFY share: who listens, what is heard, who else speaks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.stores.detect import open_store
from aftercommit.stores.postgres.wakeups import PostgresWakeups
from tests.stores.postgres_kit import Table, Way
from tests.stores.postgres_proxy import Proxy
from tests.support import PATIENCE

#: What listens has this in its last statement.
LISTENING = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%%LISTEN%%' AND pid <> "
)


def listeners(table: Table) -> set[int]:
    return {row["pid"] for row in table.read(LISTENING + "pg_backend_pid()")}


def until_sessions(table: Table, mark: str, count: int) -> None:
    """The server takes a moment to see that a session has ended."""
    watch = threading.Event()
    for _ in range(int(PATIENCE / 0.005)):
        if len(table.sessions(mark)) == count:
            return
        watch.wait(0.005)
    raise AssertionError(f"{table.sessions(mark)} instead of {count}")


async def heard(listener: Any, count: int) -> list[str]:
    """So many messages."""
    messages: list[str] = []
    while len(messages) < count:
        messages += await within(listener.receive())
    return messages


async def within(work: Any) -> Any:
    """A loop gives up on what hangs; a thread is left to the limit of the suite."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return await work
    return await asyncio.wait_for(work, PATIENCE)


@contextmanager
def speaker(table: Table) -> Iterator[Any]:
    """Another process, as far as the database knows: it speaks from a blocking store of its own."""
    store = open_store(table.url, Colour.BLOCKING)
    lent = store.wakeups

    def say(message: str) -> None:
        run(lent.send(message))

    try:
        yield say
    finally:
        run(store.close())


@asynccontextmanager
async def behind(way: Way, proxy: Proxy) -> AsyncIterator[PostgresWakeups]:
    """Listens through the wire, and sends beside it."""
    async with way.opened() as store:
        through = way.store(way.at(proxy.url))
        listener = PostgresWakeups(through.executor, store.executor, store._sql, store.names, set())
        await listener.receive()
        yield listener
        await listener.close()
        await through.close()
