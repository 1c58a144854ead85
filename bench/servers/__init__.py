"""The same comparisons on database servers: each measure makes a database of its own there, and drops it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from bench.results import Line
from bench.servers.places import Absent, Mysql, Postgres
from bench.sizes import Sizes

#: The module of each.
_MODULES: Final = {
    "postgres_write": "writes",
    "postgres_write_all": "batches",
    "postgres_drain": "drains",
    "postgres_delete": "drains",
    "postgres_processes": "processes",
    "postgres_sustained": "sustained",
    "postgres_done_rows": "done_rows",
    "postgres_latency": "latency",
    "postgres_ordered_drain": "ordered",
    "postgres_ordered_latency": "ordered",
    "postgres_ordered_fleet": "ordered",
    "postgres_session": "sessions",
    "postgres_peers": "peers",
    "mysql_write": "writes",
    "mysql_write_all": "batches",
    "mysql_drain": "drains",
    "mysql_ordered_drain": "ordered",
}


def _measure(name: str, sizes: Sizes, workshop: Path) -> list[Line]:
    """Drivers are extras, so modules that need them are imported late."""
    try:
        measure = getattr(import_module(f"bench.servers.{_MODULES[name]}"), name)
    except ImportError as error:
        raise Absent(f"{error.name} is not installed") from error
    lines: list[Line] = measure(sizes, workshop)
    return lines


MEASURES: Final[dict[str, Callable[[Sizes, Path], list[Line]]]] = {name: partial(_measure, name) for name in _MODULES}

#: What a run does only when it is asked to: other libraries are not part of this project's benchmarks.
ON_REQUEST: Final = "postgres_peers"


def facts(names: Iterable[str]) -> dict[str, str]:
    """Version and settings of each server that these measures need, and the drivers; nothing of where they are."""
    told: dict[str, str] = {}
    kinds = {name.partition("_")[0] for name in names if name in MEASURES}
    for kind, place, packages in (
        ("postgres", Postgres, ("psycopg", "asyncpg")),
        ("mysql", Mysql, ("PyMySQL", "asyncmy")),
    ):
        if kind in kinds:
            with suppress(Absent):
                server = place.connected()
                told[kind] = server.facts()
                server.close()
            told |= {package: version(package) for package in packages if find_spec(package.lower())}
    return told
