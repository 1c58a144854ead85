"""Which store belongs to a target: a URL, a SQLAlchemy engine, a pool, a connection, or a function that opens one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from inspect import isawaitable, iscoroutine
from typing import Any, Final

from aftercommit.errors import InvalidOption, OutboxError, UnknownStore
from aftercommit.events.order import UNORDERED, Order
from aftercommit.ports import Colour, EventStore

# Loaded before any outbox: after a fork its locks are made anew before an outbox of the child gives up its connections.
from aftercommit.stores.sqlite import write_lock as _first_after_a_fork  # noqa: F401

#: Makes a store of the wanted colour from a target and the store's options.
OpenStore = Callable[..., EventStore]

#: Where other packages name their stores: the entry point's name is the URL scheme, its object `open_store`.
ENTRY_POINTS: Final = "aftercommit.stores"

#: What may be repeated to the user. Other texts may be connection strings with a password in them.
_FILE: Final = re.compile(r"[\w./\\-]+")


# Modules of databases are loaded when one of their kind is asked for.


def _sqlite() -> Any:
    from aftercommit.stores.sqlite import target

    return target


def _postgres() -> Any:
    from aftercommit.stores.postgres import target

    return target


def _mysql() -> Any:
    from aftercommit.stores.mysql import target

    return target


def _sqlserver() -> Any:
    from aftercommit.stores.sqlserver import target

    return target


def _redis() -> Any:
    from aftercommit.stores.redis import target

    return target


def _later(module: Callable[[], Any], function: str) -> OpenStore:
    def opener(target: Any, colour: Colour, **options: Any) -> EventStore:
        store: EventStore = getattr(module(), function)(target, colour, **options)
        return store

    return opener


_by_scheme: Final[dict[str, OpenStore]] = {
    "sqlite": _later(_sqlite, "sqlite_from_url"),
    "postgresql": _later(_postgres, "postgres_from_url"),
    "postgres": _later(_postgres, "postgres_from_url"),
    "cockroachdb": _later(_postgres, "postgres_from_url"),
    "mysql": _later(_mysql, "mysql_from_url"),
    "mariadb": _later(_mysql, "mysql_from_url"),
    "tidb": _later(_mysql, "mysql_from_url"),
    "mssql": _later(_sqlserver, "sqlserver_from_url"),
    "sqlserver": _later(_sqlserver, "sqlserver_from_url"),
    "redis": _later(_redis, "redis_from_url"),
    "rediss": _later(_redis, "redis_from_url"),
    "unix": _later(_redis, "redis_from_url"),
}

#: By the package that the target's class comes from.
_by_package: Final[Mapping[str, OpenStore]] = {
    "sqlite3": _later(_sqlite, "sqlite_from_connection"),
    "psycopg": _later(_postgres, "postgres_from_connection"),
    "psycopg_pool": _later(_postgres, "postgres_from_pool"),
    "asyncpg": _later(_postgres, "postgres_from_pool"),
    "pymysql": _later(_mysql, "mysql_from_connection"),
    "asyncmy": _later(_mysql, "mysql_from_connection"),
    "pyodbc": _later(_sqlserver, "sqlserver_from_connection"),
    "redis": _later(_redis, "redis_from_client"),
}

_by_dialect: Final[Mapping[str, OpenStore]] = {
    "sqlite": _later(_sqlite, "sqlite_from_engine"),
    "postgresql": _later(_postgres, "postgres_from_engine"),
    "cockroachdb": _later(_postgres, "postgres_from_engine"),
    "mysql": _later(_mysql, "mysql_from_engine"),
    "mariadb": _later(_mysql, "mysql_from_engine"),
    "tidb": _later(_mysql, "mysql_from_engine"),
    "mssql": _later(_sqlserver, "sqlserver_from_engine"),
}

#: The options of a store as they are when nobody gives any.
_PLAIN: Final[dict[str, Any]] = {"table": "outbox_event", "schema": None, "delete_completed": False}


def register_store(scheme: str, open_store: OpenStore) -> None:
    """Make a store known under a URL scheme: `open_store(url, colour, **options)`.

    A package does the same without being imported by an entry point of the group `aftercommit.stores`.
    """
    _by_scheme[scheme.lower()] = open_store


def open_store(target: Any, colour: Colour, *, replication: str | None = None, **options: Any) -> EventStore:
    """The store for a target, or the target itself if it is one."""
    store = _opened(target, colour, options)
    if replication is not None:
        if not hasattr(store, "replicate"):
            raise InvalidOption(
                f"replication={replication!r} needs a log that can be read, and {store!r} has none",
                fix="leave it out, or use PostgreSQL",
            )
        store.replicate(replication)
    return store


def _opened(target: Any, colour: Colour, options: dict[str, Any]) -> EventStore:
    if isinstance(target, str):
        return _from_url(target, colour, options)
    if hasattr(target, "claim") and hasattr(target, "settle"):
        store: EventStore = target
        _refuse_options(store, options)
        return store
    if is_engine(target):
        return _from_engine(target, colour, options)
    if hasattr(target, "render_as_string"):  # SQLAlchemy's URL, which hides its password from str()
        return _from_url(target.render_as_string(hide_password=False), colour, options)
    if (opener := _opener_of(target)) is not None:
        return opener(target, colour, **options)
    if callable(target):
        return _from_factory(target, colour, options)
    raise _unknown(target)


def is_engine(target: object) -> bool:
    """Without importing SQLAlchemy: whoever has an engine has imported it."""
    return any(
        each.__module__.startswith("sqlalchemy.") and each.__name__ in ("Engine", "AsyncEngine")
        for each in type(target).__mro__
    )


def _opener_of(target: object) -> OpenStore | None:
    """By its class, or one that it is derived from; no driver is imported for the question."""
    packages = (each.__module__.partition(".")[0] for each in type(target).__mro__)
    return next((_by_package[package] for package in packages if package in _by_package), None)


def _unknown(target: object) -> UnknownStore:
    return UnknownStore(
        f"the target is a {type(target).__module__}.{type(target).__qualname__}",
        fix='pass a URL such as "sqlite:///app.db" or "postgresql://host/app", a SQLAlchemy engine, a pool, a function '
        "that opens a connection, or a store",
    )


def _refuse_options(store: EventStore, options: dict[str, Any]) -> None:
    """A ready store has its table already; options about it would be passed over in silence."""
    own = store.order
    wanted = Order(options.pop("ordered", UNORDERED.ordered), options.pop("on_dead", UNORDERED.on_dead))
    if own != wanted:
        raise InvalidOption(
            f"the outbox has {wanted}, the ready store {type(store).__name__} has {own}",
            fix=f"give {own} to the outbox, or {wanted} to the store",
        )
    if options.pop("serialize_keys", False) is not store.capabilities.serializes_keys:
        raise InvalidOption(
            f"only one of the outbox and the ready store {type(store).__name__} has serialize_keys=True",
            fix="give serialize_keys to both",
        )
    for name, value in options.items():
        if value != _PLAIN.get(name):
            raise InvalidOption(
                f"{name}={value!r} was given beside the ready store {type(store).__name__}",
                fix=f"give {name} to the store",
            )


def _from_url(url: str, colour: Colour, options: dict[str, Any]) -> EventStore:
    scheme = "sqlite" if url == ":memory:" else url.partition(":")[0].lower()
    if "://" not in url and url != ":memory:":
        path = url if _FILE.fullmatch(url) else "path/to/file.db"
        raise UnknownStore("the target is a text, but not a URL", fix=f'for a SQLite file use "sqlite:///{path}"')
    # A driver may be named behind the database: postgresql+asyncpg.
    opener = _by_scheme.get(scheme) or _by_scheme.get(scheme.partition("+")[0]) or _installed(scheme)
    if opener is None:
        known = ", ".join(f"{name}://" for name in sorted(_by_scheme))
        # Of the URL only the scheme is shown: the rest may hold a password in ways that nobody foresees.
        raise UnknownStore(f"no store is known for {scheme}:// URLs", fix=f"use one of {known}")
    return opener(url, colour, **options)


def _installed(scheme: str) -> OpenStore | None:
    """The store of another package."""
    from importlib.metadata import entry_points  # brings the email package along

    for point in entry_points(group=ENTRY_POINTS, name=scheme):
        try:
            found: OpenStore = point.load()
        except Exception as error:
            raise UnknownStore(
                f"the store for {scheme}:// from {point.value} cannot be loaded: {type(error).__name__}: {error}",
                fix="mend or upgrade the package that brings it",
            ) from error
        return found
    return None


def _from_engine(engine: Any, colour: Colour, options: dict[str, Any]) -> EventStore:
    name = engine.dialect.name
    if (opener := _by_dialect.get(name)) is None:
        known = ", ".join(sorted(_by_dialect))
        raise UnknownStore(f"the engine is for {name}", fix=f"use an engine for one of {known}")
    return opener(engine, colour, **options)


def _from_factory(connect: Callable[[], Any], colour: Colour, options: dict[str, Any]) -> EventStore:
    """Look once at what it opens."""
    try:
        first = connect()
    except OutboxError:
        raise
    except TypeError as error:
        raise UnknownStore(
            f"the target was called to open a connection, and failed: {error}", fix="pass a function without arguments"
        ) from error
    if isawaitable(first):
        if iscoroutine(first):
            first.close()
        raise UnknownStore(
            "the connection factory is async, so it cannot be asked here which database it opens",
            fix="pass a URL, an async pool, or a SQLAlchemy async engine",
        )
    opener = _opener_of(first)
    if opener is None or not hasattr(first, "cursor"):
        raise UnknownStore(
            f"the connection factory returned a {type(first).__module__}.{type(first).__qualname__}",
            fix="return a connection of sqlite3, psycopg or PyMySQL",
        )
    return opener(first, colour, connect=connect, **options)
