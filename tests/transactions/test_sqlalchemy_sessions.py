"""tx=session: an event is part of the unit of work, and is delivered from memory once that is committed."""

from __future__ import annotations

import gc
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import NullPool, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from aftercommit import WriterHook
from aftercommit.events.ids import EventId
from tests.transactions.kit import free_slots, hot_count
from tests.transactions.sqlalchemy_kit import Customer, Shop, plain, statements, sync_engine


def test_a_committed_event_is_delivered_from_memory(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()

        def work(session: Session) -> None:
            session.add(Customer(id=1))
            plain(outbox).write("T", '"one"', tx=session)
            session.commit()

        await shop.in_session(work)
        await shop.seen.reach(1)
        assert (hot_count(outbox), list(shop.seen), shop.committed()) == (1, ["one"], ["one"])

    shop.run(scenario)


def test_the_event_is_on_its_way_before_the_users_own_hooks_hear_of_the_commit(shop: Shop) -> None:
    """And at no release of a savepoint, of which they hear in the same words."""

    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()
        counts: list[int] = []

        def work(session: Session) -> None:
            event.listen(session, "after_commit", lambda _: counts.append(hot_count(outbox)))
            with session.begin_nested():
                plain(outbox).write("T", '"one"', tx=session)
            session.commit()

        await shop.in_session(work)
        assert counts == [0, 1]

    shop.run(scenario)


def test_nothing_is_inserted_before_the_flush_and_ten_writes_are_one_insert(shop: Shop) -> None:
    """MariaDB gets all rows in its text, since SQLAlchemy asks it for positions; the others get one statement and ten
    sets of values by the driver's executemany. MySQL itself returns nothing, and its drivers send rows with a clock in
    them one by one."""

    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()
        ran = statements(shop.engine)

        def work(session: Session) -> None:
            for number in range(10):
                plain(outbox).write("T", f'"{number}"', tx=session)
            assert not [sql for sql, _ in ran if "outbox_event" in sql]
            session.commit()

        await shop.in_session(work)
        inserts = [(sql.count("), ("), many) for sql, many in ran if sql.startswith("INSERT") and "outbox_event" in sql]
        dialect = sync_engine(shop.engine).dialect
        if dialect.name == "mysql":
            assert inserts == ([(9, True)] if dialect.is_mariadb else [(0, False)] * 10)
        else:
            assert inserts == [(0, True)]
        assert shop.committed() == [str(number) for number in range(10)]

    shop.run(scenario)


def test_what_is_inserted_is_what_the_store_itself_inserts(shop: Shop) -> None:
    """Column by column, but for ids, positions and times of the clock."""
    later = datetime.now(UTC) + timedelta(days=3, microseconds=7)
    events: list[dict[str, Any]] = [
        {"payload": {"a": "ä€😀"}, "key": "k", "headers": {"h": "v"}, "tenant_id": "t"},
        {"payload": b"\x00\xff'\\", "aggregate_type": "Order", "aggregate_id": "7"},
        {"payload": 1, "available_at": later},
        {"payload": 1, "deliver_after": "2h"},
        {"payload": "null"},
    ]

    async def scenario() -> None:
        outbox = shop.outbox(hot_path=True)
        outbox.register("Other", shop.seen.add)  # routed, so that "T" and "Other" rows are born leased
        await outbox.start()
        for each in events:
            async with outbox.transaction() as tx:
                await outbox.write("Nobody", each["payload"], tx=tx, **_rest(each))

        def work(session: Session) -> None:
            for each in events:
                plain(outbox).write("Nobody", each["payload"], tx=session, **_rest(each))
            session.commit()

        await shop.in_session(work)
        rows = shop.world.rows()
        ours, theirs = rows[: len(events)], rows[len(events) :]
        assert len(theirs) == len(events)
        for one, other in zip(ours, theirs, strict=True):
            assert _comparable(one) == _comparable(other)
            assert abs(shop.world.now() - other["created_at"]) < 60_000_000

    shop.run(scenario)


def _comparable(row: Any) -> dict[str, Any]:
    """Times that the clock gives are told by their distances."""
    names = set(row.keys()) - {"position", "event_id", "partition_no", "order_key"}
    cells = {name: row[name] for name in names}
    born, occurred = cells.pop("created_at"), cells.pop("occurred_at")
    if cells["scheduled_at"] != cells["available_at"]:  # not a time that was given as it is
        cells["available_at"] -= born
        cells["scheduled_at"] = cells["scheduled_at"] and cells["scheduled_at"] - occurred
    return cells


def _rest(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "payload"}


def test_a_row_that_waits_for_its_commit_in_memory_is_leased_as_by_the_store(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = shop.outbox(lock_timeout="40s")
        await outbox.start()
        leases: list[Any] = []

        def work(session: Session) -> None:
            plain(outbox).write("T", '"x"', tx=session)
            session.flush()
            sql = "SELECT locked_by, lease_epoch FROM outbox_event"
            leases.append(tuple(session.execute(text(sql)).one()))
            session.commit()

        await shop.in_session(work)
        assert leases == [(outbox._engine.owner, 1)]
        await shop.seen.reach(1)
        await shop.world.until_settled(1)

    shop.run(scenario)


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("end", ["rollback", "close", "expunge_all", "forgotten"])
def test_what_is_not_committed_is_neither_saved_nor_delivered_and_its_slot_is_free_again(
    shop: Shop, end: str, flushed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if end == "forgotten" and shop.is_async:
        pytest.skip("an async connection that nobody closes is SQLAlchemy's own warning")
    if end == "expunge_all" and flushed:
        pytest.skip("a row that was inserted is not lost by leaving the session")
    ids: list[str] = []

    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()
        free = free_slots(outbox)

        def work(session: Session) -> None:
            ids.append(plain(outbox).write("T", '"lost"', tx=session))
            if flushed:
                session.flush()
            assert free_slots(outbox) == free - 1
            if end != "forgotten":
                getattr(session, end)()

        if end == "forgotten":
            work(Session(shop.engine))
            gc.collect()
        else:
            await shop.in_session(work)

        def again(session: Session) -> None:
            plain(outbox).write("T", '"kept"', tx=session)
            session.commit()

        await shop.in_session(again)
        await shop.seen.reach(1)
        assert (list(shop.seen), shop.committed(), free_slots(outbox)) == (["kept"], ["kept"], free)

    with caplog.at_level(logging.WARNING, "aftercommit.transactions"):
        shop.run(scenario)
    warned = [record.getMessage() for record in caplog.records if record.name == "aftercommit.transactions"]
    if end in ("close", "expunge_all"):
        (line,) = warned
        assert f"T {ids[0]}" in line
        assert "session.commit()" in line
    else:
        assert warned == []


def test_a_savepoint_takes_its_events_with_it(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()
        free = free_slots(outbox)

        def work(session: Session) -> None:
            write = plain(outbox).write
            write("T", '"before"', tx=session)
            undone = session.begin_nested()
            write("T", '"undone"', tx=session)
            session.flush()
            write("T", '"never inserted"', tx=session)
            undone.rollback()
            with session.begin_nested():
                write("T", '"released"', tx=session)
            assert list(shop.seen) == []
            write("T", '"behind"', tx=session)
            session.commit()

        await shop.in_session(work)
        assert hot_count(outbox) == 3
        await shop.seen.reach(3)
        assert sorted(shop.seen) == sorted(shop.committed()) == ["before", "behind", "released"]
        await shop.world.until_settled(3)
        assert free_slots(outbox) == free

    shop.run(scenario)


def test_events_that_were_written_in_the_users_own_hooks_are_saved(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()

        def work(session: Session) -> None:
            @event.listens_for(session, "before_flush")
            def flushing(flushed: Session, *_: Any) -> None:
                if any(isinstance(each, Customer) for each in flushed.new):
                    plain(outbox).write("T", '"before_flush"', tx=flushed)

            @event.listens_for(session, "before_commit")
            def committing(committed: Session) -> None:
                if not committed.in_nested_transaction():
                    plain(outbox).write("T", '"before_commit"', tx=committed)

            session.add(Customer(id=3))
            session.commit()

        await shop.in_session(work)
        await shop.seen.reach(2)
        assert sorted(shop.seen) == sorted(shop.committed()) == ["before_commit", "before_flush"]

    shop.run(scenario)


def test_a_statement_that_failed_and_was_passed_over_takes_the_events_as_the_database_does(shop: Shop) -> None:
    """PostgreSQL answers the COMMIT of a failed transaction with a rollback, and no error."""

    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()
        free = free_slots(outbox)

        def work(session: Session) -> None:
            plain(outbox).write("T", '"x"', tx=session)
            session.flush()
            with pytest.raises(DBAPIError):
                session.execute(text("SELECT nothing FROM nowhere"))
            session.commit()

        await shop.in_session(work)
        expected = [] if shop.world.database == "postgres" else ["x"]
        assert hot_count(outbox) == len(expected)
        await shop.seen.reach(len(expected))
        assert (list(shop.seen), shop.committed()) == (expected, expected)
        await shop.world.until_settled(len(expected))
        assert free_slots(outbox) == free

    shop.run(scenario)


def test_a_savepoint_of_the_connection_below_the_session_is_seen(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()

        def work(session: Session) -> None:
            savepoint = session.connection().begin_nested()
            plain(outbox).write("T", '"undone"', tx=session)
            session.flush()
            savepoint.rollback()
            plain(outbox).write("T", '"kept"', tx=session)
            session.commit()

        await shop.in_session(work)
        await shop.seen.reach(1)
        assert (hot_count(outbox), list(shop.seen), shop.committed()) == (1, ["kept"], ["kept"])

    shop.run(scenario)


def test_the_phases_of_a_hook_follow_the_session(shop: Shop) -> None:
    class Hook(WriterHook):
        def __init__(self) -> None:
            self.phases: list[tuple[str, str]] = []

        def before_write(self, events: list[Any]) -> list[Any]:
            return [each for each in events if each.payload_json != '"dropped"']

        def after_write(self, events: list[Any]) -> None:
            self.phases += [("write", each.payload_json) for each in events]

        def after_commit(self, events: list[Any]) -> None:
            self.phases += [("commit", each.payload_json) for each in events]

        def after_rollback(self, events: list[Any]) -> None:
            self.phases += [("rollback", each.payload_json) for each in events]

    hook = Hook()

    async def scenario() -> None:
        outbox = shop.outbox(writer_hook=hook)
        await outbox.create_schema()

        def work(session: Session) -> None:
            write = plain(outbox).write
            dropped = write("T", '"dropped"', tx=session)
            assert not isinstance(dropped, EventId)
            write("T", '"1"', tx=session)
            session.commit()
            write("T", '"2"', tx=session)
            session.rollback()

        await shop.in_session(work)
        assert hook.phases == [("write", '"1"'), ("commit", '"1"'), ("write", '"2"'), ("rollback", '"2"')]

    shop.run(scenario)


@pytest.mark.parametrize("end", ["rollback", "close"])
def test_a_listener_that_raises_before_the_commit_is_no_commit(shop: Shop, end: str) -> None:
    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()
        engine = shop.new_engine(poolclass=NullPool)  # a pool would keep the transaction open, and so the connection

        def work(session: Session) -> None:
            plain(outbox).write("T", '"x"', tx=session)
            session.flush()

            @event.listens_for(sync_engine(engine), "commit")
            def refuse(connection: Any) -> None:
                raise LookupError("not now")

            with pytest.raises(LookupError):
                session.commit()
            getattr(session, end)()

        await shop.in_session(work, engine)
        assert (hot_count(outbox), list(shop.seen), shop.committed()) == (0, [], [])

    shop.run(scenario)


def test_a_listener_that_turns_errors_into_others_changes_nothing(shop: Shop) -> None:
    """A failed COMMIT is known although the user's own listener raises before others hear of it."""

    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()

        @event.listens_for(sync_engine(shop.engine), "handle_error")
        def translate(context: Any) -> None:
            raise LookupError("translated")

        def work(session: Session) -> None:
            plain(outbox).write("T", '"x"', tx=session)
            session.flush()
            with pytest.raises(LookupError):
                session.execute(text("SELECT nothing FROM nowhere"))
            session.rollback()

        await shop.in_session(work)
        assert (hot_count(outbox), list(shop.seen), shop.committed()) == (0, [], [])

    shop.run(scenario)
