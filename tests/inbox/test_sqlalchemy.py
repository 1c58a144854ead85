"""The block inside a SQLAlchemy session or connection, of either colour and on every driver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import create_engine, select, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from aftercommit import AsyncInbox, Inbox, NotInTransaction, TransactionEnded, UnsupportedTransaction
from tests.inbox.kit import AwaitedInbox
from tests.transactions.driver_kit import done
from tests.transactions.kit import Deliberate
from tests.transactions.sqlalchemy_kit import Order, Shop

HANDLES = ("session", "connection")


def inbox_of(shop: Shop, target: Any = None, **options: Any) -> Any:
    kind = AsyncInbox if shop.is_async else Inbox
    made = kind(target or shop.world.url, **{"create_schema": True, **options})
    made = made if shop.is_async else AwaitedInbox(made)
    shop._outboxes.append(made)
    return made


@asynccontextmanager
async def opened(shop: Shop, handle: str = "session", engine: Any = None, **options: Any) -> AsyncIterator[Any]:
    """A session or connection, closed at the end and not committed."""
    engine = engine or shop.engine
    if handle == "connection":
        made = engine.connect()
    else:
        made = (AsyncSession if shop.is_async else Session)(engine, **options)
    if shop.is_async:
        async with made as it:
            yield it
    else:
        with made as it:
            yield it


async def insert(tx: Any, number: int) -> None:
    await done(tx.execute(text(f"INSERT INTO shop_order (id) VALUES ({number})")))


def orders(shop: Shop) -> list[int]:
    return [row["id"] for row in shop.world.rows("SELECT id FROM shop_order ORDER BY id")]


@pytest.mark.parametrize("handle", HANDLES)
@pytest.mark.parametrize("plain", [False, True], ids=["engine", "bare engine"])
def test_the_id_is_part_of_their_transaction(shop: Shop, handle: str, plain: bool) -> None:
    """Committed with it, rolled back with it; and taken back alone by an error in the block. Also where the driver of
    SQLite begins transactions as it likes."""
    if plain and shop.world.database != "sqlite":
        return

    async def scenario() -> None:
        inbox = inbox_of(shop)
        await inbox.create_schema()
        engine = shop.bare_engine() if plain else shop.engine
        came = []
        for number in (1, 2):
            async with opened(shop, handle, engine) as tx:
                async with inbox.once("o-1", consumer="billing", tx=tx) as first:
                    came.append(bool(first))
                    await insert(tx, number)
                await done(tx.rollback())
            assert orders(shop) == []
            assert not await inbox.seen("o-1", consumer="billing")

        async with opened(shop, handle, engine) as tx:
            await insert(tx, 3)
            with pytest.raises(Deliberate):
                async with inbox.once("o-1", consumer="billing", tx=tx) as first:
                    came.append(bool(first))
                    await insert(tx, 4)
                    raise Deliberate
            await insert(tx, 5)
            await done(tx.commit())
        assert orders(shop) == [3, 5]

        for _ in range(2):
            async with opened(shop, handle, engine) as tx:
                async with inbox.once("o-1", consumer="billing", tx=tx) as first:
                    came.append(bool(first))
                await done(tx.commit())
        assert came == [True, True, True, True, False]

    shop.run(scenario)


def test_objects_of_a_block_that_failed_leave_the_session_with_it(shop: Shop) -> None:
    async def scenario() -> None:
        inbox = inbox_of(shop)
        await inbox.create_schema()
        async with opened(shop) as session:
            session.add(Order(id=1))
            with pytest.raises(Deliberate):
                async with inbox.once("o-1", consumer="billing", tx=session):
                    session.add(Order(id=2))
                    await done(session.flush())
                    raise Deliberate
            async with inbox.once("o-2", consumer="billing", tx=session) as first:
                if first:
                    session.add(Order(id=3))
            found = (await done(session.scalars(select(Order)))).all()
            assert {each.id for each in found} == {1, 3}
            await done(session.commit())
        assert orders(shop) == [1, 3]

    shop.run(scenario)


def test_a_flush_that_fails_at_the_end_of_the_block_takes_the_id_back(shop: Shop) -> None:
    async def scenario() -> None:
        inbox = inbox_of(shop)
        await inbox.create_schema()
        async with opened(shop) as session:
            session.add(Order(id=1))
            await done(session.flush())
            session.expunge_all()
            with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
                async with inbox.once("o-1", consumer="billing", tx=session):
                    session.add(Order(id=1))
            await done(session.commit())
        assert orders(shop) == [1]
        assert not await inbox.seen("o-1", consumer="billing")

    shop.run(scenario)


@pytest.mark.parametrize("how", ["commit", "rollback"])
def test_the_end_of_the_transaction_inside_the_block_is_told(shop: Shop, how: str) -> None:
    async def scenario() -> None:
        inbox = inbox_of(shop)
        await inbox.create_schema()
        async with opened(shop) as session:
            with pytest.raises(TransactionEnded):
                async with inbox.once("o-1", consumer="billing", tx=session):
                    await done(getattr(session, how)())
        assert await inbox.seen("o-1", consumer="billing") is (how == "commit")

    shop.run(scenario)


def test_what_is_in_no_transaction_is_refused(shop: Shop) -> None:
    async def scenario() -> None:
        inbox = inbox_of(shop)
        await inbox.create_schema()
        async with opened(shop, autobegin=False) as session:
            with pytest.raises(NotInTransaction):
                async with inbox.once("o-1", consumer="billing", tx=session):
                    raise AssertionError("the block has begun")
        autocommit = shop.engine.execution_options(isolation_level="AUTOCOMMIT")
        for handle in HANDLES:
            async with opened(shop, handle, autocommit) as tx:
                with pytest.raises(NotInTransaction):
                    async with inbox.once("o-1", consumer="billing", tx=tx):
                        raise AssertionError("the block has begun")
        assert not await inbox.seen("o-1", consumer="billing")

    shop.run(scenario)


def test_another_database_and_another_colour_are_refused(shop: Shop) -> None:
    async def scenario() -> None:
        inbox = inbox_of(shop)
        await inbox.create_schema()
        if shop.world.database == "sqlite":
            elsewhere = inbox_of(shop, f"sqlite:///{shop.world.folder}/other.db")
        else:  # another mark is another database
            elsewhere = inbox_of(shop, table="other_inbox")
            await elsewhere.create_schema()
            shop.world.change("UPDATE other_inbox SET message_id = 'another' WHERE consumer = ''")
        async with opened(shop) as session:
            await insert(session, 1)
            with pytest.raises(UnsupportedTransaction, match="another database"):
                async with elsewhere.once("o-1", consumer="billing", tx=session):
                    raise AssertionError("the block has begun")
            await done(session.commit())
        assert orders(shop) == [1]
        other = Session() if shop.is_async else AsyncSession()
        with pytest.raises(UnsupportedTransaction, match="the inbox is"):
            async with inbox.once("o-1", consumer="billing", tx=other):
                raise AssertionError("the block has begun")

    shop.run(scenario)


def test_an_inbox_on_an_engine_takes_scoped_sessions_and_makes_its_table_in_them(tmp_path: Any) -> None:
    """On SQLite nobody else could, once the transaction has begun."""
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    inbox = Inbox(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE bill (name TEXT)"))
    sessions = scoped_session(sessionmaker(engine))
    for _ in range(2):
        sessions.execute(text("INSERT INTO bill VALUES ('before')"))
        with inbox.once("o-1", consumer="billing", tx=sessions) as first:
            assert first
        sessions.rollback()
    with inbox.once("o-1", consumer="billing", tx=sessions) as first:
        assert first
    sessions.commit()
    sessions.remove()
    assert inbox.seen("o-1", consumer="billing")
    inbox.close()
    engine.dispose()


def test_the_driver_below_the_session_may_be_another_than_the_inboxs(postgres_url: str) -> None:
    async def scenario() -> None:
        address = postgres_url.partition("://")[2]
        engine = create_async_engine(f"postgresql+asyncpg://{address}")
        async with AsyncInbox(postgres_url, table="other_driver", create_schema=True) as inbox:
            for expected in (True, False):
                async with AsyncSession(engine) as session, session.begin():  # noqa: SIM117
                    async with inbox.once("o-1", consumer="billing", tx=session) as first:
                        assert bool(first) is expected
        await engine.dispose()

    asyncio.run(scenario())
