"""From a URL or a connection factory to a SQL Server store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aftercommit.errors import MissingDriver, UnknownStore
from aftercommit.ports import Colour
from aftercommit.stores.sql.store import SqlStore
from aftercommit.stores.sqlserver.dialect import DIALECT
from aftercommit.stores.sqlserver.executor import SqlServerExecutor
from aftercommit.stores.sqlserver.url import Address, address_of


class SqlServerStore(SqlStore):
    """Events in a SQL Server table."""

    def __init__(
        self, connect: Callable[[], Any], driver: Any, colour: Colour, *, where: str = "SQL Server", **options: Any
    ) -> None:
        super().__init__(SqlServerExecutor(connect, driver, colour), DIALECT, where=where, **options)


def sqlserver_from_url(url: str, colour: Colour, **options: Any) -> SqlServerStore:
    """`mssql://`, `sqlserver://` and `mssql+pyodbc://user:password@host:port/database`, with `?driver=` and others."""
    address = address_of(url)
    driver = _pyodbc()
    return SqlServerStore(_opener(address, driver), driver, colour, where=address.where, **options)


def sqlserver_from_factory(connect: Callable[[], Any], colour: Colour, **options: Any) -> SqlServerStore:
    """A store over connections that the caller's own function opens, with pyodbc."""
    driver = _pyodbc()

    def steered() -> Any:
        connection = connect()
        if not isinstance(connection, driver.Connection):
            raise UnknownStore(
                f"the connection factory returned a {type(connection).__module__}.{type(connection).__qualname__}",
                fix="return pyodbc.connect(…)",
            )
        connection.autocommit = True  # transactions begin and end when the store says so
        return connection

    return SqlServerStore(steered, driver, colour, **options)


def _pyodbc() -> Any:
    try:
        import pyodbc  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:  # also when it is there, and the system's ODBC is not
        raise MissingDriver(
            f"SQL Server needs pyodbc, which cannot be imported: {error}",
            fix='pip install "aftercommit[sqlserver]"; on Linux and macOS install unixODBC, too, and everywhere '
            "Microsoft's ODBC Driver for SQL Server",
        ) from error
    return pyodbc


def sqlserver_from_connection(
    connection: Any, colour: Colour, *, connect: Callable[[], Any] | None = None, **options: Any
) -> SqlServerStore:
    """Connections that the caller's function opens; this one was opened by it to be looked at."""
    if connect is None:
        raise UnknownStore(
            "the target is an open pyodbc connection, and the outbox needs several",
            fix="pass a function that opens one: lambda: pyodbc.connect(…)",
        )
    connection.close()
    return sqlserver_from_factory(connect, colour, **options)


def _opener(address: Address, driver: Any) -> Callable[[], Any]:
    def connect() -> Any:
        try:
            return driver.connect(address.connection_string, autocommit=True, timeout=address.connect_timeout)
        except driver.Error as error:
            if _lacks_driver(error):
                found = ", ".join(driver.drivers()) or "none"
                raise MissingDriver(
                    f"the ODBC driver {address.driver!r} is not installed; there are: {found}",
                    fix="install Microsoft's ODBC Driver 18 for SQL Server, or name another by ?driver=… in the URL",
                ) from error
            raise

    return connect


#: What the driver manager says when there is no such driver, by SQLSTATE, and a part of the text.
_NO_DRIVER: Mapping[str, str] = {"IM002": "", "IM003": "", "01000": "Can't open lib"}


def _lacks_driver(error: Exception) -> bool:
    state, *text = map(str, error.args)
    return state in _NO_DRIVER and _NO_DRIVER[state] in " ".join(text)
