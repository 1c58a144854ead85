"""The parts of a SQL Server URL, as ODBC takes them. Of a URL nothing is shown but host, port and database."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from aftercommit.errors import UnknownStore

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
