"""In the transaction of a test that is rolled back, the outbox sees what nobody else ever will."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import StaticPool

from aftercommit import AsyncOutbox, ColourMismatch, Fixed, Outbox, UnsupportedTransaction
from aftercommit.stores.sql.statements import TableNames
from aftercommit.testing import AsyncOutboxTest, OutboxTest
from tests.kit.ways import OrderPaid, OrderPlaced

#: How an engine of SQLAlchemy names the driver, by the database and the colour.
URLS = {
    "sqlite": "sqlite:///{folder}/shop.db",
    "memory": "sqlite://",
    "postgres": "postgresql+psycopg://{server}",
    "mariadb": "mysql+pymysql://{server}",
}
ASYNC_URLS = {
    "sqlite": "sqlite+aiosqlite:///{folder}/shop.db",
    "psycopg": "postgresql+psycopg://{server}",
    "asyncpg": "postgresql+asyncpg://{server}",
}


def url_of(urls: dict[str, str], name: str, request: pytest.FixtureRequest, folder: Path) -> str:
    fixture = {"mariadb": "mysql_url", "postgres": "postgres_url", "psycopg": "postgres_url", "asyncpg": "postgres_url"}
    server = request.getfixturevalue(fixture[name]).partition("://")[2] if name in fixture else ""
    return urls[name].format(folder=folder, server=server)


@pytest.fixture(params=URLS)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """With a table of the program's own. Only on MariaDB the outbox's have to be there already."""
    options = {"poolclass": StaticPool} if request.param == "memory" else {}
    engine = create_engine(url_of(URLS, request.param, request, tmp_path), **options)
    with engine.begin() as connection:
        clear(connection)
        connection.execute(text("CREATE TABLE kit_order (id INTEGER)"))
    if request.param == "mariadb":
        Outbox(engine, create_schema=True).create_schema()
    yield engine
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE kit_order"))
    engine.dispose()


def clear(connection: Any) -> None:
    """What other tests have left in a database that they share with these."""
    for table in ("kit_order", *TableNames("outbox_event", None).all):
        connection.execute(text(f"DROP TABLE IF EXISTS {table}"))


@pytest.fixture
def connection(engine: Any) -> Iterator[Any]:
    """The usual recipe: what the program commits is a savepoint of a transaction that the test rolls back."""
    with engine.connect() as connection:
        outer = connection.begin()
        yield connection
        outer.rollback()
    assert count_of(engine, "kit_order") == 0
    assert count_of(engine, "outbox_event") == 0


def count_of(engine: Any, table: str) -> int:
    with engine.connect() as connection:
        names = engine.dialect.get_table_names(connection)
        if table not in names:
            return 0
        return int(connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one())


def test_drain_sees_the_rows_of_the_open_transaction(engine: Any, connection: Any) -> None:
    # Of the program's outbox nothing is asked: it could be on any database.
    outbox, seen = Outbox("sqlite://", retry_policy=Fixed("1m")), []

    @outbox.handler
    def charge(event: OrderPlaced) -> None:
        seen.append((event.order_id, session.execute(text("SELECT count(*) FROM kit_order")).scalar_one()))

    with (
        Session(bind=connection, join_transaction_mode="create_savepoint") as session,
        OutboxTest(outbox) as outbox_test,
    ):
        outbox_test.join(session)
        outbox_test.assert_nothing_written()
        session.execute(text("INSERT INTO kit_order VALUES (7)"))
        outbox.write(OrderPlaced(7), tx=session, key="order-7")
        session.commit()
        outbox_test.assert_written(OrderPlaced, order_id=7, key="order-7", count=1)

        outbox.write(OrderPlaced(8), tx=session)
        session.rollback()
        outbox_test.assert_written(OrderPlaced, count=1)

        outbox_test.fail(charge, ConnectionError, times=2)
        assert outbox_test.drain().retried == 1
        result = outbox_test.drain(advance="1h")
        assert (result.attempts, result.delivered, seen) == (2, 1, [(7, 1)])

        outbox.handler(OrderPaid, id="paid")(lambda event: seen.append(("paid", event.order_id)))
        outbox.handler("Due", id="due")(lambda event: outbox.write(OrderPaid(5), tx=session))
        outbox_test.write("Due", {})
        assert outbox_test.drain().delivered == 2
        assert seen.pop() == ("paid", 5)

        outbox_test.write(OrderPlaced(9), deliver_after="1h")
        outbox_test.crash_at("before_settle")
        assert outbox_test.drain(advance="2h").crashed
        assert outbox_test.drain().delivered == 1
        assert [order_id for order_id, _ in seen] == [7, 9, 9]
        assert [each.status.name for each in outbox_test.written()] == ["DONE"] * 4


def test_order_dead_letters_and_groups_hold_there_too(engine: Any, connection: Any) -> None:
    if engine.dialect.name == "mysql":
        pytest.skip("its tables are there already, and without order")
    outbox, seen = Outbox("sqlite://", ordered=True, max_attempts=2, retry_policy=Fixed("1s")), []
    outbox.handler(OrderPlaced, id="place")(lambda event: seen.append(event.order_id))
    with OutboxTest(outbox) as outbox_test:
        outbox_test.join(connection)
        outbox.write_all([OrderPlaced(number) for number in range(5)], tx=connection)
        for number in range(5, 8):
            outbox.write(OrderPlaced(number), key="one", tx=connection)
        assert outbox_test.drain().delivered == 8
        assert seen[5:] == [5, 6, 7]
        with outbox_test.fail("place", ValueError("no card")):
            outbox.write(OrderPlaced(8), key="one", tx=connection)
            outbox.write(OrderPlaced(9), key="one", tx=connection)
            assert outbox_test.drain(advance="1m").dead == 1
        (dead,) = outbox_test.dead()
        assert "no card" in dead.last_error
        assert outbox.dead.replay(dead.event_id)
        assert outbox_test.drain().delivered == 2
        assert seen[8:] == [8, 9]


def test_a_handler_with_a_timeout_runs_where_the_session_is(connection: Any) -> None:
    outbox, seen = Outbox("sqlite://"), []

    @outbox.handler(OrderPlaced, timeout="1m")
    def place(event: OrderPlaced) -> None:
        seen.append(session.execute(text("SELECT 1")).scalar_one())

    with Session(bind=connection) as session, OutboxTest(outbox) as outbox_test:
        outbox_test.join(session)
        outbox.write(OrderPlaced(1), tx=session)
        assert outbox_test.drain().delivered == 1
        assert seen == [1]


@pytest.mark.parametrize("name", ASYNC_URLS)
def test_an_async_session_is_joined_as_well(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = url_of(ASYNC_URLS, name, request, tmp_path)
    outbox, seen = AsyncOutbox("sqlite://", retry_policy=Fixed("1m")), []

    @outbox.handler
    async def charge(event: OrderPlaced) -> None:
        seen.append(event.order_id)

    async def main() -> None:
        engine = create_async_engine(url)
        async with engine.begin() as connection:
            await connection.run_sync(clear)
        async with engine.connect() as connection:
            outer = await connection.begin()
            session = AsyncSession(bind=connection, join_transaction_mode="create_savepoint")
            with AsyncOutboxTest(outbox) as outbox_test:
                await outbox_test.join(session)
                outbox.write(OrderPlaced(7), tx=session, key="order-7")
                await session.commit()
                outbox.write(OrderPlaced(8), tx=session)
                await session.rollback()
                await outbox_test.assert_written(OrderPlaced, order_id=7, count=1)
                outbox_test.fail(charge, ConnectionError, times=2)
                result = await outbox_test.drain(advance="1h")
                assert (result.attempts, result.delivered, seen) == (3, 1, [7])
                await outbox_test.write(OrderPlaced(9))
                assert (await outbox_test.drain()).delivered == 1
            await session.close()
            await outer.rollback()
        async with engine.connect() as connection:
            names = await connection.run_sync(lambda sync: sync.dialect.get_table_names(sync))
            count = text("SELECT count(*) FROM outbox_event")
            assert "outbox_event" not in names or (await connection.execute(count)).scalar_one() == 0
        await engine.dispose()

    asyncio.run(main())


def test_without_join_a_session_may_write_into_the_file_of_the_test() -> None:
    """Its engine leads there; the clock is the test's in what SQLAlchemy inserts, too."""
    outbox, seen = Outbox("sqlite://"), []
    outbox.handler(OrderPlaced, id="place")(seen.append)
    with OutboxTest(outbox) as outbox_test:
        engine = create_engine(outbox_test.url)
        with Session(engine) as session:
            outbox.write(OrderPlaced(1), tx=session)
            session.commit()
            outbox_test.advance("1d")
            outbox.write(OrderPlaced(2), tx=session, deliver_after="1h")
            session.commit()
        assert outbox_test.drain().delivered == 1
        assert outbox_test.drain(advance="59m").delivered == 0
        assert outbox_test.drain(advance="1m").delivered == 1
        engine.dispose()


def test_a_session_of_another_database_hears_of_join(tmp_path: Path) -> None:
    outbox = Outbox("sqlite://")
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    with OutboxTest(outbox) as outbox_test, Session(engine) as session:
        with pytest.raises(UnsupportedTransaction, match=r"outbox_test\.join\(session\)"):
            outbox.write(OrderPlaced(1), tx=session)
        outbox_test.join(scoped_session(sessionmaker(engine)))
        with pytest.raises(UnsupportedTransaction, match="tx=session"), outbox.transaction():
            pass
        with pytest.raises(UnsupportedTransaction, match=r"pass the SQLAlchemy session or connection"):
            outbox_test.join("session")
        with pytest.raises(ColourMismatch, match="AsyncSession, and the outbox is blocking"):
            outbox_test.join(AsyncSession())
    engine.dispose()
