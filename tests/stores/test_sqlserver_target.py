"""From a URL to a SQL Server store: what ODBC is told, what is refused, and what is never shown."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aftercommit.errors import MissingDriver, OutboxError, StoreUnavailable, UnknownStore
from aftercommit.ports import Colour
from aftercommit.stores.detect import open_store
from aftercommit.stores.sqlserver.executor import SqlServerExecutor
from aftercommit.stores.sqlserver.target import SqlServerStore, address_of, sqlserver_from_factory, sqlserver_from_url
from tests.stores.kit import run_in
from tests.stores.sqlserver_kit import Connection, Driver, Error, Server, lost

URL = "mssql://sa:s3cr%40t@db.example:14330/shop"


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """pyodbc, as far as it is used."""
    made = Driver(Server())
    monkeypatch.setitem(sys.modules, "pyodbc", made)
    return made


def keywords(url: str) -> dict[str, str]:
    """What ODBC reads in the connection string."""
    rest, found = address_of(url).connection_string, {}
    while rest:
        pair = re.match(r"(\w+)=(?:\{((?:[^}]|\}\})*)\}|([^;{}]*))(?:;|\Z)", rest)
        assert pair is not None, rest
        found[pair[1]] = pair[3] if pair[2] is None else pair[2].replace("}}", "}")
        rest = rest[pair.end() :]
    return found


# ---------------------------------------------------------------- what ODBC is told


@pytest.mark.parametrize("scheme", ["mssql", "sqlserver", "mssql+pyodbc", "MSSQL"])
def test_a_url_names_a_server_and_a_login(scheme: str) -> None:
    assert keywords(scheme + URL[5:]) == {
        "DRIVER": "ODBC Driver 18 for SQL Server",
        "SERVER": "db.example,14330",
        "DATABASE": "shop",
        "UID": "sa",
        "PWD": "s3cr@t",
    }


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("mssql://u:p@h/d", {"SERVER": "h,1433"}),
        ("mssql://u:p@h%5CSQLEXPRESS/d", {"SERVER": "h\\SQLEXPRESS"}),
        ("mssql://u:p@[::1]:1500/d", {"SERVER": "::1,1500"}),
        ("mssql://h/d", {"Trusted_Connection": "yes"}),
        ("mssql://h/d?authentication=ActiveDirectoryMsi", {"Authentication": "ActiveDirectoryMsi"}),
        ("mssql://u:p@h/a%20b%3Bc", {"DATABASE": "a b;c"}),
        ("mssql://u:p@h/d?driver=ODBC+Driver+17+for+SQL+Server", {"DRIVER": "ODBC Driver 17 for SQL Server"}),
        ("mssql://u:p@h/d?encrypt=strict", {"Encrypt": "strict"}),
        (
            "mssql://u:p@h/d?Encrypt=False&TrustServerCertificate=Yes",
            {"Encrypt": "no", "TrustServerCertificate": "yes"},
        ),
        ("mssql://u:p@h/d?trust_server_certificate=true", {"TrustServerCertificate": "yes"}),
        ("mssql://u:p@h/d?MultiSubnetFailover=1", {"MultiSubnetFailover": "yes"}),
    ],
)
def test_parts_of_a_url_become_keywords(url: str, expected: dict[str, str]) -> None:
    assert expected.items() <= keywords(url).items()


@example(password="}")
@example(password="a};UID=b;x={")
@given(password=st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_password_is_told_as_it_is(password: str) -> None:
    """Whatever is in it, it ends where it ends."""
    from urllib.parse import quote

    found = keywords(f"mssql://u:{quote(password, safe='')}@h/d?encrypt=no")
    assert (found["PWD"], found["Encrypt"]) == (password, "no")
    assert len(found) == 6


@pytest.mark.parametrize("colour", Colour)
def test_a_store_has_the_executor_of_its_colour(driver: Driver, colour: Colour) -> None:
    """And opens nothing before it is used."""
    store = sqlserver_from_url(URL + "?connect_timeout=3", colour)
    assert type(store) is SqlServerStore
    assert store.colour is colour
    assert (type(store.executor), store.executor.colour) == (SqlServerExecutor, colour)
    assert driver.strings == []
    run_in(colour, touch(store))
    assert driver.strings == [address_of(URL).connection_string]
    assert driver.options == [{"autocommit": True, "timeout": 3}]


async def touch(store: Any) -> None:
    await store.executor.execute("SELECT 1")
    await store.close()


def test_a_factory_opens_the_connections(driver: Driver) -> None:
    """With what the user sets; only transactions are ours."""
    raw = driver.server.connect()
    raw.autocommit = False
    store = sqlserver_from_factory(lambda: raw, Colour.BLOCKING, table="shop_outbox")
    run_in(Colour.BLOCKING, touch(store))
    assert raw.autocommit
    assert isinstance(raw, Connection)


def test_a_factory_of_something_else_is_refused(driver: Driver) -> None:
    with pytest.raises(UnknownStore, match=r"builtins\.dict") as caught:
        run_in(Colour.BLOCKING, touch(sqlserver_from_factory(dict, Colour.BLOCKING)))
    assert "pyodbc.connect" in caught.value.fix


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("url", "problem", "fix"),
    [
        ("mssql+pymssql://u:s3cret@h/d", "mssql+pymssql://", "mssql://user"),
        ("mssql://u:s3cret@/d", "host and a database", "mssql://user"),
        ("mssql://u:s3cret@h", "host and a database", "mssql://user"),
        ("mssql://u:s3cret@h/d/e", "host and a database", "mssql://user"),
        ("mssql://u:s3cret@h:port/d", "taken apart", "%3A"),
        ("mssql://u:s3c:ret@h:99999/d", "taken apart", "%3A"),
        ("mssql://u:s3/cret@h/d", "cut in two", "%2F"),
        ("mssql://u:1433/cret@h", "cut in two", "%2F"),
        ("mssql://u:s3@b/cret@h", "cut in two", "%40"),
        ("mssql://u:[s3cret@h/d", "taken apart", "%40"),
        ("mssql://u:s3?cret@h/d", "cut in two", "%3F"),
        ("mssql://u:s3#cret@h/d", "cut in two", "%23"),
        (
            "mssql://u:s3cret@h/d?charset=utf8",
            "'charset' of the SQL Server URL is not known",
            "trust_server_certificate",
        ),
        ("mssql://u:s3cret@h/d?driver=a&Driver=b", "'Driver' of the SQL Server URL is there twice", "each once"),
        ("mssql://u:s3cret@h/d?encrypt=perhaps", "encrypt in the SQL Server URL is 'perhaps'", "yes or no or strict"),
        ("mssql://u:s3cret@h/d?driver=", "driver in the SQL Server URL is ''", "a value"),
        ("mssql://u:s3cret@h/d?connect_timeout=soon", "'soon'", "whole seconds"),
        ("mssql://u:s3cret@h/d?connect_timeout=0", "'0'", "whole seconds"),
    ],
)
def test_a_url_that_says_nothing_useful_is_refused_with_the_fix(url: str, problem: str, fix: str) -> None:
    with pytest.raises(UnknownStore) as caught:
        address_of(url)
    assert problem in str(caught.value)
    assert fix in caught.value.fix
    assert caught.value.__cause__ is None
    for part in ("s3cret", "s3", "cret@", "u:"):
        assert part not in str(caught.value).replace("user:password", "")


def test_nothing_but_host_port_and_database_is_shown(driver: Driver) -> None:
    store = sqlserver_from_url(URL, Colour.BLOCKING)
    assert store.where == "SQL Server at db.example:14330/shop"
    for shown in (repr(store), repr(address_of(URL))):
        assert "db.example:14330/shop" in shown
        assert "s3cr" not in shown
        assert "sa:" not in shown


# ---------------------------------------------------------------- drivers


def test_a_library_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyodbc", None)
    for make in (lambda: sqlserver_from_url(URL, Colour.BLOCKING), lambda: sqlserver_from_factory(dict, Colour.ASYNC)):
        with pytest.raises(MissingDriver, match="pyodbc") as caught:
            make()
        assert "aftercommit[sqlserver]" in caught.value.fix
        assert "ODBC" in caught.value.fix
        assert isinstance(caught.value.__cause__, ImportError)


def test_a_bad_url_is_told_before_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyodbc", None)
    with pytest.raises(UnknownStore):
        sqlserver_from_url("mssql://", Colour.BLOCKING)


@pytest.mark.parametrize(
    "error",
    [
        Error("01000", "[01000] [unixODBC][Driver Manager]Can't open lib 'x' : file not found (0) (SQLDriverConnect)"),
        Error("IM002", "[IM002] [Microsoft][ODBC Driver Manager] Data source name not found (0) (SQLDriverConnect)"),
    ],
    ids=["unixODBC", "Windows"],
)
@pytest.mark.parametrize("colour", Colour)
def test_an_odbc_driver_that_is_not_installed_is_named(driver: Driver, error: Error, colour: Colour) -> None:
    store = sqlserver_from_url(URL, colour)
    driver.server.connecting = [error]
    with pytest.raises(MissingDriver, match=r"ODBC Driver 18 for SQL Server.*there are: FreeTDS") as caught:
        run_in(colour, store.open())
    assert "?driver=" in caught.value.fix
    assert "s3cr" not in str(caught.value)


@pytest.mark.parametrize("colour", Colour)
def test_a_server_that_cannot_be_reached_is_named(driver: Driver, colour: Colour) -> None:
    store = sqlserver_from_url(URL, colour)
    driver.server.connecting = [lost()]
    with pytest.raises(StoreUnavailable, match=r"db\.example:14330/shop") as caught:
        run_in(colour, store.open())
    assert isinstance(caught.value, OutboxError)
    assert isinstance(caught.value.__cause__, Error)


def test_the_script_for_people_who_make_tables_themselves(driver: Driver) -> None:
    script = sqlserver_from_url(URL, Colour.BLOCKING, schema="sales", table="ob_x").schema_sql()
    assert "CREATE TABLE [sales].[ob_x] (" in script
    assert "CREATE TABLE [sales].[ob_x_schema] (" in script
    assert "SET QUOTED_IDENTIFIER ON;" in script
    assert "INSERT INTO [sales].[ob_x_schema] (name, value) VALUES" in script


# ---------------------------------------------------------------- engines


@pytest.mark.parametrize("colour", Colour)
def test_an_engine_opens_the_connections_beside_its_pool(driver: Driver, colour: Colour) -> None:
    """SQLAlchemy's own classes, over the stand-in for the driver."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    opened: list[Any] = []
    module: Any = driver
    module.paramstyle, module.version, module.Cursor = "qmark", "5.3.0", object

    def creator() -> Any:
        opened.append(driver.server.connect())
        opened[-1].autocommit = False
        return opened[-1]

    engine = sqlalchemy.create_engine(
        "mssql+pyodbc://sa:s3cret@db.example/shop?driver=ODBC", creator=creator, module=module, _initialize=False
    )
    store = open_store(engine, colour, table="shop_outbox")
    assert type(store) is SqlServerStore
    assert (store.colour, store.where, store.names.table) == (colour, "SQL Server at db.example/shop", "shop_outbox")
    run_in(colour, touch(store))
    assert [raw.autocommit for raw in opened] == [True]
    assert engine.pool.checkedin() == engine.pool.checkedout() == 0
    engine.dispose()


def test_an_engine_over_another_driver_is_refused(driver: Driver) -> None:
    class Engine:
        __module__ = "sqlalchemy.engine.base"

        class dialect:  # noqa: N801
            name, driver = "mssql", "pymssql"

    with pytest.raises(UnknownStore, match="through pymssql") as caught:
        open_store(Engine(), Colour.BLOCKING)
    assert "mssql+pyodbc://" in caught.value.fix
