"""SQLite files as tests of stores use them: a store at a path, and a look behind its back."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Coroutine
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

from aftercommit.events.claims import NewEvent
from aftercommit.events.envelope import EventEnvelope
from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.stores.detect import open_store
from aftercommit.testing.kit import LEASE


def store_at(path: Path, colour: Colour = Colour.BLOCKING, **options: Any) -> Any:
    return open_store(f"sqlite:///{path}", colour, **options)


async def insert(store: Any, *events: EventEnvelope, handler_id: str = "", owner: str | None = None) -> None:
    """As the suite does it, but by the executor's own transaction, which begins again after a conflict."""
    rows = [NewEvent(each, 7, owner, LEASE if owner else timedelta(0), handler_id) for each in events]
    await store.executor.transact(lambda tx: store.insert(tx, rows))


def run_in(colour: Colour, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a scenario to its end the way that stores of this colour are run."""
    return run(coroutine) if colour is Colour.BLOCKING else asyncio.run(coroutine)


def read(path: Path, sql: str, *parameters: object) -> list[sqlite3.Row]:
    """On a connection of its own: only what is committed."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return connection.execute(sql, parameters).fetchall()


def alter(path: Path, sql: str, *parameters: object) -> int:
    """On a connection of its own, committed."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        with connection:
            return connection.execute(sql, parameters).rowcount
