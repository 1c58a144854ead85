"""From a URL to a MySQL or MariaDB store."""

from __future__ import annotations

from typing import Any, Final

from aftercommit.errors import MissingDriver, UnknownStore
from aftercommit.ports import Colour, Executor
from aftercommit.stores.mysql.address import Address, address_of
from aftercommit.stores.mysql.dialect import DIALECT
from aftercommit.stores.sql import SqlStore

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
    address = address_of(url)
    return MysqlStore(_executor(address, colour), DIALECT, where=address.where, **options)


def _executor(address: Address, colour: Colour) -> Executor:
    try:
        if colour is Colour.BLOCKING:
            from aftercommit.stores.mysql.pymysql_driver import PymysqlExecutor

            return PymysqlExecutor(address)
        from aftercommit.stores.mysql.asyncmy_driver import AsyncmyExecutor

        return AsyncmyExecutor(address)
    except ImportError as error:
        raise MissingDriver(f"{_DRIVERS[colour]} is not installed", fix='pip install "aftercommit[mysql]"') from error
