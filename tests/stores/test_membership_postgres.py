"""The fleet on PostgreSQL: nobody waits where it can be avoided, and heartbeats leave no traces."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from aftercommit.errors import StoreBusy
from aftercommit.events.order import Instance
from aftercommit.stores.postgres import lenders
from aftercommit.stores.postgres.dialect import PSYCOPG
from aftercommit.stores.sql.statements import Statements, TableNames
from aftercommit.testing.kit import LEASE
from tests.stores.postgres_kit import Table, Way, make_impatient
from tests.stores.wakeups_kit import until_sessions
from tests.support import PATIENCE

ALL = dict.fromkeys(range(256), 0)
#: As long as ids are.
ALICE = Instance("alice".ljust(36, "-"), "here", 1)


class Beside:
    """Somebody's transaction that is open, with some rows changed."""

    def __init__(self, table: Table, sql: str) -> None:
        self._url, self._sql = table.url, sql

    def __enter__(self) -> Any:
        self._connection = psycopg.connect(self._url)
        self._connection.execute(self._sql)
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.rollback()
        self._connection.close()


def test_a_take_passes_over_what_somebody_has_locked(way: Way, postgres_table: Table) -> None:
    """TC-293: it waits for nobody, so it is in no deadlock, and takes the rest."""

    async def scenario() -> None:
        async with way.opened() as store:
            with Beside(postgres_table, "UPDATE outbox_partition SET owner = 'bob' WHERE partition_no < 100"):
                taken = await store.membership.take(ALICE.id, ALL, LEASE)
            assert taken == dict.fromkeys(range(100, 256), 1)

    way.run(scenario)


def test_a_partition_that_changes_between_the_look_and_the_lock_is_not_taken(postgres_table: Table) -> None:
    """The other's commit comes when the statement has its snapshot already: it asks again of the row as it is now."""
    statement = Statements(PSYCOPG, TableNames("outbox_event"))["fleet_take"]
    waiting = statement.sql.replace("WITH free", "WITH gate AS MATERIALIZED (SELECT pg_advisory_lock_shared(7)), free")
    waiting = waiting.replace("AS held, json", "AS held, gate, json")
    assert waiting.count("gate") == 2
    taken: list[int] = []

    def take() -> None:
        with psycopg.connect(postgres_table.url, autocommit=True) as connection:
            values = statement.bind(id="alice", seen="[[0, 0], [1, 0]]", lasts=30_000_000)
            taken.append(connection.execute(waiting, values).rowcount)

    postgres_table.execute("SELECT pg_advisory_lock(7)")
    taker = threading.Thread(target=take)
    taker.start()
    while not postgres_table.value(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    ):
        assert taker.is_alive()
    postgres_table.execute(
        "UPDATE outbox_partition SET owner = 'bob', epoch = 1, expires_at = now() WHERE partition_no = 0"
    )
    postgres_table.execute("SELECT pg_advisory_unlock(7)")
    taker.join(PATIENCE)
    assert taken == [1]
    rows = postgres_table.read("SELECT owner, epoch FROM outbox_partition ORDER BY partition_no LIMIT 2")
    assert rows == [{"owner": "bob", "epoch": 1}, {"owner": "alice", "epoch": 1}]


def test_heartbeats_hardly_touch_an_index(postgres_table: Table) -> None:
    """Rows find room on their own page, beat after beat, unless somebody's old snapshot keeps their versions alive."""
    prolong = Statements(PSYCOPG, TableNames("outbox_event"))["fleet_prolong"]
    count = "SELECT pg_stat_get_xact_tuples_hot_updated('outbox_partition'::regclass)"
    postgres_table.execute("UPDATE outbox_partition SET owner = %s, epoch = 1", ALICE.id)
    stayed = 0
    for _ in range(8):
        with postgres_table.connection.transaction():
            before = postgres_table.value(count)
            assert postgres_table.execute(prolong.sql, *prolong.bind(id=ALICE.id, lasts=1)) == 256
            stayed += postgres_table.value(count) - before
    assert stayed > 8 * 256 * 2 / 3


def test_heartbeats_do_not_wait_for_connections_that_handlers_have(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lenders, "LARGEST", 2)

    async def scenario() -> None:
        async with way.opened() as store:
            await store.membership.join(ALICE)
            held = [await store.begin() for _ in range(2)]
            make_impatient(store.executor, monkeypatch)
            try:
                with pytest.raises(StoreBusy):
                    await store.begin()
                assert await store.membership.beat(ALICE.id, LEASE) == {}
            finally:
                for each in held:
                    await each.end()

    way.run(scenario)


def test_connections_of_heartbeats_end_with_the_outbox(way: Way, postgres_table: Table) -> None:
    async def scenario() -> None:
        async with way.opened() as store:
            await store.membership.join(ALICE)
            assert postgres_table.sessions(way.mark)

    way.run(scenario)
    until_sessions(postgres_table, way.mark, 0)
