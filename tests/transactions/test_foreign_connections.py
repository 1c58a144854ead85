"""tx=connection of a driver to another database of the same kind: refused with both names, and nothing is broken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from aftercommit import UnsupportedTransaction
from aftercommit.stores.sql.table import OwnTable
from tests.conftest import execute_mysql, execute_postgres, other_database
from tests.support import World
from tests.transactions.driver_kit import calling


@pytest.fixture
def another(any_world: World, tmp_path: Path) -> Iterator[str]:
    """A second, empty database of the same kind: a file, or an address on the same server."""
    if any_world.database == "sqlite":
        yield str(tmp_path / "another.db")
        return
    name, url = f"aftercommit_{uuid4().hex[:12]}", any_world.url
    if any_world.database == "postgres":
        url = urlsplit(url)._replace(scheme="postgresql").geturl()
        execute_postgres(url, f"CREATE DATABASE {name}")
        yield other_database(url, name)
        execute_postgres(url, f"DROP DATABASE {name} WITH (FORCE)")
    else:
        execute_mysql(url, f"CREATE DATABASE {name}")
        yield other_database(url, name)
        execute_mysql(url, f"DROP DATABASE {name}")


@pytest.mark.parametrize("has_outbox", [False, True])
def test_a_connection_to_another_database_is_refused_with_both_names(
    any_world: World, another: str, has_outbox: bool
) -> None:
    """Whether there is an outbox in it or none; and the caller's transaction goes on."""

    async def scenario() -> None:
        outbox = any_world.outbox()
        await outbox.create_schema()
        if has_outbox:
            scheme = urlsplit(any_world.url).scheme
            address = f"{scheme}:///{another}" if scheme == "sqlite" else urlsplit(another)._replace(scheme=scheme)
            await any_world.outbox(address if isinstance(address, str) else address.geturl()).create_schema()
        async with calling(any_world, autocommit=True, url=another) as caller:
            await caller.run("CREATE TABLE own_work (id INTEGER)")
            for _ in range(2):  # what was refused once is refused again
                await caller.run("BEGIN")
                await caller.run("INSERT INTO own_work VALUES (1)")
                with pytest.raises(UnsupportedTransaction) as refused:
                    await outbox.write("T", "1", tx=caller.raw)
                await caller.run("INSERT INTO own_work VALUES (2)")
                await caller.run("COMMIT")
            assert await _count(caller.raw) == 4
        assert Path(urlsplit(another).path).name in str(refused.value)
        assert outbox._store.where in str(refused.value)
        assert any_world.rows() == []

    any_world.run(scenario)


async def _count(raw: Any) -> int:
    if hasattr(raw, "fetchval"):
        return await raw.fetchval("SELECT count(*) FROM own_work")
    cursor = raw.cursor()
    ran = cursor.execute("SELECT count(*) FROM own_work")
    if hasattr(ran, "__await__"):
        await ran
    row = cursor.fetchone()
    return (await row if hasattr(row, "__await__") else row)[0]


def test_a_connection_is_asked_once(any_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the outbox was not opened before; of SQLite the file is compared each time, without a statement that
    reads it."""
    asked: list[object] = []
    ask = OwnTable._answer_of

    async def counted(self: OwnTable, tx: Any) -> list[Any]:
        asked.append(tx)
        return await ask(self, tx)

    monkeypatch.setattr(OwnTable, "_answer_of", counted)

    async def scenario() -> None:
        maker = any_world.outbox()
        await maker.create_schema()
        outbox = any_world.outbox()
        async with calling(any_world, autocommit=True) as caller, calling(any_world, autocommit=True) as second:
            for each in (caller, caller, second):
                await each.run("BEGIN")
                await outbox.write("T", "1", tx=each.raw)
                await outbox.write("T", "2", tx=each.raw)
                await each.run("COMMIT")
        assert len(asked) == (6 if any_world.database == "sqlite" else 2)
        assert len(any_world.rows()) == 6

    any_world.run(scenario)


def test_a_database_in_memory_is_another_one(tmp_path: Path) -> None:
    world = World("threads", tmp_path)

    async def scenario() -> None:
        outbox = world.outbox()
        async with calling(world, autocommit=True, url=":memory:") as caller:
            await caller.run("BEGIN")
            with pytest.raises(UnsupportedTransaction, match="in memory"):
                await outbox.write("T", "1", tx=caller.raw)

    world.run(scenario)
