"""What looks at keys cost on SQLite: by index, and no more in a big table than in a small one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from aftercommit.events.order import OrderKey
from aftercommit.runtime.threads import run
from aftercommit.testing.runs import PASSES, claim_keys, look_over
from tests.stores.kit import store_at
from tests.stores.test_sqlite_plans import FACTOR, NOW, Counted, copied, plan_of

KEYS = 50

ROW = """
INSERT INTO outbox_event (event_id, event_type, aggregate_type, event_key, partition_no, payload, content_type,
  occurred_at, status, created_at, available_at)
VALUES (?, 'Happened', '__GLOBAL__', ?, ?, '{}', 'application/json', 0, ?, ?, ?)
"""

HOUR = 3600 * 1_000_000


def fill(path: Path, size: int) -> None:
    """Fifty keys that are due, in partition 7; and so many rows that nobody asks for."""
    store = store_at(path)
    run(store.open())
    run(store.close())
    with closing(sqlite3.connect(path)) as connection:
        now = connection.execute(f"SELECT {NOW}").fetchone()[0]

        def rows() -> Iterator[tuple[Any, ...]]:
            yield "dead", "dead", 7, 3, now, now - HOUR
            for n in range(5 * size):
                yield f"behind-{n}", "dead", 7, 0, now, now - HOUR
                yield f"long-{n}", "long", 7, 0, now, now - HOUR
                yield f"other-{n}", f"other-{n}", 8 + n % 200, 0, now, now - HOUR
                yield f"done-{n}", f"due-{n % KEYS:02}", 7, 1, now, now - HOUR
            for n in range(size):
                yield f"later-{n}", f"later-{n:06}", 7, 2, now, now + HOUR
            for n in range(3 * KEYS):
                yield f"due-{n}", f"due-{n % KEYS:02}", 7, 0, now, now - HOUR

        with connection:
            connection.executemany(ROW, rows())


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "small.db"
    fill(path, KEYS)
    return path


@pytest.fixture(
    scope="module", params=[pytest.param(1_000, id="small"), pytest.param(100_000, id="whole", marks=pytest.mark.slow)]
)
def big(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("big") / "big.db"
    fill(path, request.param)
    return path


@pytest.fixture(params=["plain", "analysed"])
def analysed(request: pytest.FixtureRequest) -> bool:
    return request.param == "analysed"


@pytest.fixture
def pair(small: Path, big: Path, tmp_path: Path, analysed: bool) -> Iterator[tuple[Counted, Counted]]:
    """The small table and the big one, with connections that count."""
    made = [Counted(copied(path, tmp_path, analysed)) for path in (small, big)]
    yield made[0], made[1]
    for each in made:
        run(each.store.close())


async def walked(store: Any, count: int = KEYS, **more: Any) -> None:
    assert len((await look_over(store, **{"limit": KEYS, **more})).heads) == count


async def walked_over_all(store: Any) -> None:
    """Every partition but one is empty, or behind the limit."""
    found = await look_over(store, *range(208, 256), *range(8), limit=KEYS)
    assert len(found.heads) == KEYS


async def claimed(store: Any, *keys: str, count: int, **more: Any) -> None:
    assert len((await claim_keys(store, *keys, **{"run": 2, **more})).rows) == count


DUE = [f"due-{n:02}" for n in range(KEYS)]

OPERATIONS: dict[str, Callable[[Any], Coroutine[Any, Any, Any]]] = {
    "heads": walked,
    "heads that are not due": lambda store: walked(store, after=OrderKey(7, "due-99")),
    "the head of a long key": lambda store: walked(store, 1, after=OrderKey(7, "later-999999")),
    "heads over partitions": walked_over_all,
    "a claim": lambda store: claimed(store, *DUE, count=2 * KEYS),
    "a claim of a blocked key": lambda store: claimed(store, "dead", count=0),
    "a claim of a long key": lambda store: claimed(store, "long", count=2),
    "a claim of one key that passes over": lambda store: claimed(store, "due-00", count=2, rule=PASSES),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_big_table_costs_no_more_steps(pair: tuple[Counted, Counted], name: str) -> None:
    few, many = (counted.of(OPERATIONS[name]) for counted in pair)
    assert many <= FACTOR * few


def test_rows_that_are_passed_over_are_looked_at_a_thousand_at_most(pair: tuple[Counted, Counted]) -> None:
    _, big = pair
    long = big.of(lambda store: claimed(store, "long", count=2, rule=PASSES))
    short = big.of(lambda store: claimed(store, "due-01", count=2, rule=PASSES))
    assert long < 1000 * short


@pytest.mark.parametrize("name", ["heads", "run_candidates", "blocked", "busy_keys"])
def test_looks_go_by_their_indexes(big: Path, tmp_path: Path, analysed: bool, name: str) -> None:
    plan = plan_of(copied(big, tmp_path, analysed), name)
    assert "outbox_event_blocking (partition_no=? AND <expr>=?" in plan
    assert "outbox_event_order (partition_no=? AND <expr>" in plan
    assert not [step for step in plan.splitlines() if step in ("SCAN outbox_event", "SCAN row", "SCAN last")]


def test_a_look_without_its_index_would_be_seen(pair: tuple[Counted, Counted]) -> None:
    """So that the tests above can fail."""
    for counted in pair:
        with closing(sqlite3.connect(counted.path)) as connection, connection:
            connection.execute("DROP INDEX outbox_event_order")
    few, many = (counted.of(lambda store: walked(store, 1, limit=1)) for counted in pair)
    assert many > 10 * FACTOR * few
