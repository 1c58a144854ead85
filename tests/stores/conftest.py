"""Benches for executors. Their module is no test file; its asserts are to be explained all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.stores.bench")

from aftercommit.ports import Colour  # noqa: E402
from aftercommit.runtime.threads import run  # noqa: E402
from aftercommit.stores.detect import open_store  # noqa: E402
from aftercommit.stores.sqlite import target, write_lock  # noqa: E402
from tests.stores.bench import SOON, Bench  # noqa: E402
from tests.stores.postgres_kit import DRIVERS, Table, Way  # noqa: E402
from tests.stores.redis_kit import Keys, OwnServer  # noqa: E402


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Callable[[Colour], Bench]]:
    made: list[Bench] = []

    def make(colour: Colour) -> Bench:
        made.append(Bench(colour, tmp_path / "bench.db"))
        return made[-1]

    yield make
    for each in made:
        each.first.close()


@pytest.fixture(params=list(Colour), ids=lambda colour: colour.value)
def bench(request: pytest.FixtureRequest, make_bench: Callable[[Colour], Bench]) -> Bench:
    return make_bench(request.param)


@pytest.fixture
def blocking(make_bench: Callable[[Colour], Bench]) -> Bench:
    return make_bench(Colour.BLOCKING)


@pytest.fixture
def on_loop(make_bench: Callable[[Colour], Bench]) -> Bench:
    return make_bench(Colour.ASYNC)


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_lock, "BUSY_TIMEOUT", SOON)
    monkeypatch.setattr(target, "BUSY_TIMEOUT", SOON)


@pytest.fixture(scope="session")
def postgres_tables(postgres_url: str) -> Iterator[Table]:
    """The tables of an outbox in this worker's PostgreSQL database."""
    found = Table(postgres_url)
    found.clear()  # whoever was here before may have had order
    store = open_store(postgres_url, Colour.BLOCKING, create_schema=True)
    run(store.open())
    run(store.close())
    yield found
    found.close()


@pytest.fixture
def postgres_table(postgres_tables: Table) -> Table:
    """No rows in it."""
    postgres_tables.clear()
    return postgres_tables


@pytest.fixture(params=DRIVERS)
def way(request: pytest.FixtureRequest, postgres_table: Table) -> Way:
    """Each driver to an empty PostgreSQL table."""
    return Way(request.param, postgres_table)


@pytest.fixture
def redis_keys() -> Iterator[Keys]:
    """The name of an outbox on a server that others use as well."""
    keys = Keys()
    yield keys
    keys.close()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[Callable[..., OwnServer]]:
    """Starts servers for this test alone, with settings of theirs."""
    started: list[OwnServer] = []

    def start(*settings: str) -> OwnServer:
        folder = tmp_path / f"redis-{len(started)}"
        folder.mkdir()
        started.append(OwnServer(folder, *settings))
        return started[-1]

    yield start
    for each in started:
        each.stop()
