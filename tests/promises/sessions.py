"""Who is connected to a database, and how to throw them out."""

from __future__ import annotations

from collections.abc import Set
from contextlib import suppress

import pymysql

from tests.databases import LOOKS_ON
from tests.redis_database import RedisDatabase
from tests.support import World

_OTHERS = {
    "postgres": "SELECT pid FROM pg_stat_activity"  # no autovacuum: a session of somebody
    " WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    f" AND application_name <> '{LOOKS_ON}'",
    "mariadb": "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()",
}

_KILL = {"postgres": "SELECT pg_terminate_backend({})", "mariadb": "KILL {}"}


def sessions(table: World) -> set[int]:
    """All but the one that asks, and those that this process keeps for other tests."""
    if isinstance(table.somebody, RedisDatabase):
        return table.somebody.sessions()
    return {int(row[0]) for row in table.rows(_OTHERS[table.database])}


def kill_sessions(table: World, but: Set[int] = frozenset()) -> int:
    """How many there were to be ended; one that has just gone by itself is none."""
    killed = 0
    if isinstance(table.somebody, RedisDatabase):
        return sum(table.somebody.kill(session) for session in sessions(table) - but)
    for session in sessions(table) - but:
        with suppress(pymysql.OperationalError):  # MariaDB has no such session any more
            table.rows(_KILL[table.database].format(session))
            killed += 1
    return killed
