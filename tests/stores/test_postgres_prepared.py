"""Events are written past psycopg's cursors once the statement is prepared: that must save time, and change nothing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg import generators
from psycopg.pq import ExecStatus
from psycopg.types.string import StrDumper

from aftercommit import AsyncOutbox, EventEnvelope, Outbox
from aftercommit.errors import StoreUnavailable
from aftercommit.runtime.threads import run
from aftercommit.stores.postgres import psycopg_link
from aftercommit.stores.postgres.psycopg_link import PsycopgLink

#: psycopg prepares by itself what it has seen five times.
ENOUGH = 8


class Counted:
    """How often cursors are asked to write events."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cursor: Any) -> None:
        self.count = 0
        execute = cursor.execute

        def counted(own: Any, query: Any, *rest: Any, **more: Any) -> Any:
            self.count += "outbox_event" in str(query)
            return execute(own, query, *rest, **more)

        monkeypatch.setattr(cursor, "execute", counted)


@pytest.fixture
def outbox(postgres_url: str) -> Any:
    outbox = Outbox(postgres_url, create_schema=True)
    outbox.create_schema()
    yield outbox
    outbox.close()


@pytest.fixture
def connection(postgres_url: str, outbox: Outbox) -> Any:
    with psycopg.connect(postgres_url) as connection:
        yield connection


def written(outbox: Outbox, connection: Any, event: Any = None) -> str:
    event_id = outbox.write(EventEnvelope.of_json("T", "{}") if event is None else event, tx=connection)
    assert event_id is not None
    return event_id


def prepared(outbox: Outbox, connection: Any) -> None:
    """So often that the next one needs no cursor."""
    connection.execute("SELECT 1")  # the first statement of a transaction is a cursor's
    for _ in range(ENOUGH):
        written(outbox, connection)


def test_a_prepared_event_needs_no_cursor(outbox: Outbox, connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared(outbox, connection)
    with outbox.transaction():
        for _ in range(ENOUGH):
            outbox.write("T", {"a": 1})
    seen = Counted(monkeypatch, psycopg.Cursor)
    event_id = written(outbox, connection)
    connection.commit()
    with outbox.transaction():
        own_id = outbox.write("T", {"a": 1})
    assert seen.count == 0
    assert [len(outbox.records.find(str(each))) for each in (event_id, own_id)] == [1, 1]


def test_a_prepared_event_needs_no_cursor_in_a_task(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        outbox = AsyncOutbox(postgres_url, create_schema=True)
        await outbox.create_schema()
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            await connection.execute("SELECT 1")
            for _ in range(ENOUGH):
                await outbox.write("T", "{}", tx=connection)
            seen = Counted(monkeypatch, psycopg.AsyncCursor)
            event_id = await outbox.write("T", "{}", tx=connection)
            assert seen.count == 0
            with pytest.raises(psycopg.errors.UniqueViolation):
                await outbox.write(EventEnvelope("T", payload_json="{}", event_id=event_id), tx=connection)
            assert seen.count == 0, "it was sent by the same way"
            await connection.rollback()
        await outbox.close()

    asyncio.run(scenario())


def test_what_was_prepared_is_stored_as_it_is(outbox: Outbox, connection: Any) -> None:
    born = datetime(2001, 2, 3, 4, 5, 6, 789, UTC)
    event = EventEnvelope(
        "Ün type",
        payload_json='{"é": "\\u0000 \' \\" \\\\ 😀"}',
        occurred_at=born,
        key="a'b\\c;--",
        aggregate_type="Ä",
        aggregate_id="%s $1",
        headers={"h": "ö'"},
    )
    prepared(outbox, connection)
    event_id = written(outbox, connection, event)
    connection.commit()
    (found,) = outbox.records.find(event_id)
    assert found.payload == event.payload
    assert (found.event_type, found.key, found.aggregate_id) == (event.event_type, event.key, "%s $1")
    assert (found.occurred_at, dict(found.headers)) == (born, {"h": "ö'"})


@pytest.mark.parametrize("words", ["DEALLOCATE ALL", "ROLLBACK", "DISCARD ALL"])
def test_what_was_thrown_away_is_prepared_anew(outbox: Outbox, connection: Any, words: str) -> None:
    prepared(outbox, connection)
    connection.rollback() if words == "ROLLBACK" else connection.commit()
    if words != "ROLLBACK":
        connection.autocommit = True
        connection.execute(words)
        connection.autocommit = False
    prepared(outbox, connection)
    event_id = written(outbox, connection)
    connection.commit()
    assert outbox.records.find(event_id)


def test_a_statement_of_the_users_may_be_thrown_out_for_ours_and_the_other_way_round(
    outbox: Outbox, connection: Any
) -> None:
    connection.prepared_max = 2
    for number in range(4):
        prepared(outbox, connection)
        for _ in range(ENOUGH):
            connection.execute(f"SELECT {number}, %s::int", (1,))
    event_id = written(outbox, connection)
    connection.commit()
    assert outbox.records.find(event_id)


def test_who_lets_nothing_be_prepared_is_heard(
    outbox: Outbox, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(outbox, connection)
    connection.prepare_threshold = None
    seen = Counted(monkeypatch, psycopg.Cursor)
    written(outbox, connection)
    assert seen.count == 1


def test_an_error_is_raised_by_write_as_the_driver_says_it(outbox: Outbox, connection: Any) -> None:
    prepared(outbox, connection)
    event_id = written(outbox, connection)
    with pytest.raises(psycopg.errors.UniqueViolation, match=event_id):
        written(outbox, connection, EventEnvelope("T", payload_json="{}", event_id=event_id))
    connection.rollback()
    assert not outbox.records.find(event_id)


def test_another_encoding_is_the_cursors(outbox: Outbox, connection: Any) -> None:
    connection.execute("SET client_encoding TO latin1")
    prepared(outbox, connection)
    event_id = written(outbox, connection, EventEnvelope.of_json("T", '"é"'))
    connection.commit()
    (found,) = outbox.records.find(event_id)
    assert found.payload == '"é"'
    with pytest.raises(UnicodeEncodeError):
        written(outbox, connection, EventEnvelope.of_json("T", '"😀"'))
    connection.rollback()


def test_a_pipeline_takes_events_along(outbox: Outbox, connection: Any) -> None:
    prepared(outbox, connection)
    connection.commit()
    with connection.pipeline():
        connection.execute("SELECT 1")
        event_id = written(outbox, connection)
        connection.commit()
    assert outbox.records.find(event_id)


def test_ways_of_the_users_to_send_text_do_not_change_what_is_written(outbox: Outbox, connection: Any) -> None:
    connection.adapters.register_dumper(str, StrDumper)  # which says that all of it is text
    prepared(outbox, connection)
    event_id = written(outbox, connection)
    connection.commit()
    assert outbox.records.find(event_id)


def test_text_that_postgres_cannot_have_is_refused_and_not_cut(connection: Any) -> None:
    link = PsycopgLink(connection)
    connection.execute("CREATE TEMPORARY TABLE texts (words text)")
    for _ in range(ENOUGH):
        run(link.execute("INSERT INTO texts VALUES (%s)", ("a",)))
    with pytest.raises(psycopg.DataError):
        run(link.execute("INSERT INTO texts VALUES (%s)", ("a\0b",)))


def test_a_session_that_is_ended_right_behind_an_event_is_an_outage(
    outbox: Outbox, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event is one answer, and the end of its session another, which is no success."""
    prepared(outbox, connection)

    def ending(pgconn: Any) -> Any:
        answers = yield from execute(pgconn)
        last = pgconn.make_empty_result(ExecStatus.FATAL_ERROR)
        pgconn.finish()
        return [*answers, last]

    execute = generators.execute
    monkeypatch.setattr(psycopg_link.generators, "execute", ending)
    with pytest.raises(StoreUnavailable):
        written(outbox, connection)
