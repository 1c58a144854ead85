"""write() in atomic blocks: what is committed is delivered, what is rolled back is not, on every database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, connections, transaction
from django.test.utils import CaptureQueriesContext

from aftercommit import EventEnvelope, NotInTransaction, UnsupportedTransaction
from aftercommit.hooks import WriterHook
from aftercommit.runtime.threads import run
from tests.databases import Database
from tests.django.shop.models import Order
from tests.support import Collector

Make = Callable[..., Any]


class Undo(Exception):
    """Rolls a block back."""


def started(make: Make, alias: str, **options: Any) -> tuple[Any, Collector]:
    outbox, seen = make(alias, worker_count=1, **options), Collector()
    outbox.register("Placed", lambda event: seen.add(event.payload_json))
    return outbox.start(), seen


def slots_free(outbox: Any) -> bool:
    """Whether every slot of the hot lane that a write reserved was used or given back."""
    lanes = outbox._engine.dispatcher.lanes
    return bool(lanes._reserved == 0)


def reach(seen: Collector, count: int) -> None:
    run(seen.reach(count))


def test_a_commit_delivers_from_memory(alias: str, make_outbox: Make, somebody: Database) -> None:
    outbox, seen = started(make_outbox, alias, poller_enabled=False)
    with transaction.atomic(using=alias):
        Order.objects.using(alias).create(number=7)
        event_id = outbox.write("Placed", {"order": 7})
        assert seen == []
        assert [row["event_id"] for row in somebody.read("SELECT event_id FROM outbox_event")] == []
    reach(seen, 1)
    assert seen == ['{"order":7}']
    outbox.drain()
    assert [(row["event_id"], row["status"]) for row in somebody.read("SELECT event_id, status FROM outbox_event")] == [
        (event_id, 1)
    ]


def test_a_rollback_takes_the_event_and_gives_its_slot_back(alias: str, make_outbox: Make, somebody: Database) -> None:
    outbox, seen = started(make_outbox, alias)
    with pytest.raises(Undo), transaction.atomic(using=alias):
        outbox.write("Placed", {"order": 7})
        assert not slots_free(outbox)
        raise Undo
    assert slots_free(outbox)
    outbox.drain()
    assert (seen, somebody.read("SELECT event_id FROM outbox_event")) == ([], [])


def test_a_savepoint_takes_its_own_events_with_it(alias: str, make_outbox: Make) -> None:
    outbox, seen = started(make_outbox, alias, poller_enabled=False)
    with transaction.atomic(using=alias):
        outbox.write("Placed", 1)
        with pytest.raises(Undo), transaction.atomic(using=alias):
            outbox.write("Placed", 2)
            with transaction.atomic(using=alias):
                outbox.write("Placed", 3)
            raise Undo
        with transaction.atomic(using=alias):
            outbox.write("Placed", 4)
        outbox.write("Placed", 5)
        begin = getattr(transaction, "savepoint_create", None) or transaction.savepoint  # its name before Django 6.1
        by_hand = begin(using=alias)
        outbox.write("Placed", 6)
        transaction.savepoint_rollback(by_hand, using=alias)
    reach(seen, 3)
    outbox.drain()
    assert seen == ["1", "4", "5"]
    assert slots_free(outbox)


# InnoDB checks constraints with the statement, never at COMMIT.
@pytest.mark.parametrize("alias", ["sqlite", "postgres"], indirect=True)
def test_a_commit_that_fails_delivers_nothing(alias: str, make_outbox: Make, somebody: Database) -> None:
    outbox, seen = started(make_outbox, alias)
    with pytest.raises(IntegrityError), transaction.atomic(using=alias):
        outbox.write("Placed", {"order": 7})
        Order.objects.using(alias).create(number=7, customer_id=404)
    assert slots_free(outbox)
    outbox.drain()
    assert (seen, somebody.read("SELECT event_id FROM outbox_event")) == ([], [])


def test_a_function_of_the_users_that_raises_does_not_hide_the_commit(alias: str, make_outbox: Make) -> None:
    outbox, seen = started(make_outbox, alias, poller_enabled=False)

    def boom() -> None:
        raise Undo

    with pytest.raises(Undo), transaction.atomic(using=alias):
        transaction.on_commit(boom, using=alias)
        outbox.write("Placed", 1)
        outbox.write("Placed", 2)
    reach(seen, 2)
    assert seen == ["1", "2"]


def test_rows_that_were_undone_unseen_are_not_delivered(alias: str, make_outbox: Make, somebody: Database) -> None:
    """PostgreSQL answers COMMIT with ROLLBACK after an error; elsewhere somebody sends a ROLLBACK as text."""
    outbox, seen = started(make_outbox, alias)
    told: list[str] = []

    class Hook(WriterHook):
        def after_commit(self, events: list[EventEnvelope]) -> None:
            told.append("committed")

        def after_rollback(self, events: list[EventEnvelope]) -> None:
            told.append("rolled back")

    hooked = make_outbox(alias, writer_hook=Hook())
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute("SAVEPOINT mine")
        outbox.write("Placed", 1)
        hooked.write("Placed", 2)
        if alias == "postgres":
            with pytest.raises(Exception, match="division by zero"):
                cursor.execute("SELECT 1 / 0")
        else:
            cursor.execute("ROLLBACK TO SAVEPOINT mine")
    assert told == ["rolled back"]
    assert slots_free(outbox)
    outbox.drain()
    assert (seen, somebody.read("SELECT event_id FROM outbox_event")) == ([], [])


def test_rows_in_doubt_that_are_there_are_delivered(alias: str, make_outbox: Make) -> None:
    outbox, seen = started(make_outbox, alias, poller_enabled=False)
    with transaction.atomic(using=alias):
        outbox.write("Placed", 1)
        with pytest.raises(Exception, match="nowhere"), transaction.atomic(using=alias):
            connections[alias].cursor().execute("SELECT * FROM nowhere")
    reach(seen, 1)
    assert slots_free(outbox)


def test_rows_that_cannot_be_looked_for_are_left_to_the_poller(
    file_alias: str, make_outbox: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    outbox, seen = started(make_outbox, file_alias, lock_timeout="500ms", poll_interval="50ms")
    with transaction.atomic(using=file_alias):
        outbox.write("Placed", 1)
        with pytest.raises(Undo), transaction.atomic(using=file_alias):
            raise Undo
        monkeypatch.setattr(outbox._djangos, "surviving", None)
    assert slots_free(outbox)
    assert "left until their lease is over" in caplog.text
    reach(seen, 1)
    assert seen == ["1"]


def test_many_events_are_one_statement(alias: str, make_outbox: Make) -> None:
    outbox, seen = started(make_outbox, alias)
    events = [EventEnvelope("Placed", payload_json=str(number)) for number in range(20)]
    with CaptureQueriesContext(connections[alias]) as queries, transaction.atomic(using=alias):
        ids = outbox.write_all(events)
    assert len([query for query in queries if "INSERT INTO" in query["sql"]]) == 1
    reach(seen, 20)
    assert ids == [event.event_id for event in events]
    assert seen == [str(number) for number in range(20)]


def test_of_many_events_all_are_written_or_none(alias: str, make_outbox: Make, somebody: Database) -> None:
    outbox = make_outbox(alias)
    twice = EventEnvelope("Placed", payload_json="2")
    with transaction.atomic(using=alias):
        outbox.write("Placed", 1)
        with pytest.raises(IntegrityError), transaction.atomic(using=alias, savepoint=alias == "postgres"):
            outbox.write_all([EventEnvelope("Placed", payload_json="0"), twice, twice])
        transaction.set_rollback(False, using=alias)  # the user says that nothing is wrong
    assert [row["payload"] for row in somebody.read("SELECT payload FROM outbox_event")] == ["1"]


def test_bytes_and_times_come_through(alias: str, make_outbox: Make) -> None:
    outbox, seen = make_outbox(alias), []
    outbox.register("Picture", lambda event: seen.append((event.payload_bytes, event.occurred_at)))
    one = EventEnvelope("Picture", payload_bytes=b"\x00\xff'%s?\\")
    two = EventEnvelope("Picture", payload_bytes="ü % ? 😀".encode())
    with transaction.atomic(using=alias):
        outbox.write(one)
        outbox.write_all([two])
    outbox.drain()
    assert seen == [(each.payload_bytes, each.occurred_at) for each in (one, two)]


def test_without_a_block_nothing_is_written(alias: str, make_outbox: Make, somebody: Database) -> None:
    outbox = make_outbox(alias)
    with pytest.raises(NotInTransaction) as caught:
        outbox.write("Placed", {"order": 7})
    assert f"with transaction.atomic(using={alias!r}):" in caught.value.fix
    with transaction.atomic(using="default"), pytest.raises(NotInTransaction, match=f"'{alias}' .there is one on 'def"):
        outbox.write("Placed", {"order": 7})
    assert somebody.read("SELECT event_id FROM outbox_event") == []


def test_without_autocommit_there_is_a_transaction(alias: str, make_outbox: Make, somebody: Database) -> None:
    outbox, seen = started(make_outbox, alias)
    transaction.set_autocommit(False, using=alias)
    try:
        Order.objects.using(alias).create(number=1)
        outbox.write("Placed", 1)
        transaction.rollback(using=alias)
        Order.objects.using(alias).create(number=2)
        outbox.write("Placed", 2)
        with transaction.atomic(using=alias):
            outbox.write("Placed", 3)
        transaction.commit(using=alias)
        reach(seen, 2)  # Django runs on_commit functions only when autocommit is back
    finally:
        transaction.set_autocommit(True, using=alias)
    assert sorted(seen) == ["2", "3"]


def test_a_connection_may_be_named_and_must_be_the_right_one(alias: str, make_outbox: Make) -> None:
    outbox = make_outbox(alias)
    with transaction.atomic(using=alias), transaction.atomic(using="default"):
        assert outbox.write("Placed", 1, tx=connections[alias])
        with pytest.raises(UnsupportedTransaction, match=f"'default', this outbox is of '{alias}'"):
            outbox.write("Placed", 1, tx=connections["default"])


@pytest.mark.parametrize("alias", ["sqlite"], indirect=True)
@pytest.mark.parametrize("is_own", [True, False])
def test_a_connection_of_a_driver_is_asked_whose_it_is(
    alias: str, make_outbox: Make, somebody: Database, tmp_path: Path, is_own: bool
) -> None:
    """Of SQLite too, where there is no server to ask."""
    outbox = make_outbox(alias)
    path = connections[alias].settings_dict["NAME"] if is_own else tmp_path / "another.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("BEGIN")
        with nullcontext() if is_own else pytest.raises(UnsupportedTransaction, match=r"another\.db"):
            outbox.write("Placed", 1, tx=raw)
        raw.execute("COMMIT")
    assert len(somebody.read("SELECT event_id FROM outbox_event")) == int(is_own)


def test_a_transaction_is_an_atomic_block(alias: str, make_outbox: Make, somebody: Database) -> None:
    outbox = make_outbox(alias)
    with outbox.transaction():
        outbox.write("Placed", 1)
        with pytest.raises(Undo), outbox.transaction():
            outbox.write("Placed", 2)
            raise Undo
    with pytest.raises(UnsupportedTransaction):
        outbox.begin()
    assert [row["payload"] for row in somebody.read("SELECT payload FROM outbox_event")] == ["1"]
