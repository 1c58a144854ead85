"""Promise 3: a write outside a transaction raises before it touches anything, and says how to mend it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from aftercommit import NotInTransaction, Outbox
from tests.conftest import in_transactions
from tests.support import World


@in_transactions
def test_promise_03_fail_fast_outside_a_transaction_nothing_is_touched(every_world: World) -> None:
    world = every_world

    async def scenario() -> None:
        outbox = world.outbox()
        await outbox.create_schema()
        with pytest.raises(NotInTransaction, match=r"outbox\.transaction\(\)") as refused:
            await outbox.write("A", {})
        assert refused.value.code == "AC001"
        async with outbox.transaction() as tx:
            await outbox.write("A", {})
        with pytest.raises(NotInTransaction):
            await outbox.write("A", {})
        with pytest.raises(NotInTransaction):
            await outbox.write("A", {}, tx=tx)
        assert len(world.rows()) == 1

    world.run(scenario)


def test_promise_03_fail_fast_before_the_database_is_even_opened(world: World) -> None:
    async def scenario() -> None:
        with pytest.raises(NotInTransaction):
            await world.outbox().write("A", {})
        assert not world.path.exists()

    world.run(scenario)


def test_promise_03_fail_fast_a_handle_counts_as_what_its_next_statement_would_be(tmp_path: Any) -> None:
    """One that begins by itself is in a transaction; autocommit and a session that begins nothing are not."""
    path = tmp_path / "shop.db"
    engine = create_engine(f"sqlite:///{path}")
    with (
        Outbox(f"sqlite:///{path}") as outbox,
        closing(sqlite3.connect(path)) as implicit,
        closing(sqlite3.connect(path, isolation_level=None)) as autocommit,
    ):
        outbox.write("A", {}, tx=implicit)
        implicit.commit()
        with Session(engine) as session:
            outbox.write("A", {}, tx=session)
            session.commit()
        with pytest.raises(NotInTransaction):
            outbox.write("A", {}, tx=autocommit)
        autocommit.execute("BEGIN")
        outbox.write("A", {}, tx=autocommit)
        autocommit.execute("COMMIT")
        with Session(engine, autobegin=False) as session, pytest.raises(NotInTransaction):
            outbox.write("A", {}, tx=session)
        assert implicit.execute("SELECT count(*) FROM outbox_event").fetchone() == (3,)
    engine.dispose()
