"""Two-phase commits of a session: an event is delivered after the second phase, and only then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from tests.transactions.sqlalchemy_kit import WAYS, Shop, plain

#: asyncpg has no two-phase commit in SQLAlchemy, SQLite has none at all.
TWO_PHASES = ["postgres-threads", "postgres-asyncio", "mariadb-threads", "mariadb-asyncio"]


@pytest.fixture(params=TWO_PHASES)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """On a PostgreSQL of its own: others have prepared transactions switched off."""
    if WAYS[request.param][0] == "postgres":
        made = Shop(request.param, tmp_path, request.getfixturevalue("private_postgres").url)
    else:
        made = Shop(request.param, tmp_path, request.getfixturevalue("mysql_url"))
        made.world.somebody.clear()
    yield made
    made.world.somebody.close()


def test_two_phases_are_followed_to_the_second(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()

        def work(session: Session) -> None:
            plain(outbox).write("T", '"prepared and committed"', tx=session)
            session.prepare()
            assert (shop.committed(), list(shop.seen)) == ([], [])
            session.commit()
            plain(outbox).write("T", '"prepared and undone"', tx=session)
            session.prepare()
            session.rollback()
            plain(outbox).write("T", '"committed at once"', tx=session)
            session.commit()

        await shop.in_session(work, twophase=True)
        await shop.seen.reach(2)
        assert sorted(shop.seen) == sorted(shop.committed()) == ["committed at once", "prepared and committed"]

    shop.run(scenario)


def test_what_was_undone_before_the_first_phase_is_not_delivered_after_the_second(shop: Shop) -> None:
    """It can be asked for only before: a prepared transaction answers no more."""

    async def scenario() -> None:
        outbox = shop.outbox()
        await outbox.start()

        def work(session: Session) -> None:
            plain(outbox).write("T", '"kept"', tx=session)
            session.flush()
            session.execute(text("SAVEPOINT by_hand"))
            plain(outbox).write("T", '"undone"', tx=session)
            session.flush()
            nested = session.connection().begin_nested()
            nested.rollback()  # SQLAlchemy tells of this one, and the question finds what was undone by text as well
            session.execute(text("ROLLBACK TO SAVEPOINT by_hand"))
            session.prepare()
            session.commit()

        await shop.in_session(work, twophase=True)
        await shop.seen.reach(1)
        assert list(shop.seen) == shop.committed() == ["kept"]

    shop.run(scenario)
