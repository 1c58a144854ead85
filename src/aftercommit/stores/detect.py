"""Which store belongs to a target: by the scheme of a URL, or by what a connection factory returns."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from aftercommit.errors import InvalidOption, UnknownStore
from aftercommit.ports import Colour
from aftercommit.stores.postgres.target import postgres_from_url
from aftercommit.stores.sqlite.target import sqlite_from_factory, sqlite_from_url

#: Makes a store of the wanted colour from a URL and the store's options.
OpenStore = Callable[..., Any]

#: What may be repeated to the user. Other texts may be connection strings with a password in them.
_FILE: Final = re.compile(r"[\w./\\-]+")

_by_scheme: Final[dict[str, OpenStore]] = {
    "sqlite": sqlite_from_url,
    "postgresql": postgres_from_url,
    "postgres": postgres_from_url,
    "postgresql+psycopg": postgres_from_url,
    "postgresql+asyncpg": postgres_from_url,
}

#: The options of a store as they are when nobody gives any.
_PLAIN: Final[dict[str, Any]] = {"table": "outbox_event", "schema": None, "delete_completed": False}


def register_store(scheme: str, open_store: OpenStore) -> None:
    """Make a store known under a URL scheme: `open_store(url, colour, **options)`."""
    _by_scheme[scheme.lower()] = open_store


def open_store(target: Any, colour: Colour, **options: Any) -> Any:
    """The store for a URL, a connection factory, or a store itself."""
    if isinstance(target, str):
        return _from_url(target, colour, options)
    if hasattr(target, "claim") and hasattr(target, "settle"):
        _refuse_options(target, options)
        return target
    if callable(target):
        return sqlite_from_factory(target, colour, **options)
    raise UnknownStore(
        f"the target is a {type(target).__module__}.{type(target).__qualname__}",
        fix='pass a URL such as "sqlite:///app.db", a function that opens a connection, or a store',
    )


def _refuse_options(store: object, options: dict[str, Any]) -> None:
    """A ready store has its table already; options about it would be passed over in silence."""
    for name, value in options.items():
        if value != _PLAIN.get(name):
            raise InvalidOption(
                f"{name}={value!r} was given beside the ready store {type(store).__name__}",
                fix=f"give {name} to the store",
            )


def _from_url(url: str, colour: Colour, options: dict[str, Any]) -> Any:
    scheme = "sqlite" if url == ":memory:" else url.partition(":")[0].lower()
    if "://" not in url and url != ":memory:":
        path = url if _FILE.fullmatch(url) else "path/to/file.db"
        raise UnknownStore("the target is a text, but not a URL", fix=f'for a SQLite file use "sqlite:///{path}"')
    if scheme not in _by_scheme:
        known = ", ".join(f"{name}://" for name in sorted(_by_scheme))
        # Of the URL only the scheme is shown: the rest may hold a password in ways that nobody foresees.
        raise UnknownStore(f"no store is known for {scheme}:// URLs", fix=f"use one of {known}")
    return _by_scheme[scheme](url, colour, **options)
