"""SQLite files as tests of stores use them: a store at a path, and a look behind its back."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.stores.detect import open_store


def store_at(path: Path, colour: Colour = Colour.BLOCKING, **options: Any) -> Any:
    return open_store(f"sqlite:///{path}", colour, **options)


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
