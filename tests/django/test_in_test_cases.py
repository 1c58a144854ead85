"""Tests of users: inside a TestCase nothing is ever committed, and drain() delivers all the same."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
from django.db import connections, transaction

from aftercommit import DeadLetter, Fixed, UnknownStore
from tests.databases import Database
from tests.django import kit
from tests.django.shop.models import Order

Make = Callable[..., Any]

current: ContextVar[str] = ContextVar("current")


def recording(make: Make, alias: str, **options: Any) -> tuple[Any, list[str]]:
    outbox, seen = make(alias, **options), []
    outbox.register("Placed", lambda event: seen.append(event.payload_json))
    return outbox, seen


def test_drain_delivers_what_the_test_wrote(alias: str, make_outbox: Make, somebody: Database) -> None:
    outbox, seen = recording(make_outbox, alias)

    def test(case: Any) -> None:
        with transaction.atomic(using=alias):
            Order.objects.using(alias).create(number=7)
            outbox.write("Placed", {"order": 7})
        result = outbox.drain()
        assert (seen, result.delivered, result.is_complete) == (['{"order":7}'], 1, True)
        assert outbox.drain().delivered == 0
        assert outbox.stats().backlog.new == 0

    kit.in_test_case(alias, test)
    assert somebody.read("SELECT event_id FROM outbox_event") == []


def test_a_block_of_the_test_itself_will_do(alias: str, make_outbox: Make) -> None:
    outbox, seen = recording(make_outbox, alias)

    def test(case: Any) -> None:
        outbox.write("Placed", 1)
        assert outbox.poll() == 1
        with case.captureOnCommitCallbacks(using=alias, execute=True) as callbacks:
            outbox.write("Placed", 2)
            transaction.on_commit(lambda: seen.append("the user's"), using=alias)
        assert len(callbacks) == 1
        outbox.drain()
        assert seen == ["1", "the user's", "2"]

    kit.in_test_case(alias, test)


def test_dead_events_can_be_looked_at_replayed_and_discarded(alias: str, make_outbox: Make) -> None:
    outbox = make_outbox(alias, max_attempts=1)
    works: list[bool] = []

    @outbox.handler("Placed")
    def fragile(event: Any) -> None:
        if not works:
            raise ValueError("no paper")

    def test(case: Any) -> None:
        ids = [outbox.write("Placed", number) for number in range(3)]
        assert outbox.drain().dead == 3
        assert [event.event_id for event in outbox.dead.query()] == ids
        assert outbox.dead.discard(ids[0])
        works.append(True)
        assert outbox.dead.replay(ids[1])
        assert outbox.dead.replay_all() == 1
        assert outbox.drain().delivered == 2
        assert outbox.dead.count() == 0
        assert outbox.purge("0s") == 3

    kit.in_test_case(alias, test)


def test_nothing_is_kept_in_memory_for_a_commit_that_never_comes(alias: str, make_outbox: Make) -> None:
    """Also when workers run: the row is born free, as nobody could announce its commit."""
    outbox, seen = recording(make_outbox, alias, poller_enabled=False)
    outbox.start()

    def test(case: Any) -> None:
        with case.captureOnCommitCallbacks(using=alias, execute=True):
            outbox.write("Placed", 1)
        assert seen == []
        assert outbox.drain().delivered == 1

    kit.in_test_case(alias, test)
    assert outbox._engine.dispatcher.lanes._reserved == 0
    assert seen == ["1"]


def test_no_lease_runs_out_in_a_block(alias: str, make_outbox: Make) -> None:
    """Nobody else could take it over, and no keeper could renew it."""
    outbox, seen = recording(make_outbox, alias, lock_timeout="1ms")

    def test(case: Any) -> None:
        for number in range(20):
            outbox.write("Placed", number)
        assert outbox.poll() == 20
        assert seen == [str(number) for number in range(20)]

    kit.in_test_case(alias, test)


@pytest.mark.parametrize("timeout", [None, "20s"], ids=["", "with a timeout"])
def test_handlers_of_either_colour_see_what_the_test_wrote(alias: str, make_outbox: Make, timeout: str | None) -> None:
    """In the thread of the test, as only its connection can."""
    outbox, seen = make_outbox(alias), []

    def count(event: Any) -> None:
        seen.append((Order.objects.using(alias).count(), current.get()))

    async def count_async(event: Any) -> None:
        seen.append((await Order.objects.using(alias).acount(), current.get()))

    async def wrong(event: Any) -> None:
        raise DeadLetter("no paper")

    for handler in (count, count_async, wrong):
        outbox.handler("Placed", timeout=timeout)(handler)

    def test(case: Any) -> None:
        current.set("the test's")
        Order.objects.using(alias).create(number=7)
        outbox.write("Placed", 1)
        result = outbox.drain()
        assert (result.delivered, result.dead) == (2, 1)
        assert seen == [(1, "the test's")] * 2

    before = set(threading.enumerate())
    kit.in_test_case(alias, test)
    assert [thread.name for thread in set(threading.enumerate()) - before if "aftercommit" in thread.name] == []


def test_a_handler_that_breaks_its_savepoint_is_retried(alias: str, make_outbox: Make) -> None:
    outbox, seen = make_outbox(alias, retry_policy=Fixed("1us")), []

    @outbox.handler("Placed")
    def place(event: Any) -> None:
        seen.append(event.event_id)
        with transaction.atomic(using=alias):
            Order.objects.using(alias).create(number=7)
            if len(seen) == 1:
                connections[alias].cursor().execute("SELECT * FROM nowhere")

    def test(case: Any) -> None:
        event_id = outbox.write("Placed", 1)
        assert outbox.drain().retried == 1
        while outbox.stats().backlog.retry:
            outbox.drain()
        assert seen == [event_id, event_id]
        assert Order.objects.using(alias).count() == 1

    kit.in_test_case(alias, test)


def test_a_database_in_memory_needs_no_block(memory_alias: str, make_outbox: Make) -> None:
    """What the test runner makes of SQLite: only connections of Django's reach it."""
    outbox, seen = recording(make_outbox, memory_alias)
    with transaction.atomic(using=memory_alias):
        outbox.write("Placed", 1)
    assert outbox.drain().delivered == 1
    assert (outbox.stats().backlog.new, seen) == (0, ["1"])
    with pytest.raises(UnknownStore, match="in memory"):
        outbox.start()
    kit.in_test_case(memory_alias, lambda case: outbox.write("Placed", 2))
    assert outbox.drain().delivered == 0


def test_a_name_that_the_test_runner_gives_is_the_one_to_use(file_alias: str, make_outbox: Make, tmp_path: Any) -> None:
    """The outbox was made before, when the database still had its other name."""
    outbox, seen = recording(make_outbox, file_alias)
    assert outbox.stats().backlog.new == 0
    before = outbox._djangos.executor._own
    assert before._own._idle, "a connection to the old one"
    kit.remove_database(file_alias)
    kit.add_database(file_alias, kit.sqlite_settings(tmp_path / "test.sqlite3"))
    kit.make_tables(file_alias)
    with transaction.atomic(using=file_alias):
        outbox.write("Placed", 1)
    assert outbox.drain().delivered == 1
    assert seen == ["1"]
    assert before._own._idle == []


def test_what_drain_does_in_a_block_costs_its_commit_no_durability(postgres_alias: str, make_outbox: Make) -> None:
    """On PostgreSQL claims do not wait for the disk; in a block that would be the user's commit, too."""
    alias = postgres_alias
    outbox, seen = recording(make_outbox, alias)
    with transaction.atomic(using=alias):
        outbox.write("Placed", 1)
        assert outbox.drain().delivered == 1
        with connections[alias].cursor() as cursor:
            cursor.execute("SHOW synchronous_commit")
            assert cursor.fetchone() == ("on",)
    assert seen == ["1"]
