"""serialize_keys: transactions that overlap and write the same key have an order, because the second waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import psycopg
import pytest
from sqlalchemy import NullPool, create_engine
from sqlalchemy.orm import Session

from aftercommit import EventEnvelope, InvalidOption, Outbox
from aftercommit.runtime.threads import run
from aftercommit.stores.sql.statements import TableNames
from tests.support import PATIENCE, Signal


def outbox_at(url: str, **options: Any) -> Outbox:
    return Outbox(url, ordered=True, create_schema=True, table="in_turn", **options)


@contextmanager
def owned(outbox: Outbox, url: str) -> Iterator[Callable[[str], None]]:
    with outbox.transaction():
        yield lambda key: outbox.write("Counted", "1", key=key) and None


@contextmanager
def session(outbox: Outbox, url: str) -> Iterator[Callable[[str], None]]:
    with Session(engine_at(url)) as db, db.begin():

        def write(key: str) -> None:
            outbox.write("Counted", "1", key=key, tx=db)
            db.flush()

        yield write


@contextmanager
def connection(outbox: Outbox, url: str) -> Iterator[Callable[[str], None]]:
    with engine_at(url).begin() as db:
        yield lambda key: outbox.write("Counted", "1", key=key, tx=db) and None


def engine_at(url: str) -> Any:
    return create_engine(url.replace("postgresql://", "postgresql+psycopg://"), poolclass=NullPool)


WAYS = [owned, session, connection]


def waits(url: str, outbox: Outbox, way: Any, *, first: str, second: str) -> bool:
    """Whether a second transaction waits for the first one's end before it has written its key."""
    written, done = Signal(), Signal()

    def write_second() -> None:
        with way(outbox, url) as write:
            write(second)
            written.set()
        done.set()

    with psycopg.connect(url, autocommit=True) as witness:
        with way(outbox, url) as write:
            write(first)
            thread = threading.Thread(target=write_second)
            thread.start()
            is_waiting = _until_it_waits_or(written, witness)
            assert not (is_waiting and written.is_set)
        done.wait_here()
    thread.join(PATIENCE)
    return is_waiting


def _until_it_waits_or(written: Signal, witness: Any) -> bool:
    watch = threading.Event()
    waits = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    for _ in range(int(PATIENCE / 0.005)):
        if written.is_set:
            return False
        if witness.execute(waits).fetchone()[0]:
            return True
        watch.wait(0.005)
    raise AssertionError("neither written nor waiting")


@pytest.fixture
def url(postgres_url: str) -> Iterator[str]:
    yield postgres_url
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for table in TableNames("in_turn").all:
            connection.execute(f"DROP TABLE IF EXISTS {table}")


@pytest.mark.parametrize("way", WAYS)
def test_the_second_writer_of_a_key_waits_for_the_first(url: str, way: Any) -> None:
    outbox = outbox_at(url, serialize_keys=True)
    run(outbox._store.open())

    assert waits(url, outbox, way, first="a", second="a")
    assert not waits(url, outbox, way, first="a", second="b")
    outbox.close()


@pytest.mark.parametrize("way", WAYS)
def test_without_it_they_overlap(url: str, way: Any) -> None:
    outbox = outbox_at(url)
    run(outbox._store.open())

    assert not waits(url, outbox, way, first="a", second="a")
    outbox.close()


def test_writers_of_every_kind_wait_for_each_other(url: str) -> None:
    """The lock has the same name whoever takes it."""
    outbox = outbox_at(url, serialize_keys=True)
    run(outbox._store.open())

    class Mixed:
        """A session first, then whatever the outbox opens."""

        ways: ClassVar = [owned, session]

        def __call__(self, *arguments: Any) -> Any:
            return self.ways.pop()(*arguments)

    assert waits(url, outbox, Mixed(), first="a", second="a")
    outbox.close()


def test_two_that_write_the_same_keys_in_another_order_do_not_wait_in_a_circle(url: str) -> None:
    """The keys of one write_all() are locked in one order, whatever theirs is."""
    outbox = outbox_at(url, serialize_keys=True)
    run(outbox._store.open())
    barrier, failures = threading.Barrier(2, timeout=PATIENCE), []

    def write(keys: list[str]) -> None:
        for _ in range(20):
            barrier.wait()
            try:
                with outbox.transaction():
                    outbox.write_all([EventEnvelope("Counted", payload_json="1", key=key) for key in keys])
            except Exception as error:
                failures.append(error)

    keys = [f"key-{number}" for number in range(30)]
    threads = [threading.Thread(target=write, args=(each,)) for each in (keys, keys[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert failures == []
    outbox.close()


@pytest.mark.parametrize("target", ["sqlite://", "mysql://root@127.0.0.1/test"])
def test_where_there_is_no_such_lock_it_is_refused(target: str) -> None:
    with pytest.raises(InvalidOption, match="cannot serialize_keys"):
        Outbox(target, ordered=True, serialize_keys=True)


def test_a_ready_store_and_its_outbox_agree(url: str) -> None:
    store = outbox_at(url, serialize_keys=True)._store

    with pytest.raises(InvalidOption, match="only one of the outbox and the ready store"):
        Outbox(store, ordered=True)
    assert Outbox(store, ordered=True, serialize_keys=True).config.serialize_keys
