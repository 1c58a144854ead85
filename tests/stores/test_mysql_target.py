"""From a URL, a connection or an engine to a store: what is taken, and what is refused with its fix."""

from __future__ import annotations

import sys
from typing import Any

import asyncmy
import pymysql
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from aftercommit.errors import (
    InvalidOption,
    MissingDriver,
    OutboxError,
    SchemaMismatch,
    SchemaMissing,
    StoreForbidden,
    StoreReadOnly,
    StoreUnavailable,
    UnknownStore,
)
from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.stores.detect import open_store
from aftercommit.stores.mysql import faults
from aftercommit.stores.mysql.pool import check_version
from aftercommit.stores.mysql.target import Address, address_of, mysql_from_url
from aftercommit.stores.sql.execution import Fault
from aftercommit.testing.kit import event, take
from tests.stores.kit import insert, run_in
from tests.stores.mysql_kit import Table, connect, made, parts_of, prepared, store_at

SECRET = "p%40ss%3Aw%2Frd"


# ---------------------------------------------------------------- addresses


def test_a_url_names_everything() -> None:
    address = address_of(f"mysql://al%C3%A9:{SECRET}@db.example:3307/shop?connect_timeout=3&pool_size=5")
    assert (address.host, address.port, address.database, address.user) == ("db.example", 3307, "shop", "alé")
    assert address.password == b"p@ss:w/rd"
    assert (address.login()["connect_timeout"], address.pool_size, address.tls()) == (3, 5, None)
    assert address_of("mysql://h/d").port == 3306


def test_no_secret_is_shown() -> None:
    store = mysql_from_url(f"mysql://me:{SECRET}@db.example/shop?ssl=true", Colour.BLOCKING)
    shown = f"{store!r} {store.where} {address_of(f'mysql://me:{SECRET}@db.example/shop')!r}"
    assert "db.example:3306/shop" in shown
    assert "p@ss" not in shown
    assert "p%40ss" not in shown
    assert "me" not in store.where.replace("example", "")


def test_a_socket_is_shown_instead_of_a_host() -> None:
    address = address_of("mysql://me@localhost/shop?unix_socket=/run/my.sock")
    assert address.where == "MySQL at /run/my.sock/shop"
    assert address.login()["unix_socket"] == "/run/my.sock"


@pytest.mark.parametrize(
    ("rest", "complaint"),
    [
        ("host", "names no database"),
        ("host/", "names no database"),
        ("host/a/b", "names no database"),
        ("host:x/d", "port"),
        ("host:99999/d", "port"),
        ("host/d?charset=latin1", "charset"),
        ("host/d?colour=blue", "unknown parameter colour"),
        ("host/d?read_default_file=x&zeta=1", "read_default_file, zeta"),
        ("host/d?pool_size=0", "pool_size"),
        ("host/d?pool_size=1", "pool_size"),
        ("host/d?pool_size=many", "pool_size"),
        ("host/d?connect_timeout=-1", "connect_timeout"),
        ("host/d?ssl=maybe", "ssl is 'maybe'"),
        ("host/d?ssl_ca=/no/such/file", "certificates"),
    ],
)
def test_a_bad_url_is_refused_with_its_fix_and_without_its_password(rest: str, complaint: str) -> None:
    with pytest.raises(OutboxError, match=complaint) as caught:
        mysql_from_url(f"mysql://me:{SECRET}@{rest}", Colour.BLOCKING)
    assert isinstance(caught.value, UnknownStore | InvalidOption)
    assert caught.value.fix
    assert "p%40ss" not in str(caught.value)
    assert "p@ss" not in str(caught.value)


def test_tls_is_as_strict_as_it_is_asked_to_be(tmp_path: Any) -> None:
    import ssl

    plain, off = address_of("mysql://h/d?ssl=true"), address_of("mysql://h/d?ssl=false")
    assert plain.tls().verify_mode is ssl.CERT_NONE
    assert (off.tls(), off.refuses_tls, plain.refuses_tls) == (None, True, False)
    authority = ssl.get_default_verify_paths().cafile
    if authority is not None:
        strict = address_of(f"mysql://h/d?ssl_ca={authority}").tls()
        assert (strict.verify_mode, strict.check_hostname) == (ssl.CERT_REQUIRED, True)
        lax = address_of(f"mysql://h/d?ssl_ca={authority}&ssl_verify_identity=false").tls()
        assert (lax.verify_mode, lax.check_hostname) == (ssl.CERT_REQUIRED, False)


# ---------------------------------------------------------------- drivers


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "MySQL"])
@pytest.mark.parametrize("colour", Colour)
def test_the_colour_chooses_the_driver(scheme: str, colour: Colour) -> None:
    store = open_store(f"{scheme}://h/d", colour)
    assert store.colour is colour
    assert store.executor.driver_error.__module__.startswith("pymysql" if colour is Colour.BLOCKING else "asyncmy")


@pytest.mark.parametrize(("driver", "colour"), [("pymysql", Colour.ASYNC), ("asyncmy", Colour.BLOCKING)])
def test_a_driver_of_the_other_colour_is_refused(driver: str, colour: Colour) -> None:
    assert open_store(f"mysql+{driver}://h/d", Colour.BLOCKING if colour is Colour.ASYNC else Colour.ASYNC)
    with pytest.raises(UnknownStore, match=f"{driver} does not fit"):
        open_store(f"mysql+{driver}://h/d", colour)


def test_an_unknown_driver_is_refused() -> None:
    with pytest.raises(UnknownStore, match="through mysqldb"):
        open_store("mysql+mysqldb://h/d", Colour.BLOCKING)


@pytest.mark.parametrize(("driver", "colour"), [("pymysql", Colour.BLOCKING), ("asyncmy", Colour.ASYNC)])
def test_a_missing_driver_is_told_with_what_to_install(
    driver: str, colour: Colour, monkeypatch: pytest.MonkeyPatch
) -> None:
    import aftercommit.stores.mysql as package

    monkeypatch.setitem(sys.modules, driver, None)
    monkeypatch.delitem(sys.modules, f"aftercommit.stores.mysql.{driver}_driver", raising=False)
    monkeypatch.delattr(package, f"{driver}_driver", raising=False)
    with pytest.raises(MissingDriver, match=f"{driver} is not installed") as caught:
        mysql_from_url("mysql://h/d", colour)
    assert caught.value.fix == 'pip install "aftercommit[mysql]"'


# ---------------------------------------------------------------- servers


@pytest.mark.parametrize(
    ("text", "is_taken"),
    [
        ("8.0.17", True),
        ("8.4.0-commercial", True),
        ("9.1.0", True),
        ("10.6.0-MariaDB", True),
        ("5.5.5-10.11.19-MariaDB-0+deb12u1", True),
        ("11.4.2-MariaDB-log", True),
        ("a fork of something", True),
        ("8.0.16", False),
        ("5.7.44-log", False),
        ("5.5.5-10.5.9-MariaDB", False),
    ],
)
def test_an_old_server_is_refused(text: str, is_taken: bool) -> None:
    if is_taken:
        check_version(text)
    else:
        with pytest.raises(SchemaMismatch, match=r"needs MySQL 8\.0\.17 or MariaDB 10\.6\.0"):
            check_version(text)


@pytest.fixture
def table(mysql_url: str) -> Any:
    table = made(mysql_url)
    table.clear()
    yield table
    table.close()


@pytest.mark.parametrize("colour", Colour)
def test_a_server_that_does_not_answer_is_unavailable(colour: Colour) -> None:
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:9/shop cannot be reached"):
        run_in(colour, store_at("mysql://me:secret@127.0.0.1:9/shop", colour).open())


@pytest.mark.parametrize("colour", Colour)
def test_a_missing_table_a_missing_database_and_a_wrong_login_are_told_apart(table: Table, colour: Colour) -> None:
    async def scenario() -> None:
        store = store_at(table.url, colour, table="nothing", create_schema=False)
        with pytest.raises(SchemaMissing, match="nothing"):
            await store.open()
        with pytest.raises(SchemaMissing):
            await insert(store, event())
        with pytest.raises(SchemaMissing):
            await take(store)
        await store.close()
        parts = parts_of(table.url)
        place = f"{parts['host']}:{parts['port']}"
        with pytest.raises(StoreUnavailable, match="Unknown database"):
            await store_at(f"mysql://{parts['user']}@{place}/no_such_database", colour).open()
        with pytest.raises(StoreForbidden, match="Access denied"):
            await store_at(f"mysql://nobody_{parts['user']}:secret@{place}/{parts['database']}", colour).open()

    run_in(colour, scenario())


@pytest.mark.parametrize("colour", Colour)
def test_rights_that_are_missing_are_named(table: Table, colour: Colour) -> None:
    parts = parts_of(table.url)
    user = f"reader_{parts['database'][-8:]}"
    table.execute(f"CREATE USER '{user}'@'%' IDENTIFIED BY 'x'")
    try:
        table.execute(f"GRANT SELECT ON {parts['database']}.* TO '{user}'@'%'")

        async def scenario() -> None:
            store = store_at(f"mysql://{user}:x@{parts['host']}:{parts['port']}/{parts['database']}", colour)
            await store.open()
            with pytest.raises(StoreForbidden, match="outbox_event") as caught:
                await insert(store, event())
            assert "GRANT" in caught.value.fix
            await store.close()

        run_in(colour, scenario())
    finally:
        table.execute(f"DROP USER '{user}'@'%'")


@pytest.mark.parametrize("colour", Colour)
def test_a_session_that_may_only_read_is_told(table: Table, colour: Colour) -> None:
    async def scenario() -> None:
        store = prepared(store_at(table.url, colour), "SET SESSION TRANSACTION READ ONLY")
        await store.open()
        with pytest.raises(StoreReadOnly, match="takes no writes"):
            await take(store)
        await store.close()

    run_in(colour, scenario())


@pytest.mark.parametrize("driver_error", [pymysql.MySQLError, asyncmy.errors.MySQLError])
@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (1213, Fault.CONFLICT),
        (1205, Fault.BUSY),
        (1040, Fault.UNREACHABLE),
        (1146, Fault.MISSING_TABLE),
        (1142, Fault.FORBIDDEN),
        (1044, Fault.FORBIDDEN),
        (1143, Fault.FORBIDDEN),
        (1290, Fault.READ_ONLY),
        (1836, Fault.READ_ONLY),
        (1792, Fault.READ_ONLY),
        (2002, Fault.UNREACHABLE),
        (2003, Fault.UNREACHABLE),
        (2006, Fault.UNREACHABLE),
        (2013, Fault.UNREACHABLE),
        (0, Fault.UNREACHABLE),
        (1406, Fault.ROW),
        (1366, Fault.ROW),
        (1264, Fault.ROW),
        (3140, Fault.ROW),
        (1153, Fault.ROW),
        (1064, Fault.OTHER),
        ("not enough arguments", Fault.OTHER),
    ],
)
def test_codes_have_their_meaning(driver_error: type[Exception], code: object, fault: Fault) -> None:
    assert faults.fault_of(driver_error(code, "x"), driver_error) is fault
    is_sound = fault is not Fault.UNREACHABLE
    assert faults.is_in_step(driver_error(code, "x"), driver_error) is is_sound


def test_errors_of_others_are_not_the_databases() -> None:
    for error, fault in (
        (ValueError(1213), Fault.OTHER),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no"), Fault.ROW),
        (ConnectionResetError(), Fault.UNREACHABLE),
        (StoreUnavailable("x"), Fault.OTHER),
    ):
        assert faults.fault_of(error, pymysql.MySQLError) is fault
    assert not faults.is_in_step(KeyboardInterrupt(), pymysql.MySQLError)


# ---------------------------------------------------------------- connections and engines


async def walked(store: Any) -> None:
    """Write, claim and close."""
    await store.open()
    given = event(payload_json='"😀"')
    await insert(store, given)
    opened = await store.executor.begin()
    await opened.query("SELECT 1")
    await opened.commit()
    assert [claimed.event for claimed in await take(store)] == [given]
    await store.records.backlog()
    await store.close()


@pytest.mark.parametrize("colour", Colour)
def test_an_open_connection_shows_the_way(table: Table, colour: Colour) -> None:
    with connect(table.url) as connection:
        store = open_store(connection, colour, create_schema=True)
        run_in(colour, walked(store))
        connection.ping(reconnect=False)


def test_an_open_async_connection_shows_the_way(table: Table) -> None:
    async def scenario() -> None:
        connection = await asyncmy.connect(**parts_of(table.url))
        await walked(open_store(connection, Colour.ASYNC))
        await connection.ensure_closed()

    run_in(Colour.ASYNC, scenario())


def test_a_function_opens_the_connections(table: Table) -> None:
    opened: list[Any] = []

    def factory() -> Any:
        opened.append(connect(table.url))
        return opened[-1]

    run(walked(open_store(factory, Colour.BLOCKING)))
    assert len(opened) == 3
    assert not any(each.open for each in opened)


def test_a_connection_without_a_database_is_refused(table: Table) -> None:
    with (
        pymysql.connect(**{**parts_of(table.url), "database": None}) as connection,
        pytest.raises(UnknownStore, match="no database"),
    ):
        open_store(connection, Colour.BLOCKING)


@pytest.mark.parametrize("autocommit", [False, True])
@pytest.mark.parametrize("colour", Colour)
def test_an_engine_lends_its_connections(table: Table, colour: Colour, autocommit: bool) -> None:
    """And gets them back; a killed one is replaced; the engine stays the user's."""
    url = table.url.partition("://")[2]
    options = {"isolation_level": "AUTOCOMMIT"} if autocommit else {}

    async def scenario() -> None:
        if colour is Colour.BLOCKING:
            engine: Any = create_engine(f"mysql+pymysql://{url}", **options)
        else:
            engine = create_async_engine(f"mysql+asyncmy://{url}", **options)
        store = open_store(engine, colour)
        await walked(store)
        for session in table.sessions():
            table.kill(session)
        table.clear()
        await walked(store)
        assert (engine.pool.checkedout(), len(table.sessions())) == (0, 1)
        disposed = engine.dispose()
        if colour is Colour.ASYNC:
            await disposed

    run_in(colour, scenario())


def test_an_engine_of_another_driver_is_refused(table: Table) -> None:
    class Engine:
        __module__ = "sqlalchemy.engine.base"
        dialect = type("Dialect", (), {"name": "mysql", "driver": "mysqldb"})
        url = None

    with pytest.raises(UnknownStore, match="mysqldb"):
        open_store(type("Engine", (Engine,), {"__module__": "sqlalchemy.engine"})(), Colour.BLOCKING)


def test_an_engine_that_cannot_say_everything_is_refused(table: Table) -> None:
    engine = create_engine(f"mysql+pymysql://{table.url.partition('://')[2]}?charset=latin1")
    with pytest.raises(InvalidOption, match="latin1"):
        run(open_store(engine, Colour.BLOCKING).open())
    engine.dispose()


def test_an_address_is_a_value() -> None:
    assert Address("h", 1, "d") == Address("h", 1, "d")
