"""From a URL to a MySQL or MariaDB store. Of a URL only host, port and database are ever shown."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from aftercommit.errors import InvalidOption, MissingDriver, UnknownStore
from aftercommit.ports import Colour
from aftercommit.stores.mysql.dialect import DIALECT
from aftercommit.stores.mysql.pool import is_tidb
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.store import SqlStore
from aftercommit.stores.tidb.dialect import DIALECT as TIDB

_DRIVERS: Final = {Colour.BLOCKING: "pymysql", Colour.ASYNC: "asyncmy"}

_PARAMETERS: Final = (
    *("charset", "connect_timeout", "pool_size", "unix_socket"),
    *("ssl", "ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_identity"),
)

_YES: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

_FORM: Final = "mysql://user:password@host:3306/database"


#: What is known of the servers that speak this protocol: how their texts are said, and the port that they listen on.
_PRODUCTS: Final[Mapping[str, tuple[Dialect, int]]] = {"MySQL": (DIALECT, 3306), "TiDB": (TIDB, 4000)}


class MysqlStore(SqlStore):
    """Events in a table of MySQL (8.0.17 or later), MariaDB (10.6 or later) or TiDB (7.5 or later)."""


def mysql_from_url(url: str, colour: Colour, **options: Any) -> MysqlStore:
    """`mysql://`, `mariadb://` and `tidb://` use the driver of the colour; `+pymysql` and `+asyncmy` name it."""
    database, _, driver = url.partition("://")[0].lower().partition("+")
    ours = _DRIVERS[colour]
    if driver not in ("", *_DRIVERS.values()):
        raise UnknownStore(f"no store speaks to MySQL through {driver}", fix="use mysql+pymysql:// or mysql+asyncmy://")
    if driver not in ("", ours):
        kind = "AsyncOutbox" if driver == "asyncmy" else "Outbox"
        raise UnknownStore(f"{driver} does not fit this outbox, which needs {ours}", fix=f"use {kind}, or mysql://")
    return _at(address_of(url, product="TiDB" if database == "tidb" else "MySQL"), colour, options)


def mysql_from_connection(
    connection: Any, colour: Colour, *, connect: Callable[[], Any] | None = None, **options: Any
) -> MysqlStore:
    """Connections like this one of PyMySQL or asyncmy: opened by `connect`, else with the same login. This one is
    only looked at."""
    address = _address_of_connection(connection)
    if connect is None:
        return _at(address, colour, options)
    connection.close()
    executor = _driver_of(Colour.BLOCKING).over_connections(connect, address.pool_size, product=address.product)
    return MysqlStore(executor, address.dialect, where=address.where, **options)


def mysql_from_engine(engine: Any, _: Colour, **options: Any) -> MysqlStore:
    """A SQLAlchemy engine over PyMySQL or asyncmy. The engine's colour decides."""
    driver = engine.dialect.driver
    if driver not in _DRIVERS.values():
        raise UnknownStore(
            f"the engine speaks to MySQL through {driver}",
            fix='create_engine("mysql+pymysql://…"), or create_async_engine("mysql+asyncmy://…")',
        )
    product = "TiDB" if engine.dialect.name == "tidb" else "MySQL"
    where = f"{product} at {engine.url.host or 'the local socket'}/{engine.url.database or ''}"
    colour = Colour.ASYNC if engine.dialect.is_async else Colour.BLOCKING
    executor = _driver_of(colour).over_engine(engine, product=product)
    return MysqlStore(executor, _PRODUCTS[product][0], where=where, **options)


def _at(address: Address, colour: Colour, options: dict[str, Any]) -> MysqlStore:
    return MysqlStore(_driver_of(colour).over_address(address), address.dialect, where=address.where, **options)


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
    product = "TiDB" if is_tidb(connection.get_server_info()) else "MySQL"
    query = {"unix_socket": socket} if socket else {}
    return Address(host, port, _text(database), _text(user), password, query, context, product)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


@dataclass(frozen=True, slots=True)
class Address:
    """One database on one server."""

    host: str
    port: int
    database: str
    user: str | None = None
    password: bytes = field(default=b"", repr=False)
    query: Mapping[str, str] = field(default_factory=dict)
    #: As an open connection has it; a URL says it by parameters.
    context: ssl.SSLContext | None = field(default=None, repr=False)
    #: Whose statements it is told.
    product: str = "MySQL"

    @property
    def dialect(self) -> Dialect:
        return _PRODUCTS[self.product][0]

    @property
    def where(self) -> str:
        return f"{self.product} at {self.query.get('unix_socket') or f'{self.host}:{self.port}'}/{self.database}"

    @property
    def pool_size(self) -> int:
        """How many connections users' transactions may take, and how many the store itself."""
        return _number(self.query, "pool_size", default=20)

    def login(self) -> dict[str, Any]:
        """What both drivers take by the same names."""
        return {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "database": self.database,
            "unix_socket": self.query.get("unix_socket"),
            "charset": "utf8mb4",
            "connect_timeout": _number(self.query, "connect_timeout", default=10),
        }

    @property
    def refuses_tls(self) -> bool:
        return "ssl" in self.query and not _flag(self.query, "ssl", default=True)

    def tls(self) -> ssl.SSLContext | None:
        """Encrypted with `ssl=true`. With `ssl_ca` the server's certificate and name are checked as well, with
        `ssl_verify_identity=true` alone by the authorities that the system trusts."""
        if self.refuses_tls or not any(name.startswith("ssl") for name in self.query):
            return self.context
        authority = self.query.get("ssl_ca")
        context = ssl.create_default_context(cafile=authority)
        context.check_hostname = _flag(self.query, "ssl_verify_identity", default=authority is not None)
        is_checked = authority is not None or context.check_hostname
        context.verify_mode = ssl.CERT_REQUIRED if is_checked else ssl.CERT_NONE
        # The certificates that MySQL makes for itself lack extensions that Python 3.13 asks for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if certificate := self.query.get("ssl_cert"):
            context.load_cert_chain(certificate, self.query.get("ssl_key"))
        return context


def address_of(url: str, product: str = "MySQL") -> Address:
    """Every part is checked here, before anything is connected."""
    try:
        parts = urlsplit(url)
    except ValueError:  # whose text shows what it could not read, be it the password
        raise UnknownStore("the MySQL URL cannot be read", fix=_FORM) from None
    try:
        port = parts.port or _PRODUCTS[product][1]
    except ValueError:
        raise UnknownStore("the port of the MySQL URL is no number from 1 to 65535", fix=_FORM) from None
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database:
        raise UnknownStore("the MySQL URL names no database", fix=_FORM)
    address = Address(
        host=parts.hostname or "localhost",
        port=port,
        database=database,
        user=None if parts.username is None else unquote(parts.username),
        password=unquote(parts.password or "").encode(),  # drivers would make Latin-1 of a text
        query=_query(parts.query),
        product=product,
    )
    _check(address)
    return address


def _query(text: str) -> dict[str, str]:
    query = dict(parse_qsl(text, keep_blank_values=True))
    if unknown := sorted(query.keys() - set(_PARAMETERS)):
        raise InvalidOption(
            f"the MySQL URL has the unknown parameter {', '.join(unknown)}", fix=f"use only {', '.join(_PARAMETERS)}"
        )
    return query


def _check(address: Address) -> None:
    charset = address.query.get("charset", "utf8mb4")
    if charset.lower() != "utf8mb4":
        raise InvalidOption(
            f"charset is {charset!r}, in which not every event can be said", fix="leave it out, or use charset=utf8mb4"
        )
    address.login()
    asked = [name for name in address.query if name.startswith("ssl_")]
    if address.refuses_tls and asked:
        raise InvalidOption(f"ssl=false stands beside {', '.join(asked)}", fix="leave one of them out")
    if "ssl_key" in asked and "ssl_cert" not in asked:
        raise InvalidOption("ssl_key is the key to no ssl_cert", fix="give ssl_cert, too")
    if address.pool_size < 2:
        raise InvalidOption("pool_size is below 2", fix="use pool_size=20")
    try:
        address.tls()
    except (OSError, ssl.SSLError) as error:
        raise InvalidOption(
            f"the certificates of the MySQL URL cannot be read: {error}", fix="check ssl_ca, ssl_cert and ssl_key"
        ) from error


def _number(query: Mapping[str, str], name: str, *, default: int) -> int:
    text = query.get(name, str(default))
    if not text.isdecimal() or not 0 < int(text) <= 31_536_000:
        raise InvalidOption(f"{name} is {text!r}", fix=f"use a positive whole number, such as {name}={default}")
    return int(text)


def _flag(query: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = query.get(name, str(default)).lower()
    if text not in _YES:
        raise InvalidOption(f"{name} is {text!r}", fix=f"use {name}=true or {name}=false")
    return _YES[text]
