"""What handlers did, as rows of the database under test: the order of effects over all processes is the database's."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from tests.databases import Database
from tests.redis_database import RedisDatabase
from tests.support import World

_CREATE = {
    "sqlite": "CREATE TABLE effect (serial INTEGER PRIMARY KEY AUTOINCREMENT, {})",
    "postgres": "CREATE UNLOGGED TABLE effect (serial bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, {})",
    "mariadb": "CREATE TABLE effect (serial bigint AUTO_INCREMENT PRIMARY KEY, {}) ENGINE = MyISAM",
}

_COLUMNS = "order_key varchar(64), number integer, pid integer"


class Effect(NamedTuple):
    """One event of a key had an effect, in this process."""

    serial: int
    key: str
    number: int
    pid: int


class Effects:
    """One committed INSERT for each, on a connection that the outbox does not know."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, kind: str) -> None:
        self._database.write(_CREATE[kind].format(_COLUMNS))

    def add(self, key: str | None, number: int) -> None:
        """From any thread."""
        self._database.write(
            "INSERT INTO effect (order_key, number, pid) VALUES (?, ?, ?)", str(key), number, os.getpid()
        )

    def all(self) -> list[Effect]:
        rows = self._database.read("SELECT serial, order_key, number, pid FROM effect ORDER BY serial")
        return [Effect(*row) for row in rows]

    def numbers(self, key: str) -> list[int]:
        """Of one key, in order, repetitions as well."""
        rows = self._database.read("SELECT number FROM effect WHERE order_key = ? ORDER BY serial", key)
        return [row[0] for row in rows]

    def count(self, pid: int | None = None) -> int:
        """Of all processes, or of one."""
        if pid is None:
            return int(self._database.read("SELECT count(*) FROM effect")[0][0])
        return int(self._database.read("SELECT count(*) FROM effect WHERE pid = ?", pid)[0][0])

    def in_child(self, world: World) -> None:
        """On a connection of its own: this one is the parent's."""
        self._database = world.somebody


class RedisEffects(Effects):
    """One RPUSH for each, in the order of the server."""

    _database: RedisDatabase

    def create(self, kind: str) -> None:
        """A list is there as soon as it has something."""

    def add(self, key: str | None, number: int) -> None:
        self._database.push("effect", key, number, os.getpid())

    def all(self) -> list[Effect]:
        return [Effect(serial, *effect) for serial, effect in enumerate(self._database.pushed("effect"))]

    def numbers(self, key: str) -> list[int]:
        return [effect.number for effect in self.all() if effect.key == key]

    def count(self, pid: int | None = None) -> int:
        return len([effect for effect in self.all() if pid in (None, effect.pid)])


def effects_of(world: World) -> Effects:
    return (RedisEffects if world.database == "redis" else Effects)(world.somebody)


def first_effects(effects: Iterable[Effect]) -> dict[str, list[int]]:
    """The events of each key in the order of their first effects."""
    firsts: dict[str, dict[int, None]] = {}
    for effect in effects:
        firsts.setdefault(effect.key, {}).setdefault(effect.number)
    return {key: list(numbers) for key, numbers in firsts.items()}
