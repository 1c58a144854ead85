"""From a URL or a connection factory to a SQL Server store. Of a URL nothing is shown but host, port and database."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from aftercommit.errors import MissingDriver, UnknownStore
from aftercommit.ports import Colour
from aftercommit.stores.sql.store import SqlStore
from aftercommit.stores.sqlserver.dialect import DIALECT
from aftercommit.stores.sqlserver.executor import SqlServerExecutor

DRIVER: Final = "ODBC Driver 18 for SQL Server"

#: Long enough for a server that wakes up, short enough that a wrong address is noticed.
CONNECT_TIMEOUT: Final = 15

_SCHEMES: Final = ("mssql", "sqlserver", "mssql+pyodbc")
_EXAMPLE: Final = "mssql://user:password@host:1433/database"

#: Query parameters and the keywords of ODBC that they become. Those of ODBC are known as well, in any case.
_KEYWORDS: Final = {
    "encrypt": "Encrypt",
    "trust_server_certificate": "TrustServerCertificate",
    "host_name_in_certificate": "HostNameInCertificate",
    "trusted_connection": "Trusted_Connection",
    "authentication": "Authentication",
    "multi_subnet_failover": "MultiSubnetFailover",
}
_OTHERS: Final = ("driver", "connect_timeout")
_BY_BARE_NAME: Final = {name.replace("_", ""): name for name in (*_KEYWORDS, *_OTHERS)}

_SWITCHES: Final = {"yes": "yes", "true": "yes", "1": "yes", "no": "no", "false": "no", "0": "no"}
_CHOICES: Final = {
    "encrypt": {**_SWITCHES, "strict": "strict", "mandatory": "mandatory", "optional": "optional"},
    "trust_server_certificate": _SWITCHES,
    "trusted_connection": _SWITCHES,
    "multi_subnet_failover": _SWITCHES,
}


_PLAIN: Final = re.compile(r"[A-Za-z0-9_.,:\\-]+")


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


def sqlserver_from_engine(engine: Any, colour: Colour, **options: Any) -> SqlServerStore:
    """Connections as a SQLAlchemy engine over pyodbc opens them, beside its pool: the store has its own, and sets what
    it needs on each."""
    if engine.dialect.driver != "pyodbc":
        raise UnknownStore(
            f"the engine speaks to SQL Server through {engine.dialect.driver}",
            fix='create_engine("mssql+pyodbc://…"), which AsyncOutbox takes, too: it uses threads of its own',
        )

    def connect() -> Any:
        lent = engine.pool.recreate().connect()
        raw = lent.driver_connection
        lent.detach()
        return raw

    where = f"SQL Server at {engine.url.host or 'its data source'}/{engine.url.database or ''}"
    return sqlserver_from_factory(connect, colour, where=where, **options)


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


# The parts of a URL, as ODBC takes them.


@dataclass(frozen=True, slots=True)
class Address:
    """A database and the way to it."""

    where: str
    driver: str
    connect_timeout: int
    connection_string: str = field(repr=False)


def address_of(url: str) -> Address:
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in _SCHEMES:
        raise UnknownStore(f"no store speaks to SQL Server by {scheme}://", fix=f"use {_EXAMPLE}")
    parts, port = _split(rest)
    host, database = unquote(parts.hostname or ""), unquote(parts.path.removeprefix("/"))
    if not host or not database or "/" in database:
        raise UnknownStore("the SQL Server URL does not name a host and a database", fix=f"use {_EXAMPLE}")
    options = _options(parts)
    driver = options.pop("driver", DRIVER)
    timeout = _seconds(options.pop("connect_timeout", str(CONNECT_TIMEOUT)))
    is_instance = port is None and "\\" in host  # its port is asked for by its name
    server = host if is_instance else f"{host},{port or 1433}"
    keywords = {"DRIVER": driver, "SERVER": server, "DATABASE": database, **_login(parts, options)}
    keywords |= {_KEYWORDS[name]: value for name, value in options.items()}
    place = host if is_instance else f"{host}:{port or 1433}"
    return Address(
        where=f"SQL Server at {place}/{database}",
        driver=driver,
        connect_timeout=timeout,
        connection_string=";".join(f"{name}={_quoted(value)}" for name, value in keywords.items()),
    )


def _split(rest: str) -> tuple[SplitResult, int | None]:
    try:
        parts = urlsplit(f"mssql://{rest}")
        _refuse_cut_login(parts)
        return parts, parts.port
    except UnknownStore:
        raise
    except ValueError:  # whose text repeats what may be a password
        raise UnknownStore(
            "the SQL Server URL cannot be taken apart",
            fix=f"use {_EXAMPLE}, and write special characters of the login as %40, %2F, %3A …",
        ) from None


def _refuse_cut_login(parts: SplitResult) -> None:
    """A password with /, ? or # in it seems to end there, and its rest would be shown as the database."""
    if parts.fragment or "@" in parts.path + parts.query:
        raise UnknownStore(
            "the SQL Server URL has @ or # behind its host, as if its login were cut in two",
            fix="write /, ?, # and @ in names and passwords as %2F, %3F, %23 and %40",
        )


def _login(parts: SplitResult, options: dict[str, str]) -> dict[str, str]:
    """By name, or as the user of this process when nobody is named."""
    if parts.username is None:
        return {} if options.keys() & {"authentication", "trusted_connection"} else {"Trusted_Connection": "yes"}
    login = {"UID": unquote(parts.username)}
    return login if parts.password is None else {**login, "PWD": unquote(parts.password)}


def _options(parts: SplitResult) -> dict[str, str]:
    options: dict[str, str] = {}
    for given, value in parse_qsl(parts.query, keep_blank_values=True):
        name = _BY_BARE_NAME.get(given.lower().replace("_", "").replace(" ", ""))
        if name is None or name in options:
            problem = "is not known" if name is None else "is there twice"
            raise UnknownStore(
                f"the query parameter {given!r} of the SQL Server URL {problem}",
                fix=f"use {', '.join(sorted(_BY_BARE_NAME.values()))}, each once; for others pass a function that "
                "opens a pyodbc connection",
            )
        options[name] = _checked(name, value)
    if "host_name_in_certificate" in options and (
        options.get("encrypt") in ("no", "optional") or options.get("trust_server_certificate") == "yes"
    ):
        raise UnknownStore(
            "the SQL Server URL names a host_name_in_certificate, and lets no certificate be checked",
            fix="leave out encrypt and trust_server_certificate, or the name",
        )
    return options


def _checked(name: str, value: str) -> str:
    choices = _CHOICES.get(name)
    if not value or (choices is not None and value.lower() not in choices):
        allowed = "a value" if choices is None else " or ".join(dict.fromkeys(choices.values()))
        raise UnknownStore(f"{name} in the SQL Server URL is {value!r}", fix=f"give it {allowed}")
    return value if choices is None else choices[value.lower()]


def _seconds(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 4 or int(text) == 0:
        raise UnknownStore(f"connect_timeout in the SQL Server URL is {text!r}", fix="give whole seconds, from 1 on")
    return int(text)


def _quoted(value: str) -> str:
    """A value that ends where it ends, whatever is in it. Plain ones stay plain, as everybody writes them."""
    return value if _PLAIN.fullmatch(value) else "{" + value.replace("}", "}}") + "}"
