"""What the other tests of this folder rely on."""

from __future__ import annotations

from contextlib import contextmanager

import psycopg
import pytest

from tests.promises.conftest import leaving_nothing
from tests.promises.harness import LASTING, Fleet
from tests.promises.sessions import sessions
from tests.promises.waiting import until

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.mark.parametrize("fleet", ["postgres"], indirect=True)
def test_nothing_that_a_killed_process_has_asked_for_happens_after_its_test(fleet: Fleet) -> None:
    """Its claim waits for a lock. The server would go on with it, and see only then that nobody is there."""
    with psycopg.connect(fleet.table.url) as somebody:
        before = sessions(fleet.table)
        with contextmanager(leaving_nothing)(fleet):
            worker = fleet.worker(**LASTING)
            worker.tell("write", count=1)
            somebody.execute("LOCK TABLE outbox_event IN EXCLUSIVE MODE")
            worker.send("start")
            until(lambda: fleet.rows(WAITING)[0][0], what="a claim that waits")
        somebody.rollback()
        until(lambda: sessions(fleet.table) == before, what="the end of what it left behind")
    assert [row["locked_by"] for row in fleet.rows()] == [None]
