"""What write() adds to a flush of a SQLAlchemy session on PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import create_engine

from bench.results import Line
from bench.servers.places import Postgres
from bench.sessions import WAYS, Samples, measured, played
from bench.sizes import Sizes


def postgres_session(sizes: Sizes, workshop: Path) -> list[Line]:
    """On psycopg, as SQLAlchemy sets it up."""
    with Postgres.opened() as place:
        url = place.url.replace("postgresql://", "postgresql+psycopg://", 1)

        def play(events: int, _: Path) -> Samples:
            place.clear()
            engines = {way: create_engine(url) for way in WAYS}
            return played(engines, events, sizes.server_transactions // events, lambda: datetime.now(UTC))

        return measured("postgres_session", play, sizes, workshop)
