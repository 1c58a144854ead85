"""`unique_key=` with tx=session or tx=connection: the store's own INSERT in SQLAlchemy's transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from aftercommit import EventEnvelope, UniqueKeyUnsupported
from tests.transactions.kit import Deliberate, free_slots, hot_count
from tests.transactions.sqlalchemy_kit import Customer, Shop

#: A driver that the outbox does not use itself, so that no statement of its own can run there.
FOREIGN = ("aiosqlite",)

CAPACITY = 10


class Work:
    """A session or a connection of either colour, awaited."""

    def __init__(self, shop: Shop, inner: Any) -> None:
        self.inner = inner
        self._is_async = shop.is_async

    async def __call__(self, method: str, *arguments: Any) -> Any:
        result = getattr(self.inner, method)(*arguments)
        return await result if self._is_async else result

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        if self._is_async:
            async with self.inner.begin_nested():
                yield
        else:
            with self.inner.begin_nested():
                yield


@asynccontextmanager
async def opened(shop: Shop, kind: str) -> AsyncIterator[Work]:
    if kind == "session":
        handle = AsyncSession(shop.engine) if shop.is_async else Session(shop.engine)
    else:
        handle = shop.engine.connect()
    if shop.is_async:
        async with handle as inner:
            yield Work(shop, inner)
    else:
        with handle as inner:
            yield Work(shop, inner)


def is_foreign(shop: Shop) -> bool:
    return any(name in shop.engine_url for name in FOREIGN)


@pytest.mark.parametrize("kind", ["session", "connection"])
def test_a_taken_key_keeps_an_event_out_of_the_unit_of_work(shop: Shop, kind: str) -> None:
    async def scenario() -> None:
        outbox = shop.outbox(hot_queue_capacity=CAPACITY, poller_enabled=kind == "connection")
        await outbox.start()
        async with opened(shop, kind) as work:
            if kind == "session":
                work.inner.add(Customer(id=1))
            if is_foreign(shop):
                with pytest.raises(UniqueKeyUnsupported, match="cannot run on a connection of aiosqlite"):
                    await outbox.write("T", '"one"', tx=work.inner, unique_key="k")
                await work("rollback")
                return
            await outbox.write("T", '"zero"', tx=work.inner)
            assert await outbox.write("T", '"one"', tx=work.inner, unique_key="k") is not None
            with pytest.raises(Deliberate):
                async with work.savepoint():
                    assert await outbox.write("T", '"undone"', tx=work.inner, unique_key="other") is not None
                    raise Deliberate
            batch = [EventEnvelope("T", payload_json=f'"{name}"', unique_key=name[0]) for name in ("kk", "oo", "of")]
            assert await outbox.write_all(batch, tx=work.inner) == [batch[1].event_id]
            await work("commit")
            assert await outbox.write("T", '"lost"', tx=work.inner, unique_key="lost") is not None
            await work("rollback")
        await shop.seen.reach(3)
        await shop.world.until_settled(3)
        assert sorted(shop.seen) == ["one", "oo", "zero"]
        assert shop.committed() == ["zero", "one", "oo"]
        assert free_slots(outbox) == CAPACITY
        assert hot_count(outbox) == (3 if kind == "session" else 0)

    shop.run(scenario)


def test_a_rolled_back_session_gives_keys_and_slots_back(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = shop.outbox(hot_queue_capacity=CAPACITY)
        await outbox.start()
        if is_foreign(shop):
            return
        for ending in ("rollback", "close", "commit"):
            async with opened(shop, "session") as work:
                assert await outbox.write("T", f'"{ending}"', tx=work.inner, unique_key="k") is not None
                await work(ending)
        await shop.seen.reach(1)
        await shop.world.until_settled(1)
        assert free_slots(outbox) == CAPACITY
        assert (list(shop.seen), shop.committed()) == (["commit"], ["commit"])

    shop.run(scenario)
