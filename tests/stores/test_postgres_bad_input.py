"""What cannot work says so in its own words, with what to do, and without secrets."""

from __future__ import annotations

import builtins
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

import asyncpg
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aftercommit import AsyncOutbox, Outbox
from aftercommit.errors import (
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
from aftercommit.stores.detect import open_store
from aftercommit.testing.kit import event, take
from tests.servers import PrivatePostgres, free_port, postgres_answers
from tests.stores.kit import insert
from tests.stores.postgres_kit import DRIVERS, Table, Way

SECRET = "hunter2"


@pytest.fixture
def role(postgres_table: Table) -> Iterator[str]:
    """A login without any rights on the tables."""
    name = f"role_{uuid4().hex[:8]}"
    postgres_table.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{SECRET}'")
    yield name
    postgres_table.execute(f"DROP OWNED BY {name}")
    postgres_table.execute(f"DROP ROLE {name}")


def as_role(way: Way, role: str) -> str:
    parts = urlsplit(way.table.url)
    host = parts.netloc.rpartition("@")[2]
    return way.at(parts._replace(netloc=f"{role}:{SECRET}@{host}").geturl())


def refused(way: Way, url: str, kind: type[OutboxError], use: Any = None, **options: Any) -> OutboxError:
    """The error that opening, or a use after it, meets. No secret is in it, nor in anything printed with it."""

    async def scenario() -> None:
        async with way.opened(url, **options) as store:
            if use is not None:
                await use(store)

    with pytest.raises(kind) as caught:
        way.run(scenario)
    printed = "".join(traceback.format_exception(caught.value))
    assert SECRET not in printed
    assert caught.value.fix
    return caught.value


# ---------------------------------------------------------------- rights


def test_a_role_without_rights_is_told_which_it_needs(way: Way, role: str) -> None:
    error = refused(way, as_role(way, role), StoreForbidden)
    assert "outbox_schema" in str(error)
    assert "GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_event" in error.fix


def test_a_role_that_may_only_read_is_told_when_it_writes(way: Way, role: str) -> None:
    way.table.execute(f"GRANT SELECT ON outbox_event, outbox_schema TO {role}")
    for use in (lambda store: insert(store, event()), take):
        error = refused(way, as_role(way, role), StoreForbidden, use)
        assert "permission denied for table outbox_event" in str(error)
    assert way.table.rows() == []


def test_the_rights_that_are_named_are_enough(way: Way, role: str) -> None:
    way.table.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_event TO {role}")
    way.table.execute(f"GRANT SELECT ON outbox_schema TO {role}")

    async def scenario() -> None:
        async with way.opened(as_role(way, role)) as store:
            await insert(store, event())
            assert len(await take(store)) == 1

    way.run(scenario)


def test_a_role_that_may_not_create_tables_is_told(way: Way, role: str) -> None:
    way.table.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    error = refused(way, as_role(way, role), StoreForbidden, table="other", create_schema=True)
    assert "create_schema() needs the right to create tables" in error.fix


def test_a_read_only_role_is_told_so(way: Way, role: str) -> None:
    """As a connection to a standby would be."""
    way.table.execute(f"GRANT ALL ON outbox_event, outbox_schema TO {role}")
    way.table.execute(f"ALTER ROLE {role} SET default_transaction_read_only = on")
    for use in (lambda store: insert(store, event()), take):
        error = refused(way, as_role(way, role), StoreReadOnly, use)
        assert "takes no writes" in str(error)
        assert "primary" in error.fix


# ---------------------------------------------------------------- tables


def test_a_missing_table_names_itself_and_create_schema(way: Way) -> None:
    error = refused(way, way.url, SchemaMissing, table="elsewhere")
    assert "elsewhere" in str(error)
    assert "create_schema()" in error.fix


def test_a_missing_schema_is_a_missing_table(way: Way) -> None:
    refused(way, way.url, SchemaMissing, schema="nowhere")


def test_a_table_that_is_dropped_under_way_is_missed(way: Way) -> None:
    async def use(store: Any) -> None:
        way.table.execute("DROP TABLE elsewhere")
        await take(store)

    refused(way, way.url, SchemaMissing, use, table="elsewhere", create_schema=True)


def test_an_old_schema_asks_for_an_upgrade(way: Way) -> None:
    async def scenario() -> None:
        async with way.opened(table="aged", create_schema=True):
            way.table.execute("UPDATE aged_schema SET value = '0' WHERE name = 'version'")

    way.run(scenario)
    error = refused(way, way.url, SchemaMismatch, table="aged")
    assert "create_schema()" in error.fix


def test_a_newer_schema_asks_for_a_newer_release(way: Way) -> None:
    async def scenario() -> None:
        async with way.opened(table="young", create_schema=True):
            way.table.execute("UPDATE young_schema SET value = '9' WHERE name IN ('version', 'oldest_code')")

    way.run(scenario)
    assert "upgrade aftercommit" in refused(way, way.url, SchemaMismatch, table="young").fix


# ---------------------------------------------------------------- servers


def test_a_server_that_is_too_old_is_told(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    version = asyncpg.types.ServerVersion(12, 4, 0, "final", 0)
    monkeypatch.setattr(psycopg.ConnectionInfo, "server_version", property(lambda _: 120004))
    monkeypatch.setattr(asyncpg.Connection, "get_server_version", lambda _: version)
    error = refused(way, way.url, SchemaMismatch)
    assert "PostgreSQL 12, aftercommit needs 13" in str(error)


def test_a_wrong_port_names_the_address(way: Way) -> None:
    port = free_port()
    url = way.at(f"postgresql://user:{SECRET}@127.0.0.1:{port}/app")
    error = refused(way, url, StoreUnavailable)
    assert f"PostgreSQL at 127.0.0.1:{port}/app cannot be reached" in str(error)
    assert "address and the login" in error.fix


def test_a_wrong_database_is_named(way: Way) -> None:
    parts = urlsplit(way.table.url)
    error = refused(way, way.at(parts._replace(path="/no_such_database").geturl()), StoreUnavailable)
    assert "no_such_database" in str(error)


def test_a_wrong_role_is_named(way: Way) -> None:
    assert "nobody_here" in str(refused(way, as_role(way, "nobody_here"), StoreUnavailable))


def test_a_wrong_password_is_refused_and_not_shown(private_postgres: PrivatePostgres) -> None:
    table = Table(private_postgres.url)
    table.execute("ALTER ROLE postgres PASSWORD 'right'")
    logins = private_postgres.folder / "data" / "pg_hba.conf"
    logins.write_text("host all all 127.0.0.1/32 scram-sha-256\n")
    table.execute("SELECT pg_reload_conf()")
    pause = threading.Event()
    while postgres_answers(private_postgres.url):  # the server reads the file in its own time
        pause.wait(0.01)
    for driver in DRIVERS:
        way = Way(driver, table)
        error = refused(way, as_role(way, "postgres"), StoreUnavailable)
        assert 'password authentication failed for user "postgres"' in str(error)
        assert "login" in error.fix
    table.close()


# ---------------------------------------------------------------- URLs


UNREADABLE = [
    f"postgresql://user:{SECRET}@host:port/app",
    f"postgresql://user:{SECRET}@host:99999999/app",
    f"postgresql://user:{SECRET}@[::1/app",
    f"postgresql://user:12/{SECRET}@host/app",
    f"postgresql://user:12?{SECRET}@host/app",
    f"postgresql://user:12#{SECRET}@host/app",
    f"postgresql://user:a@b/{SECRET}@host/app",
    f"postgresql://user:a@b?{SECRET}@host/app",
    f"postgresql+asyncpg://user:12/{SECRET}@host/app",
]


@pytest.mark.parametrize("url", UNREADABLE)
@pytest.mark.parametrize("kind", [Outbox, AsyncOutbox], ids=["Outbox", "AsyncOutbox"])
def test_a_url_that_cannot_be_read_is_not_shown(kind: Any, url: str) -> None:
    with pytest.raises(UnknownStore) as caught:
        kind(url)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:%zz{SECRET}@host/app",
        f"postgresql://host/app?{SECRET}=1",
        f"postgresql://user:%a1{SECRET}@host/app",  # no UTF-8
    ],
)
def test_what_the_driver_cannot_read_is_not_shown(url: str) -> None:
    with pytest.raises(UnknownStore, match="cannot be read") as caught:
        Outbox(url)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert "%25 for %" in caught.value.fix


@given(st.text(alphabet="ab1@:/?#[]%&= ", max_size=12), st.text(alphabet="ab1@:/?#[]%&= ", max_size=12))
def test_a_password_is_in_no_text_about_a_store(before: str, after: str) -> None:
    """Whatever stands around it: the store is refused, or shows host and database only."""
    for scheme, kind in (("postgresql", Outbox), ("postgresql+asyncpg", AsyncOutbox)):
        try:
            shown = repr(kind(f"{scheme}://user:{before}{SECRET}@host/app{after}")._store)
        except OutboxError as error:
            shown = "".join(traceback.format_exception(error))
        assert SECRET not in shown


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://db/app", "PostgreSQL at db/app"),
        ("postgres://u:p%40@db:6432/app?sslmode=require", "PostgreSQL at db:6432/app"),
        ("postgresql://one:5432,two:5433/app?target_session_attrs=primary", "PostgreSQL at one:5432,two:5433/app"),
        ("postgresql:///app?host=/tmp&user=me@tenant", "PostgreSQL at the local socket/app"),
        ("postgresql://[::1]:5432/app", "PostgreSQL at [::1]:5432/app"),
    ],
)
def test_a_store_is_known_by_host_and_database(url: str, place: str) -> None:
    assert repr(open_store(url, Colour.BLOCKING)) == f"PostgresStore({place})"


def test_a_driver_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UnknownStore, match="through psycopg2") as caught:
        Outbox(f"postgresql+psycopg2://user:{SECRET}@db/app")
    assert "postgresql+psycopg://" in caught.value.fix
    with pytest.raises(UnknownStore, match="asyncpg is async"):
        Outbox("postgresql+asyncpg://db/app")


# ---------------------------------------------------------------- drivers


@pytest.mark.parametrize(
    ("url", "library", "extra"),
    [
        ("postgresql://db/app", "psycopg", "aftercommit[postgres]"),
        ("postgresql://db/app", "psycopg_pool", "aftercommit[postgres]"),
        ("postgresql+asyncpg://db/app", "asyncpg", "aftercommit[asyncpg]"),
    ],
)
def test_a_driver_that_is_not_installed_is_named(
    url: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name.split(".")[0] == library or name.startswith("aftercommit.stores.postgres"):
            monkeypatch.delitem(sys.modules, name)
    plain = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".", maxsplit=1)[0] == library:
            raise ModuleNotFoundError(f"No module named {library!r}", name=library)
        return plain(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDriver, match=library) as caught:
        AsyncOutbox(url)
    assert caught.value.fix == f'pip install "{extra}"'


def test_a_password_is_quoted_as_in_every_url(way: Way, role: str) -> None:
    """So what is refused above can be written."""
    word = "a@b/c?d#e%f:g&h=i"
    way.table.execute(f"ALTER ROLE {role} PASSWORD '{word}'")
    url = as_role(way, role).replace(SECRET, quote(word, safe=""))
    refused(way, url, StoreForbidden)
