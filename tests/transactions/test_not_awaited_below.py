"""A forgotten await in a transaction that others steer: where its commit can be kept from happening, it is."""

from __future__ import annotations

import gc
import logging
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import insert, text
from sqlalchemy.ext.asyncio import AsyncSession

from aftercommit import NotAwaited, outbox_event
from tests.transactions.sqlalchemy_kit import Customer, Shop


@pytest.fixture
def async_shop(shop: Shop) -> Shop:
    if not shop.is_async:
        pytest.skip("of threads")
    return shop


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    gc.collect()
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


async def customers(shop: Shop) -> int:
    async with shop.engine.connect() as connection:
        return int((await connection.execute(text("SELECT count(*) FROM shop_customer"))).scalar_one())


@pytest.mark.parametrize("way", ["connection", "before it begins", "session's connection"])
def test_a_connection_does_not_commit_without_the_event(
    async_shop: Shop, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    shop = async_shop

    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()

        async def change(connection: Any) -> None:
            if way != "before it begins":
                await connection.execute(insert(Customer).values(id=1))
            outbox.write("T", '"forgotten"', tx=connection)

        with pytest.raises(NotAwaited, match=r"write\(\) of T was never awaited(.|\n)*Fix: await outbox\.write"):
            if way == "session's connection":
                async with AsyncSession(shop.engine) as session:
                    await change(await session.connection())
                    await session.commit()
            else:
                async with shop.engine.connect() as connection:
                    await change(connection)
                    if way == "before it begins":
                        await connection.execute(insert(Customer).values(id=1))
                    await connection.commit()
        assert (shop.committed(), await customers(shop)) == ([], 0)
        async with shop.engine.begin() as connection:  # it is forgotten with its transaction
            await outbox.write("T", '"kept"', tx=connection)
        assert shop.committed() == ["kept"]

    shop.run(scenario)
    assert errors(caplog) == [], "said once is enough"


def test_a_forgotten_write_that_is_rolled_back_is_none(async_shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop = async_shop

    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()
        async with shop.engine.connect() as connection:
            await connection.execute(insert(Customer).values(id=1))
            outbox.write("T", '"undone"', tx=connection)
            await connection.rollback()
            await outbox.write("T", '"kept"', tx=connection)
            await connection.commit()
            outbox.write("T", '"closed"', tx=connection)
        assert shop.committed() == ["kept"]

    shop.run(scenario)
    assert errors(caplog) == []


@pytest.mark.parametrize("writes", ["publish", "write"])
def test_a_session_does_not_commit_without_what_was_published(async_shop: Shop, writes: str) -> None:
    """write() on a session has nothing to wait for; publish() has, because subscribers may."""
    shop = async_shop

    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()
        async with AsyncSession(shop.engine) as session:
            session.add(Customer(id=1))
            if writes == "write":
                outbox.write("T", '"saved"', tx=session)
                await session.commit()
            else:
                outbox.publish(Happened(1), tx=session)
                with pytest.raises(NotAwaited, match="Happened"):
                    await session.commit()
        assert (len(shop.committed()), await customers(shop)) == ((1, 1) if writes == "write" else (0, 0))

    shop.run(scenario)


@outbox_event
@dataclass
class Happened:
    number: int
