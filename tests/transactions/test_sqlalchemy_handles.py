"""Which objects of SQLAlchemy tx= takes, which it refuses, and that it refuses before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from aftercommit import AsyncOutbox, NotInTransaction, Outbox, SchemaMissing, UnsupportedTransaction
from aftercommit.events.ids import EventId, EventIds
from tests.support import World
from tests.transactions.sqlalchemy_kit import Base, Customer, Order, Shop, plain, statements


def only(shop: Shop, runtime: str) -> None:
    if shop.world.name != runtime:
        pytest.skip(f"of {runtime}")


def test_a_sync_session_gets_the_id_and_a_scoped_one_is_unwrapped(shop: Shop) -> None:
    only(shop, "threads")

    async def scenario() -> None:
        outbox = shop.outbox()
        sessions = scoped_session(sessionmaker(shop.engine))
        event_id = plain(outbox).write("T", '"1"', tx=sessions)
        ids = plain(outbox).write_all([], tx=sessions)
        assert (type(event_id), type(ids)) == (EventId, EventIds)
        sessions.commit()
        assert [row["event_id"] for row in shop.world.rows()] == [event_id]
        sessions.remove()

    shop.run(scenario)


def test_an_async_session_needs_no_await_and_allows_one(shop: Shop) -> None:
    only(shop, "asyncio")

    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()
        async with AsyncSession(shop.engine) as session:
            forgotten = outbox.write("T", '"1"', tx=session)
            awaited = await outbox.write("T", '"2"', tx=session)
            ids = await outbox.write_all([], tx=session)
            session.add(Customer(id=9))
            await session.commit()
        assert [row["event_id"] for row in shop.world.rows()] == [forgotten, awaited]
        assert ids == []
        await shop.seen.reach(2)
        scoped = async_scoped_session(async_sessionmaker(shop.engine), scopefunc=lambda: 1)
        outbox.write("T", '"3"', tx=scoped)
        await scoped.commit()
        await scoped.remove()
        await shop.seen.reach(3)

    shop.run(scenario)


def test_autocommit_isolation_is_no_transaction(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()
        by_option = shop.engine.execution_options(isolation_level="AUTOCOMMIT")
        by_engine = shop.new_engine(isolation_level="AUTOCOMMIT")
        for engine in (by_option, by_engine):

            def work(session: Session) -> None:
                with pytest.raises(NotInTransaction, match="execution_options"):
                    plain(outbox).write("T", '"1"', tx=session)
                assert not session.new

            await shop.in_session(work, engine)

        def of_the_connection(session: Session) -> None:
            session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
            plain(outbox).write("T", '"1"', tx=session)
            with pytest.raises(NotInTransaction):
                session.flush()

        await shop.in_session(of_the_connection)
        assert shop.committed() == []

    shop.run(scenario)


def test_a_driver_in_autocommit_mode_is_no_transaction(shop: Shop) -> None:
    if shop.world.database != "sqlite" and "asyncpg" in shop.engine_url:
        pytest.skip("asyncpg's own mode is SQLAlchemy's isolation level")

    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()
        if shop.world.database == "sqlite":
            engine = shop.bare_engine(connect_args={"isolation_level": None})  # and nobody says BEGIN
        else:
            engine = shop.bare_engine(connect_args={"autocommit": True})

        def work(session: Session) -> None:
            plain(outbox).write("T", '"1"', tx=session)
            with pytest.raises(NotInTransaction, match="autocommit"):
                session.flush()

        await shop.in_session(work, engine)
        assert shop.committed() == []

    shop.run(scenario)


def test_a_session_that_has_to_be_begun_or_rolled_back_is_refused(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()

        def not_begun(session: Session) -> None:
            with pytest.raises(NotInTransaction, match=r"with session\.begin"):
                plain(outbox).write("T", '"1"', tx=session)
            with session.begin():
                plain(outbox).write("T", '"2"', tx=session)

        def failed(session: Session) -> None:
            session.add_all([Customer(id=5), Customer(id=6)])
            session.flush()
            session.expunge_all()
            session.add(Customer(id=5))
            with pytest.raises(Exception, match="5"):
                session.begin_nested()
            with pytest.raises(NotInTransaction, match=r"session\.rollback"):
                plain(outbox).write("T", '"3"', tx=session)
            session.rollback()
            plain(outbox).write("T", '"4"', tx=session)
            session.commit()

        await shop.in_session(not_begun, autobegin=False)
        await shop.in_session(failed)
        await shop.seen.reach(2)
        assert sorted(shop.seen) == shop.committed() == ["2", "4"]

    shop.run(scenario)


def test_a_session_on_another_database_is_refused_with_both_names(shop: Shop, tmp_path: Path) -> None:
    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()
        other = create_engine(f"sqlite:///{tmp_path}/other.db")
        with Session(other) as session, pytest.raises(UnsupportedTransaction) as refused:
            plain(outbox).write("T", '"1"', tx=session)
        assert "other.db" in str(refused.value)
        assert outbox._store.where in str(refused.value)
        other.dispose()

    shop.run(scenario)


def test_a_database_is_known_by_its_id_whatever_its_address_says(
    shop: Shop, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """An engine of its own to the same database is fine; one to a database with another outbox is not."""

    async def scenario() -> None:
        outbox = shop.outbox(shop.world.url)
        await outbox.start()

        def right(session: Session) -> None:
            plain(outbox).write("T", '"1"', tx=session)
            session.commit()

        await shop.in_session(right)
        await shop.seen.reach(1)
        shop.world.change("UPDATE outbox_schema SET value = 'another' WHERE name = 'store_id'")

        def wrong(session: Session) -> None:
            plain(outbox).write("T", '"2"', tx=session)
            with pytest.raises(UnsupportedTransaction, match="each database has its own"):
                session.flush()

        try:
            if shop.world.database != "sqlite":  # where the file is the database
                await shop.in_session(wrong, shop.new_engine())
        finally:
            shop.world.change("UPDATE outbox_schema SET value = 'restored' WHERE name = 'store_id'")
        assert shop.committed() == ["1"]

    shop.run(scenario)


def test_of_several_engines_the_outboxs_own_is_taken(shop: Shop, tmp_path: Path) -> None:
    only(shop, "threads")

    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()
        other = create_engine(f"sqlite:///{tmp_path}/customers.db")
        Base.metadata.create_all(other)
        for options in ({}, {"bind": other}):
            with Session(**options, binds={Customer: other, Order: shop.engine}) as session:
                session.add_all([Customer(), Order()])
                plain(outbox).write("T", '"1"', tx=session)
                session.commit()
        await shop.seen.reach(2)
        with Session(binds={Customer: other}) as session, pytest.raises(UnsupportedTransaction):
            plain(outbox).write("T", '"2"', tx=session)
        with Session() as session, pytest.raises(UnsupportedTransaction, match="Session"):
            plain(outbox).write("T", '"2"', tx=session)
        assert shop.committed() == ["1", "1"]
        other.dispose()

    shop.run(scenario)


def test_a_commit_that_succeeds_here_and_fails_elsewhere_is_a_commit(shop: Shop, tmp_path: Path) -> None:
    """Two engines without two-phase commit: what is in the table is delivered, though the session raised; by the
    poller, once the lease has passed, since nobody could say which of them had failed."""
    only(shop, "threads")

    async def scenario() -> None:
        outbox = shop.outbox(poller_enabled=True, poll_interval="50ms", lock_timeout="500ms")
        await outbox.start()
        other = create_engine(f"sqlite:///{tmp_path}/customers.db")
        Base.metadata.create_all(other)
        for _ in range(6):  # the order of commits is not ours to choose
            with Session(binds={Customer: other, Order: shop.engine}) as session:
                session.add_all([Customer(), Order()])
                plain(outbox).write("T", '"1"', tx=session)
                session.flush()
                session.connection(bind_arguments={"mapper": Customer}).connection.driver_connection.close()
                with pytest.raises(Exception, match="closed"):
                    session.commit()
        await shop.seen.reach(len(shop.committed()))
        assert list(shop.seen) == shop.committed()
        other.dispose()

    shop.run(scenario)


def test_inside_somebody_elses_transaction_the_poller_delivers_after_its_commit(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = shop.outbox(poller_enabled=True, poll_interval="60s")
        await outbox.start()

        def work(connection: Any) -> None:
            with Session(connection) as session:
                plain(outbox).write("T", '"1"', tx=session)
                session.commit()
            assert connection.execute(text("SELECT locked_by FROM outbox_event")).all() == [(None,)]
            assert (list(shop.seen), shop.committed()) == ([], [])

        await shop.on_connection(work)
        await shop.seen.reach(1)

        def undone(connection: Any) -> None:
            with Session(connection) as session:
                plain(outbox).write("T", '"2"', tx=session)
                session.commit()
            connection.rollback()

        await shop.on_connection(undone)
        assert (list(shop.seen), shop.committed()) == (["1"], ["1"])

    shop.run(scenario)


def test_the_table_must_be_there_before_an_async_session_writes_to_a_file(tmp_path: Path) -> None:
    shop = Shop("sqlite-asyncio", tmp_path)

    async def scenario() -> None:
        outbox = shop.outbox()
        async with AsyncSession(shop.engine) as session:
            outbox.write("T", '"1"', tx=session)
            with pytest.raises(SchemaMissing, match="create_schema"):
                await session.commit()

    shop.run(scenario)


def test_an_outbox_that_was_never_started_makes_its_table_for_a_session(tmp_path: Path) -> None:
    shop = Shop("sqlite-threads", tmp_path)

    async def scenario() -> None:
        outbox = shop.outbox()

        def work(session: Session) -> None:
            session.add(Customer(id=1))
            plain(outbox).write("T", '"1"', tx=session)
            session.commit()

        def late(session: Session) -> None:
            session.execute(text("SELECT 1"))
            plain(outbox).write("T", '"1"', tx=session)
            with pytest.raises(SchemaMissing, match="create_schema"):
                session.flush()

        await shop.in_session(late)  # whose engine says BEGIN
        await shop.in_session(work, shop.bare_engine())
        await outbox.drain()
        assert list(shop.seen) == ["1"]

    shop.run(scenario)


def test_whether_the_table_is_there_is_asked_once(tmp_path: Path) -> None:
    """Also of an outbox that only ever writes, inside transactions that were begun before, and so is never opened."""
    shop = Shop("sqlite-threads", tmp_path)

    async def scenario() -> None:
        maker, outbox = shop.outbox(), shop.outbox()
        await maker.create_schema()
        ran = statements(shop.engine)

        def work(session: Session) -> None:
            session.execute(text("SELECT 1"))
            plain(outbox).write("T", '"1"', tx=session)
            session.commit()

        for _ in range(3):
            await shop.in_session(work)
        assert sum("store_id" in sql for sql, _ in ran) == 1
        assert len(shop.committed()) == 3

    shop.run(scenario)


@pytest.mark.parametrize("kind", [Outbox, AsyncOutbox])
def test_a_session_of_the_other_colour_is_as_good(tmp_path: Path, kind: Any) -> None:
    """The session inserts; the outbox only has to hear of it."""
    shop = Shop("sqlite-asyncio" if kind is Outbox else "sqlite-threads", tmp_path)
    world = World("threads" if kind is Outbox else "asyncio", tmp_path)

    async def scenario() -> None:
        outbox = world.outbox()
        await outbox.create_schema()

        def work(session: Session) -> None:
            plain(outbox).write("T", '"1"', tx=session)
            session.commit()

        if kind is AsyncOutbox:
            with Session(shop.engine) as session:
                work(session)
            shop.engine.dispose()
        else:

            async def inner() -> None:
                async with AsyncSession(shop.engine) as session:
                    await session.run_sync(work)
                await shop.engine.dispose()

            import asyncio

            asyncio.run(inner())
        assert shop.committed() == ["1"]

    world.run(scenario)


def test_an_async_outbox_that_was_never_opened_says_that_a_blocking_session_cannot_wait_for_it(
    postgres_url: str, tmp_path: Path
) -> None:
    shop = Shop("postgres-threads", tmp_path, postgres_url)
    world = World("asyncio", tmp_path, "postgres", postgres_url)
    shop.world.somebody.clear()

    async def scenario() -> None:
        outbox = world.outbox()
        with Session(shop.engine) as session:
            outbox.write("T", '"1"', tx=session)
            with pytest.raises(UnsupportedTransaction, match=r"not been opened(.|\n)*Fix: await outbox\.start\(\)"):
                session.commit()
        await outbox.create_schema()
        with Session(shop.engine) as session:
            outbox.write("T", '"2"', tx=session)
            session.commit()
        assert shop.committed() == ["2"]

    world.run(scenario)
    shop.engine.dispose()
    for each in (world, shop.world):
        each.somebody.close()


def test_outside_a_transaction_the_advice_is_for_the_colour_and_the_library(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = shop.outbox()
        block, call = ("async with", "await ") if shop.is_async else ("with", "")
        with pytest.raises(NotInTransaction) as caught:
            plain(outbox).write("T", {})
        own = f"{block} outbox.transaction() as tx: …; {call}outbox.write(event)"
        assert caught.value.fix == f"{call}outbox.write(event, tx=session), or {own}"
        async with outbox.transaction() as tx:
            pass
        for use in (lambda: tx.after_commit(print), lambda: tx.connection):
            with pytest.raises(NotInTransaction) as caught:
                use()
            assert caught.value.fix == f"{block} outbox.transaction() as tx: …"

    shop.run(scenario)
