"""From a URL to a MySQL or MariaDB store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from aftercommit.errors import MissingDriver, UnknownStore
from aftercommit.ports import Colour
from aftercommit.stores.mysql.address import Address, address_of
from aftercommit.stores.mysql.dialect import DIALECT
from aftercommit.stores.sql.store import SqlStore

_DRIVERS: Final = {Colour.BLOCKING: "pymysql", Colour.ASYNC: "asyncmy"}


class MysqlStore(SqlStore):
    """Events in a table of MySQL (8.0.17 or later) or MariaDB (10.6 or later)."""


def mysql_from_url(url: str, colour: Colour, **options: Any) -> MysqlStore:
    """`mysql://` and `mariadb://` use the driver of the colour; `+pymysql` and `+asyncmy` name it."""
    driver = url.partition("://")[0].lower().partition("+")[2]
    ours = _DRIVERS[colour]
    if driver not in ("", *_DRIVERS.values()):
        raise UnknownStore(f"no store speaks to MySQL through {driver}", fix="use mysql+pymysql:// or mysql+asyncmy://")
    if driver not in ("", ours):
        kind = "AsyncOutbox" if driver == "asyncmy" else "Outbox"
        raise UnknownStore(f"{driver} does not fit this outbox, which needs {ours}", fix=f"use {kind}, or mysql://")
    return _at(address_of(url), colour, options)


def mysql_from_connection(
    connection: Any, colour: Colour, *, connect: Callable[[], Any] | None = None, **options: Any
) -> MysqlStore:
    """Connections like this one of PyMySQL or asyncmy: opened by `connect`, else with the same login. This one is
    only looked at."""
    address = _address_of_connection(connection)
    if connect is None:
        return _at(address, colour, options)
    connection.close()
    executor = _driver_of(Colour.BLOCKING).over_connections(connect, address.pool_size)
    return MysqlStore(executor, DIALECT, where=address.where, **options)


def mysql_from_engine(engine: Any, _: Colour, **options: Any) -> MysqlStore:
    """A SQLAlchemy engine over PyMySQL or asyncmy. The engine's colour decides."""
    driver = engine.dialect.driver
    if driver not in _DRIVERS.values():
        raise UnknownStore(
            f"the engine speaks to MySQL through {driver}",
            fix='create_engine("mysql+pymysql://…"), or create_async_engine("mysql+asyncmy://…")',
        )
    where = f"MySQL at {engine.url.host or 'the local socket'}/{engine.url.database or ''}"
    colour = Colour.ASYNC if engine.dialect.is_async else Colour.BLOCKING
    return MysqlStore(_driver_of(colour).over_engine(engine), DIALECT, where=where, **options)


def _at(address: Address, colour: Colour, options: dict[str, Any]) -> MysqlStore:
    return MysqlStore(_driver_of(colour).over_address(address), DIALECT, where=address.where, **options)


def _driver_of(colour: Colour) -> Any:
    """Our module for it."""
    try:
        if colour is Colour.BLOCKING:
            from aftercommit.stores.mysql import pymysql_driver

            return pymysql_driver
        from aftercommit.stores.mysql import asyncmy_driver
    except ImportError as error:
        raise MissingDriver(
            f"{_DRIVERS[colour]} is not installed ({error})", fix='pip install "aftercommit[mysql]"'
        ) from error
    return asyncmy_driver


def _address_of_connection(connection: Any) -> Address:
    """PyMySQL says it aloud, asyncmy under its breath."""
    if hasattr(connection, "host"):
        # Since 1.2 PyMySQL encrypts where the server can, asked or not.
        is_encrypted = connection.ssl and getattr(connection, "_ssl_required", True)
        socket, context = connection.unix_socket, connection.ctx if is_encrypted else None
        host, port, database = connection.host, connection.port, connection.db
        user, password = connection.user, connection.password
    else:
        socket, context = connection._unix_socket, connection._ssl_context
        host, port, database = connection._host, connection._port, connection._db
        user, password = connection._user, connection._password
    if not database:
        raise UnknownStore("the connection has no database", fix="connect with database=…")
    return Address(
        host, port, _text(database), _text(user), password, {"unix_socket": socket} if socket else {}, context
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
