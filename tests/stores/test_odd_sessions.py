"""Settings of a session that are legal and unusual: an event's whole walk is the same under them, or they are refused
by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from aftercommit import EventEnvelope, Fixed
from aftercommit.errors import InvalidOption
from aftercommit.ports import Colour
from tests.stores.postgres_kit import DRIVERS
from tests.support import Collector, World

#: What escapes, quotes, placeholders and arrays could go wrong with.
TEXT = "it's a \"test\" \\ \\\\ \\' %s %% {a,b} NULL :x $1 ? ß🙂\n\t--;/*"


async def walk(world: World, target: Any = None, *, ordered: bool) -> None:
    """Write one and many, roll back, deliver, fail, try again, die, replay."""
    seen, bad, table = Collector(), {2}, f"odd_{'ordered' if ordered else 'plain'}"
    with suppress(Exception):
        world.change(f"DELETE FROM {table}")
    outbox = world.outbox(target, table=table, ordered=ordered, poll_interval="50ms", create_schema=True)

    @outbox.handler("Placed", retry=Fixed("10ms", max_attempts=2))
    def placed(payload: dict[str, Any]) -> None:
        number, text = payload["number"], payload["text"]
        assert text == TEXT
        if number in bad or (number == 1 and number not in seen):
            seen.add(number)
            raise ValueError(TEXT)
        seen.add(number)

    def fields(number: int) -> dict[str, Any]:
        return {} if number % 2 else {"key": f"k'{number}\\", "headers": {"note": TEXT}}

    async with outbox:
        async with outbox.transaction():
            await outbox.write("Placed", {"number": 0, "text": TEXT}, **fields(0))
        with pytest.raises(KeyError):
            async with outbox.transaction():
                await outbox.write("Placed", {"number": 99, "text": TEXT})
                raise KeyError
        async with outbox.transaction():
            await outbox.write_all(
                EventEnvelope("Placed", payload_json=json.dumps({"number": number, "text": TEXT}), **fields(number))
                for number in range(1, 6)
            )
        await world.until(f"SELECT count(*) = 1 FROM {table} WHERE status = 3")
        await world.until(f"SELECT count(*) = 5 FROM {table} WHERE status = 1")
        (dead,) = await outbox.dead.query()
        assert TEXT in dead.last_error
        bad.clear()
        assert await outbox.dead.replay(dead.event_id)
        await world.until(f"SELECT count(*) = 6 FROM {table} WHERE status = 1")
    rows = world.rows(f"SELECT * FROM {table} ORDER BY position")
    assert sorted(seen) == [0, 1, 1, 2, 2, 2, 3, 4, 5]
    for number, row in enumerate(rows):
        assert (row["locked_by"], row["lease_until"], row["done_handlers"], row["last_error"]) == (None,) * 4
        assert (row["event_key"], row["tenant_id"]) == (fields(number).get("key"), None)


def postgres_with(driver: str, url: str, settings: dict[str, str]) -> str:
    """A URL whose sessions have these settings."""
    scheme, _ = DRIVERS[driver]
    if driver == "asyncpg":
        query = "&".join(f"{name}={quote(value)}" for name, value in settings.items())
    else:
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        query = f"options={quote(options)}"
    return urlsplit(url)._replace(scheme=scheme, query=query).geturl()


#: In all of them the walk is the same.
ODD = {
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "standard_conforming_strings": "off",
    "DateStyle": "SQL,DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Asia/Kathmandu",
    "bytea_output": "escape",
    "plan_cache_mode": "force_generic_plan",
    "transform_null_equals": "on",
}


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def postgres(postgres_url: str, driver: str, tmp_path: Path) -> Iterator[World]:
    runtime = "threads" if DRIVERS[driver][1] is Colour.BLOCKING else "asyncio"
    world = World(runtime, tmp_path, "postgres", postgres_url)
    yield world
    world.somebody.close()


@pytest.mark.parametrize("ordered", [False, True], ids=["plain", "ordered"])
def test_the_walk_under_odd_settings_of_postgresql(postgres: World, driver: str, ordered: bool) -> None:
    target = postgres_with(driver, postgres.url, ODD)
    postgres.run(lambda: walk(postgres, target, ordered=ordered))


def test_arrays_without_nulls_are_refused_by_name(postgres: World, driver: str) -> None:
    target = postgres_with(driver, postgres.url, {"array_nulls": "off"})

    async def scenario() -> None:
        for act in ("start", "write"):
            outbox = postgres.outbox(target, create_schema=True)
            with pytest.raises(InvalidOption, match="sessions have array_nulls = off"):
                if act == "start":
                    await outbox.start()
                else:
                    async with outbox.transaction():
                        await outbox.write("Placed", {})

    postgres.run(scenario)


#: Beside `wait_timeout`: what a rest does to a session is told in test_mysql_connections.py.
ODD_MYSQL = (
    "SET SESSION sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,HIGH_NOT_PRECEDENCE', autocommit = 0,"
    " time_zone = '+05:45', innodb_lock_wait_timeout = 1"
)


@pytest.mark.parametrize("ordered", [False, True], ids=["plain", "ordered"])
@pytest.mark.parametrize("runtime", ["threads", "asyncio"])
def test_the_walk_under_odd_settings_of_mysql(mysql_url: str, runtime: str, ordered: bool, tmp_path: Path) -> None:
    """By an engine, on whose sessions the outbox sets nothing, and which are the store's own and the user's."""
    world = World(runtime, tmp_path, "mariadb", mysql_url)
    driver, make = ("asyncmy", create_async_engine) if world.is_async else ("pymysql", create_engine)
    url = urlsplit(mysql_url)._replace(scheme=f"mysql+{driver}", query="charset=utf8mb4").geturl()

    async def scenario() -> None:
        engine = make(url, connect_args={"init_command": ODD_MYSQL})
        await walk(world, engine, ordered=ordered)
        if (disposing := engine.dispose()) is not None:
            await disposing

    world.run(scenario)
    world.somebody.close()
